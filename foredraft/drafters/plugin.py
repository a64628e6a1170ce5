"""Drafters from outside: found by name, and held to what a drafter is.

A wrong tree would be caught later or cost only speed, but then nobody would know whose fault it is. So whatever does
not keep to the protocol becomes one line here that says who did what.
"""

import math
from collections.abc import Callable, Sequence
from importlib.metadata import EntryPoint, entry_points
from typing import NoReturn, Protocol, TypeVar

import numpy as np

from foredraft.drafters.base import CostlyDrafter, Drafter, LateReader, Outcome, RequestView
from foredraft.errors import DrafterError, OptionError, UserError
from foredraft.tree import Budget, DraftTree

ENTRY_POINTS = "foredraft.drafters"
"""Group of entry points whose values are callables that take `DraftOptions` and return a drafter."""

_METHODS = ("propose", "observe", "forget")
_COSTLY_METHODS = ("num_unread", "time_step")
_ROUNDING = 1e-3
"""By which a confidence may be above 1."""
_Result = TypeVar("_Result")


def plugin_names() -> list[str]:
    """Names of the drafters that installed packages bring."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)})


def find_plugin(name: str) -> EntryPoint | None:
    """The entry point of that name, if an installed package has one.

    Raises OptionError where several packages have one.
    """
    found = list(entry_points(group=ENTRY_POINTS, name=name))
    if len({point.value for point in found}) > 1:
        values = " and ".join(sorted({point.value for point in found}))
        raise OptionError(f"drafter {name!r} is offered by several packages ({values}): uninstall all but one")
    return found[0] if found else None


def make_plugin(point: EntryPoint, options: object) -> object:
    """What the callable of an entry point returns. Raises OptionError for anything that goes wrong there."""
    try:
        make = point.load()
        if not callable(make):
            raise TypeError(f"{point.value} is no function that makes a drafter")
        return make(options)
    except UserError:
        raise
    except Exception as error:
        raise OptionError(f"drafter {point.name!r} ({point.value}) cannot be made: {_described(error)}") from error


def guarded(drafter: object, vocab_size: int) -> Drafter:
    """A drafter from outside, behind checks of all it does.

    vocab_size: of the target. Raises OptionError where it is no drafter: the line says what is missing.
    """
    what = f"drafter {type(drafter).__name__}"
    if isinstance(drafter, type):
        raise OptionError(f"drafter {drafter.__name__} is a class: give an object of it, {drafter.__name__}(...)")
    name, free = getattr(drafter, "name", None), getattr(drafter, "free", None)
    if not isinstance(name, str) or not name or "," in name or "\n" in name:
        raise OptionError(f"{what} needs a `name`: a text without commas")
    if not isinstance(free, bool):
        raise OptionError(f"{what} needs `free`: True where proposing costs next to nothing, else False")
    for method in _METHODS if free else (*_METHODS, *_COSTLY_METHODS):
        if not callable(getattr(drafter, method, None)):
            hint = ", as all with free = False do" if method in _COSTLY_METHODS else ""
            raise OptionError(f"{what} needs a method `{method}`{hint}; see docs/drafters.md")
    if free:
        return GuardedDrafter(drafter, vocab_size)  # type: ignore[arg-type]
    late = callable(getattr(drafter, "read_only_end", None))
    return (GuardedLateReader if late else GuardedCostlyDrafter)(drafter, vocab_size)  # type: ignore[arg-type]


class LateCostlyDrafter(CostlyDrafter, LateReader, Protocol):
    """A costly drafter that need not read all of a text."""


class GuardedDrafter:
    """Passes everything on to a drafter. Raises DrafterError for an exception, and for a proposal that is wrong."""

    def __init__(self, drafter: Drafter, vocab_size: int) -> None:
        self.name, self.free = drafter.name, drafter.free
        self.dozes = getattr(drafter, "dozes", False) is True
        self.identity = str(getattr(drafter, "identity", ""))
        self._drafter = drafter
        self._vocab_size = vocab_size

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        trees = self._call("propose", lambda: self._drafter.propose(requests, budgets))
        if not isinstance(trees, list | tuple) or len(trees) != len(requests):
            self._fail(f"proposed {_shown(trees)} instead of a list of {len(requests)} trees, one for each request")
        for tree, request, budget in zip(trees, requests, budgets, strict=True):
            self._check(tree, request, budget)
        return list(trees)

    def _check(self, tree: object, request: RequestView, budget: Budget) -> None:
        if not isinstance(tree, DraftTree):
            self._fail(f"proposed {_shown(tree)} instead of a DraftTree")
        root = request.tokens[-1]
        if tree.tokens[0] != root:
            self._fail(f"proposed a tree with root {tree.tokens[0]!r} where the last token is {root}")
        if tree.num_draft_tokens > max(budget.num_tokens, 0):
            self._fail(f"proposed {tree.num_draft_tokens} tokens where {budget.num_tokens} were asked for")
        for token in tree.tokens[1:]:
            if not isinstance(token, int):
                self._fail(f"proposed token {_shown(token)}, which is no int")
            if not 0 <= token < self._vocab_size:
                self._fail(f"proposed token {token}, which is not in the vocabulary of {self._vocab_size}")
        for confidence in tree.confidence[1:]:
            if not (_is_number(confidence) and 0 <= confidence <= 1 + _ROUNDING):
                self._fail(f"proposed a token with confidence {_shown(confidence)}, which is not from 0 to 1")

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        self._call("observe", lambda: self._drafter.observe(requests, outcomes))

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        self._call("forget", lambda: self._drafter.forget(request_id))

    def _call(self, method: str, call: Callable[[], _Result]) -> _Result:
        try:
            return call()
        except UserError:
            raise
        except Exception as error:
            raise DrafterError(f"drafter {self.name!r} failed in `{method}`: {_described(error)}") from error

    def _fail(self, problem: str) -> NoReturn:
        raise DrafterError(f"drafter {self.name!r} {problem}")


class GuardedCostlyDrafter(GuardedDrafter):
    """The same for a `CostlyDrafter`."""

    _drafter: CostlyDrafter

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`."""
        number: object = self._call("num_unread", lambda: self._drafter.num_unread(request))
        if not isinstance(number, int) or number < 0:
            self._fail(f"returned {_shown(number)} from `num_unread` instead of a number of tokens")
        return number

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        seconds = self._call("time_step", lambda: self._drafter.time_step(num_tokens=num_tokens, context=context))
        if not (_is_number(seconds) and 0 < seconds < math.inf):
            self._fail(f"returned {_shown(seconds)} from `time_step` instead of seconds above 0")
        return float(seconds)


class GuardedLateReader(GuardedCostlyDrafter):
    """The same for a costly drafter that need not read all of a text."""

    _drafter: LateCostlyDrafter

    def read_only_end(self, request: RequestView, num_tokens: int) -> None:
        """See `LateReader`."""
        self._call("read_only_end", lambda: self._drafter.read_only_end(request, num_tokens))


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.floating)


def _described(error: Exception) -> str:
    return f"{type(error).__name__}: {_one_line(str(error))}"


def _shown(value: object) -> str:
    return _one_line(repr(value))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."
