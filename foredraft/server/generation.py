"""One request on its way through the engine: admitted, prepared, run, counted, and ended with the connection."""

import asyncio
import contextlib
import time
from collections.abc import AsyncGenerator, AsyncIterator, Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from starlette.requests import Request

from foredraft.engine import Chunk, Completion
from foredraft.inputs import Prompt
from foredraft.llm import LLM
from foredraft.sampling import SamplingParams
from foredraft.server.errors import ApiError, busy
from foredraft.server.metrics import Metrics
from foredraft.server.options import ServerOptions
from foredraft.server.pool import AS_SERVED, Drafting, ModelPool, ServedModel
from foredraft.server.request_log import RequestLog


@dataclass(frozen=True, kw_only=True)
class Wanted:
    """What a request comes to, whatever API it came by.

    prompts: made of the model's tokenizer, in a thread. sampling: keywords of `SamplingParams`.
    said: what the request log keeps of the prompts.
    """

    model: str
    prompts: Callable[[ServedModel], Sequence[Prompt]]
    sampling: dict[str, Any]
    drafting: Drafting = AS_SERVED
    said: dict[str, Any]


class Generation:
    """Prompts that were accepted, to be completed once: whole or as they come. To be closed, whatever happens."""

    def __init__(
        self, server: "Server", wanted: Wanted, model: ServedModel, llm: LLM, prompts: Sequence[Prompt]
    ) -> None:
        self.model = model
        self.prompts = prompts
        self.completions: list[Completion] = []
        self._server = server
        self._wanted = wanted
        self._llm = llm
        self.params = model.params(server.limited(wanted.sampling))
        self._streams: Sequence[AsyncGenerator[Chunk]] = ()

    @property
    def num_choices(self) -> int:
        """Of all prompts together."""
        return len(self.prompts) * self.params.n

    def check(self) -> None:
        """Raise ApiError where it asks for more sequences than a request may."""
        most = self._server.options.max_sequences
        number = len(self.prompts) * self.params.num_choices
        if number > most:
            raise ApiError(f"{number} answers in one request: this server produces at most {most}", param="n")

    def prepare(self, *, streams: bool) -> None:
        """Have everything checked that can be. Raises as `LLM.stream` does."""
        begin = self._llm.astream if streams else _whole(self._llm)
        self._streams = [begin(prompt, self.params, **_raw(prompt)) for prompt in self.prompts]

    async def whole(self) -> list[Completion]:
        """All completions, in the order of the prompts. Raises what ends the first that fails."""
        async for _ in self.chunks():
            pass
        return self.completions

    async def chunks(self) -> AsyncIterator[Chunk]:
        """The pieces as they come; their indices count the choices of all prompts.

        The completion of a prompt is not in them: see `completions`, which is whole at the end.
        """
        found: dict[int, Completion] = {}
        async with contextlib.aclosing(_merged(self._streams)) as merged:
            async for place, chunk in merged:
                if chunk.completion is not None:
                    found[place] = chunk.completion
                    self._server.metrics.completed(self.model.name, chunk.completion)
                yield replace(chunk, completion=None, index=place * self.params.n + chunk.index)
        self.completions = [found[place] for place in range(len(self.prompts))]
        self._server.log_request(self._wanted, self.params, self.completions)


class Server:
    """What all requests share: the models, the limits, the counts."""

    def __init__(self, pool: ModelPool, options: ServerOptions) -> None:
        self.pool = pool
        self.options = options
        self.metrics = Metrics(pool)
        self._log = None if options.request_log is None else RequestLog(options.request_log)
        self.started = int(time.time())
        self._num_open = 0

    @classmethod
    def of(cls, request: Request) -> "Server":
        """That of the app which the request came to."""
        server = request.app.state.server
        assert isinstance(server, cls)
        return server

    def limited(self, sampling: dict[str, Any]) -> dict[str, Any]:
        """Parameters within the most tokens that an answer may have here."""
        most = self.options.max_tokens
        if most is None:
            return sampling
        asked = sampling.get("max_tokens")
        return {**sampling, "max_tokens": most if asked is None else min(asked, most)}

    def log_request(self, wanted: Wanted, params: SamplingParams, completions: Sequence[Completion]) -> None:
        """Append it to the request log, where there is one."""
        if self._log is not None:
            self._log.write(wanted.model, wanted.said, params, completions)

    async def close(self) -> None:
        """End all that is running, and put everything away."""
        await self.pool.close()
        if self._log is not None:
            self._log.close()

    @contextlib.asynccontextmanager
    async def begin(self, wanted: Wanted, *, streams: bool) -> AsyncIterator[Generation]:
        """Admit a request, and prepare it. Raises ApiError and UserError where it cannot be answered."""
        self.pool.check(wanted.model)
        if self._num_open >= self.options.max_queue:
            raise busy(f"the server has {self._num_open} requests already: come again")
        self._num_open += 1
        try:
            async with self.pool.use(wanted.model) as model:
                with model.reserved(wanted.drafting):
                    # The tokenizer, templates and grammars may take their time, in which others go on.
                    yield await asyncio.to_thread(self._prepared, wanted, model, streams=streams)
        finally:
            self._num_open -= 1

    def _prepared(self, wanted: Wanted, model: ServedModel, *, streams: bool) -> Generation:
        llm = model.drafting(wanted.drafting)
        generation = Generation(self, wanted, model, llm, wanted.prompts(model))
        generation.check()
        generation.prepare(streams=streams)
        return generation


def _raw(prompt: Prompt) -> dict[str, Any]:
    """Special tokens are read in plain texts, as other servers do: clients write their own chat formats."""
    return {"parse_special": True} if isinstance(prompt, str) else {}


def _whole(llm: LLM) -> Callable[..., AsyncGenerator[Chunk]]:
    """As `LLM.astream`, but for one chunk at the end: nobody waits for pieces."""

    async def chunk(prompt: Prompt, params: SamplingParams, **options: Any) -> AsyncGenerator[Chunk]:
        yield Chunk("", (), await llm.acomplete(prompt, params, **options))

    return chunk


async def _merged(streams: Sequence[AsyncGenerator[Chunk]]) -> AsyncGenerator[tuple[int, Chunk]]:
    """The chunks of several streams as they come, each with the place of its stream. All end with the first failure."""
    arrived: asyncio.Queue[tuple[int, Chunk | Exception | None]] = asyncio.Queue(maxsize=len(streams))

    async def pass_on(place: int, stream: AsyncGenerator[Chunk]) -> None:
        try:
            async with contextlib.aclosing(stream):
                async for chunk in stream:
                    await arrived.put((place, chunk))
            await arrived.put((place, None))
        except Exception as error:
            await arrived.put((place, error))

    tasks = [asyncio.create_task(pass_on(place, stream)) for place, stream in enumerate(streams)]
    try:
        num_open = len(tasks)
        while num_open:
            place, event = await arrived.get()
            if isinstance(event, Exception):
                raise event
            if event is None:
                num_open -= 1
            else:
                yield place, event
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
