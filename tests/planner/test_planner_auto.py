"""The planner at work: exact whatever it decides, quick to give up, quick to come back."""

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from helpers.engines import output, result, run, submit, table_decoder, tiny_tokenizer
from helpers.planning import planned, told

from foredraft.bench.simulate import known_sequence
from foredraft.drafters.base import Drafter, SequenceView
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Engine
from foredraft.errors import ForedraftError
from foredraft.planner import AutoPlanner, Plan, RoundResult, RoundTimes
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.sampling import SamplingParams
from foredraft.sequence import Batch
from foredraft.sequence import Sequence as RunningSequence
from foredraft.target import ModelTarget
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
        self.cost = CostModel(calibration)
        self._true = CostModel(calibration)
        steps = {d.name: StepCosts(Calibration((1,), (step_s,))) for d in drafters if not d.model_free}
        super().__init__(drafters, self.cost, steps, clock=lambda: self.now)
        for drafter in drafters:
            if isinstance(drafter, TableDrafter):
                drafter.forward.before = lambda: self.step(step_s)

    def step(self, seconds: float) -> None:
        self.now += seconds

    def plan(self, batch: Batch) -> Plan:
        self.started = self.now
        return super().plan(batch)

    def observe(self, plan: Plan, result: RoundResult) -> None:
        num_nodes = sum(outcome.tree.num_nodes for outcome in result.outcomes if outcome)
        # What a prompt takes that is computed with nothing beside it does not matter here.
        verify_s = self._true.seconds(num_nodes + result.num_prefill_tokens) if num_nodes else 0.0
        super().observe(plan, replace(result, times=RoundTimes(self.now - self.started, verify_s, 0.0)))
        self.now += verify_s


def engine_of(drafters: Sequence[Drafter], calibration: Calibration = FLAT, step_s: float = 0.2) -> Engine:
    return engine_with(Simulated(drafters, calibration, step_s), MODEL)


def engine_with(planner: Simulated, model: TableModel) -> Engine:
    decoder, _ = table_decoder(model)
    return Engine(ModelTarget(decoder, V), planner, tiny_tokenizer(), context_length=256)


EXPECTED = [MODEL.generate(prompt, params, params.max_tokens) for prompt, params in zip(PROMPTS, PARAMS, strict=True)]


@pytest.mark.parametrize("calibration", [FLAT, STEEP], ids=["flat", "steep"])
@pytest.mark.parametrize("seed", [5, 6], ids=["itself", "another"])
def test_the_text_is_the_target_s_own(calibration: Calibration, seed: int) -> None:
    drafters = [LookupDrafter(), DistDrafter(TableModel(2, V, seed=8), (2, 2)), TableDrafter(seed)]
    engine = engine_of(drafters, calibration)
    for _ in range(2):
        assert [output(one) for one in run(engine, PROMPTS, PARAMS)] == EXPECTED
    assert engine._target.decoder.cache.pool.num_used == 0


def test_a_round_in_which_all_sequences_fail_tells_why() -> None:
    """Kind: a planner that looks at a pass of nobody hides the error of a sequence, or stumbles later."""

    class Broken(TableModel):
        def logits(self, tokens: Sequence[int]) -> np.ndarray:
            return np.full_like(super().logits(tokens), np.nan if tokens[-1] == 30 else 0.0)

    engine = engine_with(Simulated([LookupDrafter()], FLAT, 0.2), Broken(1, V))
    for _ in range(2):  # before anything was learned, and after
        with pytest.raises(ForedraftError, match="not a number"):
            run(engine, [[30]], PARAMS[0])
        assert len(output(run(engine, [[7]], PARAMS[0])[0])) == 60
    assert not engine.has_work


def test_alone_and_together_say_the_same() -> None:
    together = run(engine_of([LookupDrafter(), TableDrafter(5)]), PROMPTS, PARAMS)
    for one, prompt, params in zip(together, PROMPTS, PARAMS, strict=True):
        [alone] = run(engine_of([LookupDrafter(), TableDrafter(5)]), [prompt], params)
        assert result(alone) == result(one)


def test_a_drafter_that_is_always_right_is_used_and_one_that_never_is_soon_is_not() -> None:
    engine = engine_of([OracleDrafter(EXPECTED[0])])
    [one] = run(engine, PROMPTS[:1], PARAMS[0])
    assert one.counts.num_rounds < 12
    assert "100% of" in one.reason

    engine = engine_of([WrongDrafter(MODEL)])
    for most in (1.03, 1.01):  # and the next sequence begins with what was learned
        started = engine._planner.now
        [one] = run(engine, PROMPTS[:1], PARAMS[0])
        assert one.counts.num_accepted_tokens == 0
        assert engine._planner.now - started <= most * 60 * FLAT.seconds[0]


def test_nothing_is_drafted_where_tokens_cost_as_much_as_passes() -> None:
    engine = engine_of([LookupDrafter(), TableDrafter(5)], STEEP)
    assert sum(one.counts.num_draft_tokens for one in run(engine, PROMPTS, PARAMS)) == 0


def test_a_model_is_asked_by_what_it_costs_and_brings() -> None:
    for step_s, seed, least, most in [(0.1, 5, 40, 999), (1.5, 5, 0, 12), (0.3, 6, 0, 40)]:
        engine = engine_of([TableDrafter(seed)], FLAT, step_s)
        run(engine, PROMPTS[:1], PARAMS[0])
        [one] = run(engine, PROMPTS[:1], PARAMS[0])
        assert least <= one.counts.num_draft_tokens <= most, (step_s, seed)
        assert one.reason.startswith("auto: ")
        assert "of a target step" in one.reason


def test_something_is_expected_of_the_last_round_too() -> None:
    """Kind: where nothing fits any more nothing is expected, and a completion seems to be longer than expected."""
    engine = engine_of([LookupDrafter()])
    [one] = run(engine, [PROMPTS[2]], SamplingParams(max_tokens=1))
    assert (one.counts.expected_tokens, one.counts.expected_s) == (1.0, FLAT.seconds[0])


class GivenUp(LookupDrafter):
    """Has something to say against itself."""

    @property
    def problem(self) -> str:
        return "a logit is not a number"


def test_a_drafter_that_has_given_up_says_so() -> None:
    [one] = run(engine_of([GivenUp(), TableDrafter(5)]), PROMPTS[:1], PARAMS[0])
    assert one.reason.endswith("; a logit is not a number")


def test_a_sequence_that_was_never_drafted_for_has_a_reason_too() -> None:
    engine = engine_of([LookupDrafter()])
    cancelled = submit(engine, PROMPTS[0], PARAMS[0])
    engine.cancel(cancelled)
    assert cancelled.reason == "auto: ended before its first round"
    [done] = run(engine, [PROMPTS[2]], PARAMS[2])
    assert done.reason == "auto: drafted in 0 of 1 rounds"


def sequence(tokens: Sequence[int], *, id: int = 0, max_length: int = 250) -> RunningSequence:
    """One that nobody runs."""
    one = known_sequence(id, list(tokens), len(tokens))
    one.max_length = max_length
    return one


def test_nodes_are_charged_for_what_they_look_back_on() -> None:
    """Kind: behind a long prompt the account thinks nodes as cheap as behind a short one."""
    calibration = Calibration((1, 8, 16), (1.0, 1.1, 1.2), 0.0, 0.0005)
    lost = []
    for length in (4, 200):
        planner, one = Simulated([OracleDrafter([1, 2, 3, 4, 5])], calibration, 0.0), sequence(range(length))
        plan = planned(planner, one)
        assert plan.trees[0].num_draft_tokens > 0
        one.tokens.append(9)
        planner.observe(plan, told(plan, [()], RoundTimes(0.0, 1.0, 0.0)))
        lost.append(-planner._losses(one).saved_s / plan.trees[0].num_draft_tokens)
    assert lost == pytest.approx([0.1 / 7 + 4 * 0.0005, 0.1 / 7 + 200 * 0.0005], rel=0.02)


def test_the_time_of_drafting_is_expected_too() -> None:
    """Kind: a round with a draft model is expected to take no longer than its pass."""
    engine = engine_of([TableDrafter(5)], FLAT, 0.1)
    run(engine, PROMPTS[:1], PARAMS[0])
    planner = engine._planner
    plan = planned(planner, sequence([1, 2, 3], id=99))
    assert plan.trees[0].num_draft_tokens > 0
    drafting_s = planner.now - planner.started
    assert drafting_s > 0.1
    assert plan.spent_s == drafting_s
    assert plan.expected_s == pytest.approx(drafting_s + CostModel(FLAT).seconds(plan.trees[0].num_nodes), rel=0.01)
    assert plan.plain_s == pytest.approx(CostModel(FLAT).seconds(1), rel=0.01)


def test_a_pass_is_judged_by_what_each_of_its_nodes_looks_back_on() -> None:
    """Kind: the nodes of a short sequence count as if they stood behind a long neighbour's text."""
    calibration = Calibration((1, 8, 16), (1.0, 1.1, 1.2), 0.0, 0.001)
    planner = Simulated([OracleDrafter({0: [1, 2, 3, 4], 1: []})], calibration, 0.0)
    sequences = [sequence(range(4)), sequence(range(200), id=1)]
    plan = planned(planner, *sequences)
    nodes = [tree.num_nodes for tree in plan.trees]
    assert nodes[0] > 1
    seconds = CostModel(calibration).seconds(sum(nodes), nodes[0] * 4 + nodes[1] * 200, 204)
    for one in sequences:
        one.tokens.append(9)
    AutoPlanner.observe(planner, plan, told(plan, [(), ()], RoundTimes(0.0, seconds, 0.0)))
    assert planner.cost.seconds(1) == pytest.approx(1.0)  # it took what it was said to take


def test_each_sequence_answers_for_its_own_draft() -> None:
    """Kind: a neighbour that was not drafted for bears a part of the cost, or a token saves the pass of all."""
    clock = SimulatedClock()
    drafter = SyntheticDrafter([5] * 30, 1.0, step_s=lambda num: 0.1, clock=clock)
    steps = {drafter.name: StepCosts(Calibration((1,), (0.1,)))}
    planner = AutoPlanner([drafter], CostModel(FLAT), steps, clock=clock)
    sequences = [sequence([1]), sequence([1], id=1, max_length=2)]
    plan = planned(planner, *sequences)
    num_drafted = plan.trees[0].num_draft_tokens
    assert (num_drafted > 1, plan.trees[1].num_draft_tokens) == (True, 0)
    sequences[0].tokens.extend([5] * (num_drafted + 1))
    sequences[1].tokens.append(5)
    planner.observe(plan, told(plan, [range(1, num_drafted + 1), ()], RoundTimes(clock.now, 1.0, 0.0)))
    plain_s, pass_s = (CostModel(FLAT).seconds(number) for number in (2, 2 + num_drafted))
    saved = [planner._losses(one).saved_s for one in sequences]
    assert saved == pytest.approx([num_drafted * plain_s / 2 - clock.now - (pass_s - plain_s), 0.0])


def test_what_is_learned_of_sampled_text_is_kept_apart() -> None:
    """Kind: drafts of sampled text, which are wrong more often, spoil what is known of greedy text."""
    engine = engine_of([LookupDrafter()])
    run(engine, PROMPTS[1:2], PARAMS[1])
    learned = engine._planner.learned["lookup"]
    assert (bool(learned.greedy), bool(learned.sampled)) == (False, True)
    assert learned.sampled_acceptance == (0.0, 0.0)  # which only model-based drafters have


def test_a_drafter_that_heeds_no_budget_is_cut() -> None:
    """Kind: what goes beyond a sequence's last token is verified."""
    planner = Simulated([ScriptedDrafter([[5] * 9], obey_budget=False)], FLAT, 0.0)
    [tree] = planned(planner, sequence([1, 2], max_length=5)).trees
    assert tree.tokens == (2, 5, 5)


def test_nobody_is_asked_where_nothing_fits() -> None:
    """Kind: the last round of a completion, which can use no draft, waits for drafters."""
    drafter = ScriptedDrafter([[5] * 9])
    planner = Simulated([drafter], FLAT, 0.0)
    [tree] = planned(planner, sequence([1, 2], max_length=3)).trees
    assert (tree.num_draft_tokens, drafter.num_calls) == (0, 0)
    planned(planner, sequence([1, 2], max_length=4))
    assert drafter.num_calls == 1


def test_model_free_drafters_are_asked_for_what_may_pay() -> None:
    """Kind: a drafter grows a tree as large as the rest of the completion, of which a few nodes are used.

    With the root, 15 nodes are two of the eights that kernels take at once.
    """
    asked: list[int] = []

    class Asked(LookupDrafter):
        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
            asked.extend(budget.num_tokens for budget in budgets)
            return super().propose(sequences, budgets)

    planned(Simulated([Asked()], FLAT, 0.0), sequence([1, 2]), sequence([1, 2], id=1, max_length=5))
    assert asked == [15, 2]
