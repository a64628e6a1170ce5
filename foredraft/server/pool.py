"""The models that a server has: loaded when they are first wanted, and put away when the memory is for another one."""

import asyncio
import contextlib
import threading
from collections import Counter, OrderedDict
from collections.abc import AsyncIterator, Callable, Iterator, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

import anyio.to_thread

from foredraft.config import DraftConfig
from foredraft.drafters import LIGHT_METHODS
from foredraft.errors import OptionError, UserError
from foredraft.llm import LLM
from foredraft.sampling import SamplingParams
from foredraft.server.errors import ApiError, busy

MAX_WAYS = 8
"""Ways of drafting that are kept, and in use, at a time for requests that ask for their own. Each takes its own steps,
between which all others wait."""


@dataclass(frozen=True, kw_only=True)
class Drafting:
    """What a request says of how it is to be drafted for; None: as the server does."""

    draft: str | tuple[str, ...] | None = None
    num_speculative_tokens: int | None = None
    acceptance: str | None = None

    def of(self, served: DraftConfig) -> DraftConfig:
        """The whole way of drafting. Raises OptionError for a drafter that the server does not offer."""
        given: dict[str, Any] = {}
        if self.draft is not None:
            given["drafters"] = (self.draft,) if isinstance(self.draft, str) else tuple(dict.fromkeys(self.draft))
            own = [one for one in served.drafters if isinstance(one, str)]
            offered = {"auto", "none", *LIGHT_METHODS, *own}
            # Others would have the server load what a client chooses, or keep everybody waiting while it is made.
            if other := [name for name in given["drafters"] if name not in offered]:
                raise OptionError(f"--draft {other[0]!r} is not offered by this server: {', '.join(sorted(offered))}")
        if self.num_speculative_tokens is not None:
            given["num_draft_tokens"] = self.num_speculative_tokens
        if self.acceptance is not None:
            given["acceptance"] = self.acceptance
        return replace(served, **given)


AS_SERVED = Drafting()


@dataclass(eq=False)
class ServedModel:
    """A loaded model, and how requests to it are drafted for.

    defaults: parameters of sampling for what a request leaves out. chat_options: of `Tokenizer.encode_chat`, likewise.
    """

    name: str
    llm: LLM
    defaults: dict[str, Any] = field(default_factory=dict)
    chat_options: dict[str, Any] = field(default_factory=dict)
    _ways: OrderedDict[str, LLM] = field(default_factory=OrderedDict)
    _users: Counter[str] = field(default_factory=Counter)
    _making: threading.Lock = field(default_factory=threading.Lock)

    @contextlib.contextmanager
    def reserved(self, wanted: Drafting) -> Iterator[None]:
        """The way of drafting is kept until the end of the context. Raises as `drafting`, and ApiError where too many
        others are in use."""
        config = wanted.of(self.llm.draft_config)
        if config == self.llm.draft_config:
            yield
            return
        key = repr(config)
        if key not in self._users and len(self._users) >= MAX_WAYS:
            raise busy(f"requests are drafted for in {MAX_WAYS} other ways at the moment: come again")
        self._users[key] += 1
        try:
            yield
        finally:
            self._users[key] -= 1
            if not self._users[key]:
                del self._users[key]

    def drafting(self, wanted: Drafting) -> LLM:
        """The model with the way of drafting that is wanted.

        Raises OptionError for one that is not offered, or has no meaning.
        """
        config = wanted.of(self.llm.draft_config)
        if config == self.llm.draft_config:
            return self.llm
        key = repr(config)
        with self._making:
            if key not in self._ways:
                self._ways[key] = self.llm.with_drafts(config)
                idle = [other for other in self._ways if other != key and other not in self._users]
                for other in idle[: max(len(self._ways) - MAX_WAYS, 0)]:
                    del self._ways[other]
            self._ways.move_to_end(key)
            return self._ways[key]

    def params(self, given: dict[str, Any]) -> SamplingParams:
        """Parameters of sampling: what is given, else the defaults."""
        return SamplingParams(**{**self.defaults, **given})


@dataclass(frozen=True, kw_only=True)
class ModelSpec:
    """A model that may be wanted. num_bytes: memory it will take, about. load: loads it; takes its time."""

    name: str
    num_bytes: int
    load: Callable[[], ServedModel]


class ModelPool:
    """The models by name.

    memory: bytes that weights and caches of all that are loaded may take together; None: no limit.

    Raises OptionError for two models of one name, or one that is too large by itself.
    """

    def __init__(self, specs: Sequence[ModelSpec], *, memory: int | None = None) -> None:
        self._specs = {spec.name: spec for spec in specs}
        if len(self._specs) < len(specs):
            raise OptionError("two models have the same name: give them others (--served-model-name)")
        if memory is not None and (large := [spec for spec in specs if spec.num_bytes > memory]):
            needed = large[0].num_bytes
            raise OptionError(f"--memory {memory} cannot hold {large[0].name}, which takes {needed} bytes: raise it")
        self._memory = memory
        self._loaded: OrderedDict[str, ServedModel] = OrderedDict()
        self._users: dict[str, int] = dict.fromkeys(self._specs, 0)
        self._turn = asyncio.Lock()  # first come, first served: nobody overtakes one that waits for room
        self._released = asyncio.Event()  # something that may make room: a use, a loading or a putting away has ended
        self._loading: dict[str, asyncio.Task[None]] = {}
        self._leaving: dict[str, asyncio.Task[None]] = {}

    @property
    def names(self) -> tuple[str, ...]:
        """Of all models, loaded or not."""
        return tuple(self._specs)

    @property
    def loaded(self) -> tuple[ServedModel, ...]:
        """Those in memory, the one used last at the end."""
        return tuple(self._loaded.values())

    def check(self, name: str) -> None:
        """Raise ApiError where there is no model of this name."""
        if name not in self._specs:
            known = ", ".join(self._specs)
            raise ApiError(
                f"the model {name!r} does not exist: this server has {known}",
                status=404,
                code="model_not_found",
                param="model",
            )

    @contextlib.asynccontextmanager
    async def use(self, name: str) -> AsyncIterator[ServedModel]:
        """The model of this name, in memory until the end of the context. Raises ApiError where there is none.

        Where it has to be loaded and there is no room, it waits until others are not used any more.
        """
        self.check(name)
        async with self._turn:
            if name not in self._loaded:
                await self._load(self._specs[name])
            self._users[name] += 1
            self._loaded.move_to_end(name)
            model = self._loaded[name]
        try:
            yield model
        finally:
            self._users[name] -= 1
            self._released.set()

    async def _load(self, spec: ModelSpec) -> None:
        while self._memory is not None and self._num_bytes_with(spec) > self._memory:
            idle = next((name for name in self._loaded if not self._users[name]), None)
            if idle is None or self._leaving:
                self._released.clear()
                await self._released.wait()
            else:
                self._leaving[idle] = asyncio.create_task(self._put_away(idle, self._loaded.pop(idle)))
        # A client that goes away does not stop it: the next one finds it under way.
        if spec.name not in self._loading:
            task = self._loading[spec.name] = asyncio.create_task(self._load_now(spec))
            # Nobody may be left to hear of its failure.
            task.add_done_callback(lambda done: done.cancelled() or done.exception())
        await asyncio.shield(self._loading[spec.name])

    async def _load_now(self, spec: ModelSpec) -> None:
        try:
            self._loaded[spec.name] = await anyio.to_thread.run_sync(spec.load)
        except UserError as error:  # whose fault it is not that of who asks for the model
            reason = f"the model {spec.name} cannot be loaded: {error}"
            raise ApiError(reason, status=503, code="model_not_loaded", param="model") from error
        finally:
            del self._loading[spec.name]
            self._released.set()

    async def _put_away(self, name: str, model: ServedModel) -> None:
        try:
            await anyio.to_thread.run_sync(model.llm.close)
        finally:
            del self._leaving[name]
            self._released.set()

    def _num_bytes_with(self, spec: ModelSpec) -> int:
        # One that leaves may be the one that is wanted again; then it is there twice, for a while.
        names = (*self._leaving, *{spec.name, *self._loaded, *self._loading})
        return sum(self._specs[name].num_bytes for name in names)

    def load_first(self) -> None:
        """Load the first of the models, before the server runs. Raises UserError as its loading does."""
        spec = next(iter(self._specs.values()))
        self._loaded[spec.name] = spec.load()

    async def close(self) -> None:
        """End all that is running, and put the models away."""
        while self._loaded:
            _, model = self._loaded.popitem()
            await anyio.to_thread.run_sync(model.llm.close)
