"""Rounds over a known text: the real round on it, in the time that is said."""

import pytest

from foredraft.accept import make_rule
from foredraft.bench.simulate import KnownTarget, known_sequence, simulate, simulate_round
from foredraft.drafters.none import NoDrafter
from foredraft.planner import FixedPlanner
from foredraft.planner.cost import Calibration, CostModel
from foredraft.round import run_round
from foredraft.sampling import SamplingParams
from foredraft.sequence import Batch, PromptChunk, Status
from foredraft.testing import OracleDrafter, ScriptedDrafter, SimulatedClock
from foredraft.tree import DraftTree

TEXT = [5, 6, 7, 8, 9, 10, 11, 12, 13, 14]
CALIBRATION = Calibration((1, 2), (1.0, 1.5), per_position=0.01, per_position_token=0.001)
COST = CostModel(CALIBRATION).seconds


def test_a_round_emits_what_is_right_and_the_bonus() -> None:
    drafter, clock = ScriptedDrafter([[7, 8, 3], [], [12, 13, 14]]), SimulatedClock()
    sequence, target = known_sequence(0, TEXT, 2), KnownTarget(COST, clock)
    planner, batch = FixedPlanner(drafter, 3), Batch((sequence,))
    first = simulate_round(batch, planner, target, clock, overhead_s=0.25)
    assert sequence.tokens == TEXT[:5]
    assert sequence.num_computed_tokens == 4
    assert (first.num_tokens, first.num_drafted, first.num_accepted) == (3, (3,), (2,))
    assert first.times.verify == 1.0 + 3 * 0.5 + 0.01 * 2 + 0.001 * 2 * 4
    assert (first.times.draft, first.times.accept) == (0.0, 0.25)
    assert clock() == first.times.total
    assert drafter.observed == {0: tuple(TEXT[:5])}
    simulate_round(batch, planner, target, clock)
    assert sequence.tokens == TEXT[:6]


class Tree(ScriptedDrafter):
    """Proposes a tree whose second branch is right."""

    def draft(self, sequence, budget):  # type: ignore[no-untyped-def]
        return DraftTree((sequence.tokens[-1], 99, 7, 98, 8), (-1, 0, 0, 1, 2))


def test_trees_are_walked_by_the_rule() -> None:
    clock, sequence = SimulatedClock(), known_sequence(0, TEXT, 2)
    one = simulate_round(Batch((sequence,)), FixedPlanner(Tree([]), 4), KnownTarget(COST, clock), clock)
    assert (one.num_drafted, one.num_accepted, sequence.tokens) == ((4,), (2,), TEXT[:5])


def test_nothing_is_emitted_or_drafted_beyond_the_end() -> None:
    sequence, clock = known_sequence(0, TEXT, 2), SimulatedClock()
    planner = FixedPlanner(OracleDrafter([*TEXT[2:], 99, 99]), 5)
    simulated = simulate([sequence], planner, COST, clock)
    assert sequence.tokens == TEXT
    assert (sequence.status, sequence.finish_reason) == (Status.FINISHED, "length")
    assert [one.num_drafted for one in simulated.rounds] == [(5,), (1,)]
    assert simulated.num_tokens == 8
    assert simulated.mean_acceptance_length == 4
    assert simulated.tokens_per_s == 8 / clock()


def test_sequences_share_rounds_as_many_as_may_run() -> None:
    drafter = OracleDrafter(TEXT[2:])
    sequences = [known_sequence(index, TEXT, 2) for index in range(3)]
    simulated = simulate(sequences, FixedPlanner(drafter, 1), COST, SimulatedClock(), max_running=2)
    assert [len(one.num_drafted) for one in simulated.rounds] == [2] * 4 + [1] * 4
    assert simulated.num_sequence_rounds == 12
    assert drafter.ended == [0, 1, 2]
    assert all(sequence.tokens == TEXT for sequence in sequences)


def test_drafters_hear_of_prompts() -> None:
    """Kind: a drafter that keeps what it is told of prompts knows less here than in an engine."""
    told = []

    class Told(ScriptedDrafter):
        def begin(self, sequence, features):  # type: ignore[no-untyped-def]
            told.append((sequence.id, features.start, features.num_tokens))

    simulate([known_sequence(4, TEXT, 3)], FixedPlanner(Told([]), 2), COST, SimulatedClock())
    assert told == [(4, 0, 2)]


def test_a_pass_may_carry_prompts_too() -> None:
    clock = SimulatedClock()
    target, running, waiting = KnownTarget(COST, clock), known_sequence(0, TEXT, 2), known_sequence(1, TEXT, 1)
    waiting.tokens = TEXT[:6]
    batch = Batch((running,), (PromptChunk(waiting, 5),))
    one = simulate_round(batch, FixedPlanner(NoDrafter(), 0), target, clock)
    assert one.times.verify == pytest.approx(COST(6, 2 + 5 * 1, 3))
    assert (running.num_computed_tokens, waiting.num_computed_tokens) == (2, 5)


def test_the_estimate_is_what_planners_said() -> None:
    """Of two sequences, a plain round emits two tokens."""
    sequences = [known_sequence(index, TEXT, 2) for index in range(2)]
    planner = FixedPlanner(OracleDrafter(TEXT[2:]), 3, cost=CostModel(Calibration((1,), (1.0,))))
    simulated = simulate(sequences, planner, lambda number, *_: 4.0, SimulatedClock(), max_running=2)
    by_hand = sum(one.num_tokens * one.plain_s / 2 for one in simulated.rounds if one.plain_s)
    assert simulated.estimated_speedup == pytest.approx(by_hand / simulated.seconds)
    silent = simulate([known_sequence(0, TEXT, 2)], FixedPlanner(NoDrafter(), 0), COST, SimulatedClock())
    assert [one.plain_s for one in silent.rounds] == [None] * 8


def test_what_breaks_is_raised() -> None:
    """Kind: a simulation goes on without a sequence that failed, and its figures are of something else."""
    clock, sequence = SimulatedClock(), known_sequence(0, TEXT, 2, SamplingParams(temperature=1.0, seed=0))
    with pytest.raises(NotImplementedError):
        KnownTarget(COST, clock).probs(None, sequence, (), sequence.params)  # type: ignore[arg-type]
    report = run_round(
        Batch((sequence,)),
        FixedPlanner(OracleDrafter(TEXT[2:]), 3),
        KnownTarget(COST, clock),
        lambda sequence, tokens, logits: len(tokens),
        make_rule("rejection"),
    )
    assert isinstance(report.failed[0], NotImplementedError)

    class Wrong(ScriptedDrafter):
        def draft(self, sequence, budget):  # type: ignore[no-untyped-def]
            return DraftTree.chain(1)

    with pytest.raises(Exception, match="another root"):
        simulate_round(
            Batch((known_sequence(1, TEXT, 2),)), FixedPlanner(Wrong([]), 1), KnownTarget(COST, clock), clock
        )
