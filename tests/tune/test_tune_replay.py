"""Playing completions again: what is predicted is what would have been."""

from collections.abc import Sequence
from dataclasses import replace

import pytest
from helpers.drafting import View, budgets
from helpers.engines import make_engine, run, table_decoder
from helpers.traces import small_trace

from foredraft.config import DraftConfig
from foredraft.drafters import Drafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.recycle import RecycleDrafter
from foredraft.drafters.suffix import SuffixDrafter
from foredraft.errors import OptionError
from foredraft.planner.cost import Calibration
from foredraft.planner.step_costs import StepCosts
from foredraft.sampling import SamplingParams
from foredraft.testing import SimulatedClock, TableModel
from foredraft.trace import Header, Trace, from_json, to_json
from foredraft.tree import Budget, DraftTree
from foredraft.tune.record import WIDTH, RecordingDrafter, recording
from foredraft.tune.recorded import Recorded, read
from foredraft.tune.replay import RecordedDrafter, Replay, Replayed, replay_all

V = 12
MODEL = TableModel(2, V, seed=5)
PROMPTS = [[1, 2, 3], [7, 8] * 8, list(range(10))]
PARAMS = [SamplingParams(max_tokens=60, ignore_eos=True, temperature=t, seed=3) for t in (0.0, 0.7, 1.0)]
COSTS = {"": Calibration((1, 8, 16), (1.0, 1.6, 2.8)), "draft": Calibration((1, 64), (0.2, 1.0))}
HEADER = Header(foredraft="1", model="m", tokenizer="ab", drafters=("recording",), settings={}, machine={})


def draft_model() -> Drafter:
    decoder, _ = table_decoder(TableModel(1, V, seed=5))
    return ModelDrafter(decoder, vocab_size=V, name="draft")


def drafters() -> list[Drafter]:
    return [LookupDrafter(), SuffixDrafter(), RecycleDrafter(), draft_model()]


def traced(drafter: Drafter, num_draft_tokens: int, trace: Trace, prompts: Sequence[Sequence[int]] = PROMPTS) -> Trace:
    """Complete the prompts one after the other, as tuning does."""
    decoder, _ = table_decoder(MODEL)
    sink = trace
    if isinstance(drafter, RecordingDrafter):
        sink = recording(trace, drafter, COSTS)  # type: ignore[assignment]
    sink(HEADER if isinstance(drafter, RecordingDrafter) else replace(HEADER, drafters=(drafter.name,)))
    engine = make_engine(decoder, drafter, num_draft_tokens=num_draft_tokens, trace=sink)
    for prompt, params in zip(prompts, PARAMS, strict=False):
        run(engine, [prompt], params)
    return trace


def recorded() -> Trace:
    trace = Trace()
    traced(RecordingDrafter(drafters()), WIDTH, trace)
    assert trace.header is not None
    lines = [to_json(trace.header)]
    for request in trace.sequences.values():
        assert request.start is not None
        assert request.end is not None
        lines += [to_json(record) for record in (request.start, *request.rounds, request.end)]
    again = Trace()
    for line in lines:  # what is in a file is what is replayed
        again(from_json(line))
    return again


RECORDED = read(recorded())


def fixed(recorded: Recorded, drafter: str, num_draft_tokens: int) -> Replayed:
    config = DraftConfig(drafters=(drafter,), num_draft_tokens=num_draft_tokens, memory="none")
    return Replay(recorded).play(config)


def measured_length(trace: Trace) -> float:
    rounds = [record for request in trace.sequences.values() for record in request.rounds]
    return sum(len(record.emitted) for record in rounds) / len(rounds)


def test_a_recording_has_a_proposal_of_everyone_everywhere() -> None:
    assert RECORDED.drafters == ["lookup", "suffix", "recycle", "draft"]
    assert RECORDED.model_based == ("draft",)
    assert RECORDED.calibrations == COSTS
    assert RECORDED.num_rounds == RECORDED.num_tokens == 180
    assert all(len(known) == 180 - len(PROMPTS) for known in RECORDED.proposals.values())  # no room before the last
    assert [RECORDED.texts[i][: len(p)] for i, p in enumerate(PROMPTS)] == [tuple(p) for p in PROMPTS]


@pytest.mark.parametrize("num_draft_tokens", [1, 3, 8])
@pytest.mark.parametrize("name", ["lookup", "suffix", "draft"])
def test_what_follows_from_the_text_is_predicted_exactly(name: str, num_draft_tokens: int) -> None:
    predicted = fixed(RECORDED, name, num_draft_tokens)
    [drafter] = [drafter for drafter in drafters() if drafter.name == name]
    assert predicted.mean_acceptance_length == measured_length(traced(drafter, num_draft_tokens, Trace()))
    assert predicted.coverage == 1.0


@pytest.mark.parametrize("num_draft_tokens", [1, 3, 8])
def test_what_is_learned_from_round_to_round_is_predicted_closely(num_draft_tokens: int) -> None:
    """Its notes are the same; how much they are worth is learned after each round, and rounds are others."""
    predicted = fixed(RECORDED, "recycle", num_draft_tokens)
    measured = measured_length(traced(RecycleDrafter(), num_draft_tokens, Trace()))
    assert predicted.mean_acceptance_length == pytest.approx(measured, rel=0.05)


def test_time_is_that_of_passes_and_steps() -> None:
    found = fixed(replace(RECORDED, overhead_s=0.0), "draft", 2)
    plain_s = 180 * 1.0
    verify_s = found.num_rounds * (1.0 + 2 * 0.6 / 7)
    draft_s = found.num_rounds * 2 * 0.2
    assert found.speed_up == pytest.approx(plain_s / (verify_s + draft_s), rel=0.05)
    assert found.tokens_per_s == pytest.approx(found.speed_up)


def test_every_round_takes_its_overhead() -> None:
    free, dear = (fixed(replace(RECORDED, overhead_s=seconds), "suffix", 2) for seconds in (0.0, 1.0))
    assert 180 / dear.tokens_per_s == pytest.approx(180 / free.tokens_per_s + dear.num_rounds)


def test_a_draft_model_prefills_the_prompt_once() -> None:
    clock, steps = SimulatedClock(), StepCosts(COSTS["draft"])
    drafter = RecordedDrafter("draft", RECORDED, clock, steps)
    view = View(list(PROMPTS[1]), id=1, num_prompt_tokens=len(PROMPTS[1]))
    drafter.propose([view], budgets(2))
    prefill_s = steps.prefill_s(len(PROMPTS[1]) - 2)  # the last two ride along with the first step
    assert clock() == pytest.approx(prefill_s + 2 * 0.2)
    view.tokens.append(RECORDED.texts[1][len(PROMPTS[1])])
    drafter.propose([view], budgets(2))
    assert clock() == pytest.approx(prefill_s + 4 * 0.2)


def test_a_chain_goes_as_far_as_all_of_it_is_likely() -> None:
    chain = DraftTree.chain(3, (4, 5, 6, 7), (0.8, 0.8, 0.8, 0.8))
    known = replace(RECORDED, proposals={"draft": {(0, 3): chain}})
    drafter = RecordedDrafter("draft", known, SimulatedClock(), None)
    [tree] = drafter.propose([View([1, 2, 3], num_prompt_tokens=3)], [Budget(4, min_survival=0.6)])
    assert tree.tokens == (3, 4, 5, 6)  # 0.8 * 0.8 is enough to go on, and once more is not


def test_auto_of_good_drafters_is_as_good_as_the_best() -> None:
    found = {one.setting: one for one in replay_all(RECORDED, (1, 2, 4, 8))}
    best = max(one.speed_up for one in found.values() if ":" in one.setting)
    everything = found["lookup+suffix+recycle+draft"]
    assert everything.speed_up >= 0.9 * max(1.0, best)
    assert found["lookup"].speed_up >= 0.97
    assert "suffix:4 chain" in found
    assert "draft:4 chain" not in found


def test_an_ordinary_trace_can_be_replayed_as_far_as_it_goes() -> None:
    """Its proposals stand only where rounds began; chains of the way between are known from the round before."""
    trace = traced(draft_model(), 8, Trace())
    ordinary = read(trace)
    assert not ordinary.has_costs
    same = fixed(ordinary, "draft", 8)
    assert same.mean_acceptance_length == measured_length(trace)
    shorter = fixed(ordinary, "draft", 3)
    assert shorter.coverage > 0.8
    exact = fixed(RECORDED, "draft", 3)
    assert shorter.mean_acceptance_length == pytest.approx(exact.mean_acceptance_length, rel=0.1)
    assert shorter.mean_acceptance_length <= exact.mean_acceptance_length + 1e-9


def test_verified_nodes_are_told_apart_by_their_drafters() -> None:
    found = read(small_trace())
    assert set(found.drafters) == {"lookup", "suffix"}
    tree = found.proposals["lookup"][0, 2]
    assert (tree.tokens, tree.parents) == ((2, 7, 9), (-1, 0, 1))


def test_a_trace_without_completions_is_refused() -> None:
    trace = Trace()
    trace(HEADER)
    with pytest.raises(OptionError, match="holds no whole completion"):
        read(trace)


def test_a_trace_that_does_not_fit_together_is_refused() -> None:
    """Kind: a recording that lost a line, or was changed, is found out by a crash."""
    trace = traced(LookupDrafter(), 4, Trace(), PROMPTS[1:2])
    [request] = trace.sequences.values()
    del request.rounds[0]
    with pytest.raises(OptionError, match="does not fit"):
        read(trace)
    for damaged in (
        {"calibrations": 5},
        {"calibrations": {"": {"num_tokens": [1]}}},
        {"width": "x"},
        {"model_based": 5},
    ):
        whole = traced(LookupDrafter(), 4, Trace(), PROMPTS[1:2])
        assert whole.header is not None
        whole.header = replace(whole.header, settings={"recording": damaged})
        with pytest.raises(OptionError, match="damaged"):
            read(whole)
