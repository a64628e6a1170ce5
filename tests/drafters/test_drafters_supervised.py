"""A drafter that fails costs drafts, never a completion: faults in everything that a drafter does."""

import inspect
import logging
import math
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import pytest
from helpers.drafting import Echo, View, budgets, no_features, unspeculated
from helpers.engines import make_engine, result, run, table_decoder

from foredraft.drafters.base import Drafter, DrafterSpec, SequenceView
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.supervised import MAX_FAILURES, SupervisedDrafter
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams
from foredraft.testing import TableModel
from foredraft.tree import Budget, DraftTree

V = 40
CALLS: dict[str, Callable[[Drafter, View], object]] = {
    "propose": lambda drafter, view: drafter.propose([view], budgets(2)),
    "begin": lambda drafter, view: drafter.begin(view, no_features(view)),
    "observe": lambda drafter, view: drafter.observe([view], unspeculated([view])),
    "end": lambda drafter, view: drafter.end(view.id),
    "num_uncached_tokens": lambda drafter, view: drafter.num_uncached_tokens(view),
    "time_step": lambda drafter, view: drafter.time_step(num_tokens=1, context=0),
    "prefill": lambda drafter, view: drafter.prefill(view, 5),
    "begin_late": lambda drafter, view: drafter.begin_late(view, 5),
    "reset_prefix_cache": lambda drafter, view: drafter.reset_prefix_cache(),
}
"""A way to call each method."""
QUERIES = {"names", "problem"}
FROM_SPEC = {"name", "model_free"}


class Failing(Echo):
    """Raises in one method, where it is armed, and notes what it is asked."""

    spec = DrafterSpec(name="failing", model_free=False, can_begin_late=True)

    def __init__(self, method: str, error: Exception | None = None) -> None:
        self.method, self.error, self.armed = method, error or RuntimeError("line one\nline two"), True
        self.calls: list[str] = []

    def _called(self, method: str) -> None:
        self.calls.append(method)
        if self.armed and method == self.method:
            raise self.error

    @property
    def names(self) -> tuple[str, ...]:
        self._called("names")
        return super().names

    @property
    def problem(self) -> str:
        self._called("problem")
        return "slow today"

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self._called("propose")
        return super().propose(sequences, budgets)

    def begin(self, *arguments: Any) -> None:
        self._called("begin")

    def observe(self, *arguments: Any) -> None:
        self._called("observe")

    def end(self, sequence_id: int) -> None:
        self._called("end")

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        self._called("num_uncached_tokens")
        return 3

    def time_step(self, *, num_tokens: int, context: int) -> float:
        self._called("time_step")
        return 0.5

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        self._called("prefill")

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        self._called("begin_late")

    def reset_prefix_cache(self) -> None:
        self._called("reset_prefix_cache")


def a_round(drafter: Drafter, *methods: str) -> None:
    """Some calls, and the end of the round."""
    for method in methods:
        CALLS[method](drafter, View([1, 2]))
    CALLS["observe"](drafter, View([1, 2]))


def test_all_that_a_drafter_does_is_tried() -> None:
    """A method that is added to the base must be added here."""
    public = {name for name, _ in inspect.getmembers(Drafter) if not name.startswith("_")}
    assert public == CALLS.keys() | QUERIES | FROM_SPEC


@pytest.mark.parametrize("method", CALLS)
@pytest.mark.parametrize("error", [RuntimeError("line one\nline two"), OptionError("line one line two"), MemoryError()])
def test_a_fault_is_swallowed_told_once_and_ends_the_drafter_after_some(
    method: str, error: Exception, caplog: pytest.LogCaptureFixture
) -> None:
    inner = Failing(method, error)
    drafter = SupervisedDrafter(inner)
    for number in range(1, MAX_FAILURES + 1):
        assert not drafter.is_off
        a_round(drafter, *[method] * 2 if method != "observe" else ())  # twice in a round counts once
        assert "\n" not in drafter.problem
        kind = type(error).__name__
        assert drafter.problem.startswith(
            f"drafter 'failing' failed in `{method}`: {kind}: {' '.join(str(error).split())}"
        )
        assert ("it is left out where it fails" in drafter.problem) == (number < MAX_FAILURES)
    assert drafter.is_off
    assert f"it is switched off after {MAX_FAILURES} failures" in drafter.problem
    assert [(record.name, record.levelno) for record in caplog.records] == [("foredraft", logging.WARNING)]
    inner.armed, inner.calls = False, []
    for call in CALLS.values():
        call(drafter, View([1, 2]))
    assert inner.calls == ["end"]  # nothing else is passed on, for good


@pytest.mark.parametrize("query", sorted(QUERIES))
def test_a_fault_in_what_it_says_of_itself_costs_no_drafts(query: str) -> None:
    drafter = SupervisedDrafter(Failing(query))
    for _ in range(MAX_FAILURES):
        assert drafter.names == ("failing",)
        expected = "drafter 'failing' failed in `problem`: RuntimeError: line one line two"
        assert drafter.problem == (expected if query == "problem" else "slow today")
        a_round(drafter)
    assert not drafter.is_off


@pytest.mark.parametrize("method", CALLS)
def test_what_does_not_fail_is_passed_on(method: str) -> None:
    inner = Failing("nothing")
    drafter = SupervisedDrafter(inner, vocab_size=V)
    assert CALLS[method](drafter, View([1, 2])) == CALLS[method](inner, View([1, 2]))
    assert inner.calls == [method, method]
    assert (drafter.names, drafter.problem) == (inner.names, "slow today")


def test_what_a_drafter_that_is_off_says() -> None:
    inner = Failing("propose")
    drafter = SupervisedDrafter(inner)
    for _ in range(MAX_FAILURES):
        a_round(drafter, "propose")
    view = View([1, 2])
    assert drafter.propose([view, view], budgets(2, 2)) == [DraftTree.chain(2)] * 2
    assert drafter.num_uncached_tokens(view) == 0
    assert drafter.time_step(num_tokens=1, context=0) > 100
    assert (drafter.name, drafter.names) == ("failing", ("failing",))


def test_failures_of_several_kinds_count_together_and_rounds_without_do_not() -> None:
    inner = Failing("propose")
    drafter = SupervisedDrafter(inner)
    a_round(drafter, "begin", "propose", "propose")
    inner.armed = False
    for _ in range(10):
        a_round(drafter, "begin", "propose")
    inner.armed, inner.method = True, "begin"
    a_round(drafter, "begin", "propose")
    assert "`begin`" in drafter.problem
    assert not drafter.is_off
    inner.method = "end"
    CALLS["end"](drafter, View([1, 2]))
    assert drafter.is_off


class Picky(Echo):
    """Cannot stand one token."""

    def __init__(self) -> None:
        self.asked: list[list[int]] = []

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        self.asked.append([sequence.id for sequence in sequences])
        if any(13 in sequence.tokens for sequence in sequences):
            raise ValueError("13")
        return super().propose(sequences, budgets)


def test_only_the_sequence_it_fails_for_gets_no_draft() -> None:
    picky = Picky()
    drafter = SupervisedDrafter(picky)
    views = [View([1, 2], id=0), View([13, 3], id=1), View([4], id=2)]
    for _ in range(MAX_FAILURES - 1):
        trees = drafter.propose(views, budgets(2, 2, 1))
        assert trees == [DraftTree.chain(2, (2, 2)), DraftTree.chain(3), DraftTree.chain(4, (4,))]
        drafter.observe(views, unspeculated(views))
    assert picky.asked[:4] == [[0, 1, 2], [0], [1], [2]]
    assert not drafter.is_off
    assert drafter.propose(views, budgets(2, 2, 2)) == [DraftTree.chain(token) for token in (2, 3, 4)]
    assert drafter.is_off


def test_what_interrupts_a_program_is_no_fault_of_the_drafter() -> None:
    for error in (KeyboardInterrupt(), SystemExit()):
        drafter = SupervisedDrafter(Failing("propose", error))  # type: ignore[arg-type]
        with pytest.raises(type(error)):
            CALLS["propose"](drafter, View([1, 2]))
        assert drafter.problem == "slow today"


# --- proposals that are none ----------------------------------------------------------------------------------------

HALF = np.full(V, 0.5 / (V - 1))
HALF[3] = 0.5


class Proposing(Echo):
    def __init__(self, propose: Callable[..., Any]) -> None:
        self._propose = propose

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        trees: list[DraftTree] = self._propose(sequences)
        return trees


def drawn(token: int, probs_V: Any) -> DraftTree:
    return DraftTree((4, token), (-1, 0), draft_probs=(None, probs_V))


@pytest.mark.parametrize(
    ("propose", "parts"),
    [
        (lambda s: 1 / 0, ["failed in `propose`", "ZeroDivisionError", "division by zero"]),
        (lambda s: None, ["None", "list of 1 trees"]),
        (lambda s: [DraftTree.chain(4)] * 3, ["list of 1 trees"]),
        (lambda s: [(4, 5)], ["(4, 5)", "DraftTree"]),
        (lambda s: [DraftTree.chain(9)], ["root 9", "last token is 4"]),
        (lambda s: [DraftTree.chain(4, (1, 2, 3))], ["3 tokens", "2 were asked"]),
        (lambda s: [DraftTree.chain(4, (-1,))], ["token -1", f"vocabulary of {V}"]),
        (lambda s: [DraftTree.chain(4, (V,))], [f"token {V}", "vocabulary"]),
        (lambda s: [DraftTree.chain(4, ("a",))], ["token 'a'", "no int"]),  # type: ignore[arg-type]
        (lambda s: [DraftTree.chain(4, (1,), (math.nan,))], ["confidence nan", "from 0 to 1"]),
        (lambda s: [DraftTree.chain(4, (1,), (1.5,))], ["confidence 1.5", "from 0 to 1"]),
        (lambda s: [DraftTree((2, 3), (-1, 1))], ["failed in `propose`", "ValueError"]),
        (lambda s: [drawn(3, HALF[1:])], [f"draft_probs of node 1 are of {V - 1} tokens"]),
        (lambda s: [drawn(3, HALF / 2)], ["draft_probs of node 1 cannot be"]),
        (lambda s: [drawn(3, np.where(HALF == 0.5, 0.0, 1 / (V - 1)))], ["draft_probs of node 1 cannot be"]),
        (lambda s: [drawn(3, 0.5)], ["failed in `propose`", "TypeError"]),
    ],
)
def test_what_no_drafter_may_propose(propose: Callable[..., Any], parts: list[str]) -> None:
    drafter = SupervisedDrafter(Proposing(propose), vocab_size=V)
    [tree] = drafter.propose([View([3, 4], id=1)], budgets(2))
    assert tree == DraftTree.chain(4)
    assert "\n" not in drafter.problem
    for part in ("drafter 'echo' ", *parts):
        assert part in drafter.problem


def test_what_may_be_proposed_is_passed_on_as_it_is() -> None:
    for tree in (drawn(3, HALF), DraftTree.chain(4, (1, 2), (1.0005, np.float32(0.5))), DraftTree.chain(4)):
        drafter = SupervisedDrafter(Proposing(lambda s, tree=tree: (tree,)), vocab_size=V)  # type: ignore[misc]
        [found] = drafter.propose([View([3, 4])], budgets(2))
        assert found is tree
        assert drafter.problem == ""


@pytest.mark.parametrize("value", [-1, 1.5, None])
def test_what_cannot_be_uncached(value: object) -> None:
    class Wrong(Echo):
        def num_uncached_tokens(self, sequence: SequenceView) -> int:
            return value  # type: ignore[return-value]

    drafter = SupervisedDrafter(Wrong())
    assert drafter.num_uncached_tokens(View([1, 2])) == 0
    assert f"returned {value} from `num_uncached_tokens`" in drafter.problem


@pytest.mark.parametrize("value", [0.0, -1.0, math.nan, math.inf, None])
def test_what_no_step_takes(value: object) -> None:
    """Kind: a calibration that cannot be used comes up as a fault of ours."""

    class Wrong(Echo):
        spec = DrafterSpec(name="wrong", model_free=False)

        def time_step(self, *, num_tokens: int, context: int) -> float:
            return value  # type: ignore[return-value]

    drafter = SupervisedDrafter(Wrong())
    assert 100 < drafter.time_step(num_tokens=1, context=0) < math.inf
    assert f"returned {value} from `time_step`" in drafter.problem


# --- in an engine ---------------------------------------------------------------------------------------------------

MODEL = TableModel(1, V, seed=5, scale=6.0)
PARAMS = SamplingParams(max_tokens=30, temperature=0.5, seed=3, ignore_eos=True)
PROMPTS = [[1, 2, 3], [13, 4], [5] * 20]


@pytest.mark.parametrize("method", ["propose", "begin", "observe", "end"])
@pytest.mark.parametrize("alone", [True, False])
def test_completions_go_on_without_a_drafter_that_fails(method: str, alone: bool) -> None:
    """Kind: any exception of a drafter ends all running sequences."""
    plain = [result(done) for done in run(make_engine(table_decoder(MODEL)[0]), PROMPTS, PARAMS)]
    failing = SupervisedDrafter(Failing(method))
    drafter = failing if alone else FallbackDrafter([failing, SupervisedDrafter(LookupDrafter())])
    engine = make_engine(table_decoder(MODEL)[0], drafter)
    for _ in range(2):
        outputs = run(engine, PROMPTS, PARAMS)
        assert [result(done) for done in outputs] == plain
    assert f"failed in `{method}`" in drafter.problem
    if not alone:
        assert sum(done.counts.num_accepted_tokens for done in outputs) > 10
