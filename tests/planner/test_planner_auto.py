"""The planner at work: exact whatever it decides, quick to give up, quick to come back."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import output, result, run, submit, table_decoder, tiny_tokenizer

from foredraft.drafters.base import Drafter, Outcome, RequestView
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Engine
from foredraft.errors import ForedraftError
from foredraft.planner import AutoPlanner, Planned, RoundTimes
from foredraft.planner.auto import MAX_FREE_NODES
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.round import RoundRequest
from foredraft.sampling import SamplingParams
from foredraft.testing import (
    DistDrafter,
    OracleDrafter,
    ScriptedDrafter,
    SimulatedClock,
    SyntheticDrafter,
    TableModel,
    WrongDrafter,
)
from foredraft.tree import Budget, DraftTree
from foredraft.verify import Verifier

V = 40
MODEL = TableModel(2, V, seed=5)
PARAMS = [
    SamplingParams(max_tokens=60),
    SamplingParams(max_tokens=60, temperature=1.0, seed=1, top_k=8),
    SamplingParams(max_tokens=1, seed=2),
    SamplingParams(max_tokens=60, temperature=2.0, seed=3),
]
PROMPTS = [[1, 2, 3], [7, 8] * 8, [30], list(range(25))]
FLAT = Calibration((1, 8, 16), (1.0, 1.1, 1.2))
STEEP = Calibration((1, 2), (1.0, 2.0))


class TableDrafter(ModelDrafter):
    """A draft model that is a table; `forward` makes its passes."""

    def __init__(self, seed: int) -> None:
        decoder, self.forward = table_decoder(TableModel(2, V, seed=seed))
        super().__init__(decoder, vocab_size=V)


class Simulated(AutoPlanner):
    """A planner in a world where passes take what they are said to take. `now` is its clock."""

    def __init__(self, drafters: Sequence[Drafter], calibration: Calibration, step_s: float) -> None:
        self.now = 0.0
        self._true = CostModel(calibration)
        steps = {d.name: StepCosts(Calibration((1,), (step_s,))) for d in drafters if not d.free}
        super().__init__(drafters, CostModel(calibration), steps, clock=lambda: self.now)
        for drafter in drafters:
            if isinstance(drafter, TableDrafter):
                drafter.forward.before = lambda: self.step(step_s)

    def step(self, seconds: float) -> None:
        self.now += seconds

    def draft(self, requests: Sequence[Planned]) -> list[DraftTree]:
        self.started = self.now
        return super().draft(requests)

    def observe(self, requests: Sequence[Planned], outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        verify = self._true.seconds(sum(outcome.tree.num_nodes for outcome in outcomes))
        super().observe(requests, outcomes, RoundTimes(self.now - self.started, verify, 0.0))
        self.now += verify


def engine_of(drafters: Sequence[Drafter], calibration: Calibration = FLAT, step_s: float = 0.2) -> Engine:
    decoder, _ = table_decoder(MODEL)
    planner = Simulated(drafters, calibration, step_s)
    return Engine(Verifier(decoder, V), planner, tiny_tokenizer(), context_length=256)


EXPECTED = [MODEL.generate(prompt, params, params.max_tokens) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]


@pytest.mark.parametrize("calibration", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("seed", [5, 6], ids=["itself", "another"])
def test_the_text_is_the_target_s_own(calibration: Calibration, seed: int) -> None:
    drafters = [LookupDrafter(), DistDrafter(TableModel(2, V, seed=8), (2, 2)), TableDrafter(seed)]
    engine = engine_of(drafters, calibration)
    for _ in range(2):
        requests = run(engine, PROMPTS, PARAMS)
        assert [output(request) for request in requests] == EXPECTED
    assert engine._verifier._decoder.cache.pool.num_used == 0


def test_a_round_in_which_all_requests_fail_tells_why() -> None:
    """Kind: a planner that looks at a pass without requests hides the error of the request, or stumbles later."""

    class Broken(TableModel):
        def logits(self, tokens: Sequence[int]) -> np.ndarray:
            return np.full_like(super().logits(tokens), np.nan if tokens[-1] == 30 else 0.0)

    decoder, _ = table_decoder(Broken(1, V))
    engine = Engine(Verifier(decoder, V), Simulated([LookupDrafter()], FLAT, 0.2), tiny_tokenizer(), context_length=256)
    for _ in range(2):  # before anything was learned, and after
        with pytest.raises(ForedraftError, match="not a number"):
            run(engine, [[30]], PARAMS[0])
        assert len(output(run(engine, [[7]], PARAMS[0])[0])) == 60
    assert not engine.has_work


def test_alone_and_together_say_the_same() -> None:
    together = run(engine_of([LookupDrafter(), TableDrafter(5)]), PROMPTS, PARAMS)
    for request, prompt, params in zip(together, PROMPTS, PARAMS, strict=True):
        [alone] = run(engine_of([LookupDrafter(), TableDrafter(5)]), [prompt], params)
        assert result(alone) == result(request)


def test_a_drafter_that_is_always_right_is_used_and_one_that_never_is_soon_is_not() -> None:
    engine = engine_of([OracleDrafter(EXPECTED[0])])
    [request] = run(engine, PROMPTS[:1], PARAMS[0])
    assert request.counts.num_rounds < 12
    assert "100% of" in request.reason

    engine = engine_of([WrongDrafter(MODEL)])
    for most in (1.03, 1.01):  # and the next request begins with what was learned
        started = engine._planner.now
        [request] = run(engine, PROMPTS[:1], PARAMS[0])
        assert request.counts.num_accepted_tokens == 0
        assert engine._planner.now - started <= most * 60 * FLAT.seconds[0]


def test_nothing_is_drafted_where_rows_cost_as_much_as_passes() -> None:
    engine = engine_of([LookupDrafter(), TableDrafter(5)], STEEP)
    requests = run(engine, PROMPTS, PARAMS)
    assert sum(request.counts.num_draft_tokens for request in requests) == 0


def test_a_costly_drafter_is_asked_by_what_it_costs_and_brings() -> None:
    for step_s, seed, least, most in [(0.1, 5, 40, 999), (1.5, 5, 0, 12), (0.3, 6, 0, 40)]:
        engine = engine_of([TableDrafter(seed)], FLAT, step_s)
        run(engine, PROMPTS[:1], PARAMS[0])
        [request] = run(engine, PROMPTS[:1], PARAMS[0])
        assert least <= request.counts.num_draft_tokens <= most, (step_s, seed)
        assert request.reason.startswith("auto: ")
        assert "of a target step" in request.reason


def test_something_is_expected_of_the_last_round_too() -> None:
    """Kind: where nothing fits any more nothing is expected, and an answer seems to be longer than expected."""
    engine = engine_of([LookupDrafter()])
    [request] = run(engine, [PROMPTS[2]], SamplingParams(max_tokens=1))
    assert (request.counts.expected_tokens, request.counts.expected_s) == (1.0, FLAT.seconds[0])


def test_a_drafter_that_has_given_up_says_so() -> None:
    drafter = TableDrafter(5)
    drafter.problem = "a logit is not a number"
    [request] = run(engine_of([LookupDrafter(), drafter]), PROMPTS[:1], PARAMS[0])
    assert request.reason.endswith("; a logit is not a number")


def test_a_request_that_was_never_drafted_for_has_a_reason_too() -> None:
    engine = engine_of([LookupDrafter()])
    request = submit(engine, PROMPTS[0], PARAMS[0])
    engine.release(request)
    [done] = run(engine, [PROMPTS[2]], PARAMS[2])
    assert done.reason == "auto: drafted in 0 of 1 rounds"


def test_rows_are_charged_for_what_they_look_back_on() -> None:
    """Kind: behind a long prompt the account thinks rows as cheap as behind a short one."""
    calibration = Calibration((1, 8, 16), (1.0, 1.1, 1.2), 0.0, 0.0005)
    lost = []
    for length in (4, 200):
        planner = Simulated([OracleDrafter([1, 2, 3, 4, 5])], calibration, 0.0)
        request = RoundRequest(0, list(range(length)), length, SamplingParams(seed=0), 250, None)  # type: ignore[arg-type]
        [tree] = planner.draft([request])
        assert tree.num_draft_tokens > 0
        request.tokens.append(9)
        planner.observe([request], [Outcome(tree, (), np.zeros((tree.num_nodes, V)))], RoundTimes(0.0, 1.0, 0.0))
        lost.append(-planner._running[0].balance.saved_s / tree.num_draft_tokens)
    assert lost == pytest.approx([0.1 / 7 + 4 * 0.0005, 0.1 / 7 + 200 * 0.0005], rel=0.02)


def planned(tokens: Sequence[int], *, request_id: int = 0, max_length: int = 250) -> RoundRequest:
    """A request of which only the planner and its drafters hear."""
    params = SamplingParams(seed=0)
    return RoundRequest(request_id, list(tokens), len(tokens), params, max_length, None)  # type: ignore[arg-type]


def test_the_time_of_drafting_is_expected_too() -> None:
    """Kind: a round with a draft model is expected to take no longer than its pass."""
    engine = engine_of([TableDrafter(5)], FLAT, 0.1)
    run(engine, PROMPTS[:1], PARAMS[0])
    planner = engine._planner
    [tree] = planner.draft([planned([1, 2, 3], request_id=99)])
    assert tree.num_draft_tokens > 0
    drafting = planner.now - planner.started
    expected = planner.expectation(99)
    assert expected is not None
    assert drafting > 0.1
    assert expected.seconds == pytest.approx(drafting + CostModel(FLAT).seconds(tree.num_nodes), rel=0.01)


def test_a_pass_is_judged_by_what_each_of_its_rows_looks_back_on() -> None:
    """Kind: the rows of a short request count as if they stood behind a long neighbour's text."""
    calibration = Calibration((1, 8, 16), (1.0, 1.1, 1.2), 0.0, 0.001)
    planner = AutoPlanner([OracleDrafter({0: [1, 2, 3, 4], 1: []})], CostModel(calibration), {}, clock=lambda: 0.0)
    requests = [planned(range(4)), planned(range(200), request_id=1)]
    trees = planner.draft(requests)
    rows = [tree.num_nodes for tree in trees]
    assert rows[0] > 1
    seconds = CostModel(calibration).seconds(sum(rows), rows[0] * 4 + rows[1] * 200, 204)
    for request in requests:
        request.tokens.append(9)
    outcomes = [Outcome(tree, (), np.zeros((tree.num_nodes, V))) for tree in trees]
    planner.observe(requests, outcomes, RoundTimes(0.0, seconds, 0.0))
    assert planner._cost.seconds(1) == pytest.approx(1.0)  # it took what it was said to take


def test_each_request_answers_for_its_own_draft() -> None:
    """Kind: a neighbour that was not drafted for bears a part of the cost, or a token saves the pass of all."""
    clock = SimulatedClock()
    drafter = SyntheticDrafter([5] * 30, 1.0, step_s=lambda num: 0.1, clock=clock)
    steps = {drafter.name: StepCosts(Calibration((1,), (0.1,)))}
    planner = AutoPlanner([drafter], CostModel(FLAT), steps, clock=clock)
    requests = [planned([1]), planned([1], request_id=1, max_length=2)]
    trees = planner.draft(requests)
    num_drafted = trees[0].num_draft_tokens
    assert (num_drafted > 1, trees[1].num_draft_tokens) == (True, 0)
    requests[0].tokens.extend([5] * (num_drafted + 1))
    requests[1].tokens.append(5)
    paths = [tuple(range(1, num_drafted + 1)), ()]
    outcomes = [Outcome(tree, path, np.zeros((1, V))) for tree, path in zip(trees, paths, strict=True)]
    planner.observe(requests, outcomes, RoundTimes(clock.now, 1.0, 0.0))
    plain_s, pass_s = (CostModel(FLAT).seconds(rows) for rows in (2, 2 + num_drafted))
    saved = [planner._running[request.id].balance.saved_s for request in requests]
    assert saved == pytest.approx([num_drafted * plain_s / 2 - clock.now - (pass_s - plain_s), 0.0])


def test_what_is_learned_of_sampled_text_is_kept_apart() -> None:
    """Kind: drafts of sampled text, which are wrong more often, spoil what is known of greedy text."""
    engine = engine_of([LookupDrafter()])
    run(engine, PROMPTS[1:2], PARAMS[1])
    learned = engine._planner.learned["lookup"]
    assert (bool(learned.greedy), bool(learned.sampled)) == (False, True)
    assert learned.sampled_share == (0.0, 0.0)  # which only drafters with models of their own have
    assert list(engine._planner.calibration_error) == ["lookup (sampled)"]


def test_a_drafter_that_heeds_no_budget_is_cut() -> None:
    """Kind: what goes beyond a request's last token is verified."""
    planner = Simulated([ScriptedDrafter([[5] * 9], obey_budget=False)], FLAT, 0.0)
    [tree] = planner.draft([planned([1, 2], max_length=5)])
    assert tree.tokens == (2, 5, 5)


def test_nobody_is_asked_where_nothing_fits() -> None:
    """Kind: the last round of an answer, which can use no draft, waits for drafters."""
    drafter = ScriptedDrafter([[5] * 9])
    planner = Simulated([drafter], FLAT, 0.0)
    [tree] = planner.draft([planned([1, 2], max_length=3)])
    assert (tree.num_draft_tokens, drafter.num_calls) == (0, 0)
    planner.draft([planned([1, 2], max_length=4)])
    assert drafter.num_calls == 1


def test_free_drafters_are_asked_for_what_may_pay() -> None:
    """Kind: a drafter grows a tree as large as the rest of the answer, of which a few nodes are used."""
    asked: list[int] = []

    class Asked(LookupDrafter):
        def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
            asked.extend(budget.num_tokens for budget in budgets)
            return super().propose(requests, budgets)

    Simulated([Asked()], FLAT, 0.0).draft([planned([1, 2]), planned([1, 2], request_id=1, max_length=5)])
    assert asked == [MAX_FREE_NODES, 2]
