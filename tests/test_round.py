"""One round, looked at from outside: what is kept, counted, committed and told to the drafter."""

from collections.abc import Callable
from collections.abc import Sequence as Several

import numpy as np
import pytest
from helpers.engines import VOCAB_SIZE, table_decoder, tiny_decoder

from foredraft.drafters.base import Drafter, Outcome, PromptFeatures, SequenceView
from foredraft.errors import ForedraftError
from foredraft.kernels.operations import Floats
from foredraft.planner import FixedPlanner
from foredraft.round import RoundReport, run_round
from foredraft.sampling import SamplingParams
from foredraft.sequence import Batch, PromptChunk, Sequence
from foredraft.target import Entry, ForwardResult, ModelTarget
from foredraft.testing import ScriptedDrafter, TableModel
from foredraft.tree import DraftTree

V = 40
MODEL = TableModel(2, V, seed=5)
DECODER, FORWARD = table_decoder(MODEL)
TARGET = ModelTarget(DECODER, V)
PROMPT = [1, 2, 3]
SAID = MODEL.generate(PROMPT, SamplingParams(), 20)
WRONG = (SAID[0] + 1) % V


def sequence(id: int = 0, prompt: Several[int] = PROMPT, max_length: int = 100, *, num_computed: int = -1) -> Sequence:
    """A sequence of which all but the last token are computed, or as many as are asked for."""
    blocks = DECODER.cache.open()
    DECODER.prefill(blocks, prompt[:num_computed])
    return Sequence(id, list(prompt), len(prompt), SamplingParams(seed=0), max_length, blocks)


def emitting(keep: int = 99) -> Callable[[Sequence, tuple[int, ...], Several[Floats]], int]:
    def emit(sequence: Sequence, tokens: tuple[int, ...], logits: Several[Floats]) -> int:
        for token, logits_V in zip(tokens, logits, strict=True):
            np.testing.assert_array_equal(logits_V, MODEL.logits(sequence.tokens))
            sequence.tokens.append(token)
        del sequence.tokens[len(sequence.tokens) - max(0, len(tokens) - keep) :]
        return min(keep, len(tokens))

    return emit


def play(drafter: Drafter, sequences: list[Sequence], *, keep: int = 99, budget: int = 8) -> list[tuple[int, int]]:
    """Drafted and accepted tokens of each sequence."""
    report = run_round(Batch(tuple(sequences)), FixedPlanner(drafter, budget), TARGET, emitting(keep))
    assert report.failed == {}
    for one in sequences:
        assert one.num_computed_tokens == len(one.tokens) - 1
    outcomes = [outcome for outcome in report.result.outcomes if outcome is not None]
    assert len(outcomes) == len(sequences)
    return [(one.num_draft_tokens, one.num_accepted_tokens) for one in outcomes]


class Tree(ScriptedDrafter):
    """Proposes a fixed tree below whatever the root is."""

    def __init__(self, tokens: tuple[int, ...], parents: tuple[int, ...]) -> None:
        super().__init__([])
        self._tokens, self._parents = tokens, parents

    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        return DraftTree((sequence.tokens[-1], *self._tokens), (-1, *self._parents))


def test_right_half_right_and_wrong_chains() -> None:
    """Kind: after a rejection the next token is taken from the wrong row, or a position too many stays cached."""
    for chain, accepted in [
        ([], 0),
        ([WRONG], 0),
        ([WRONG, SAID[1]], 0),
        (SAID[:1], 1),
        ([*SAID[:3], WRONG, SAID[4]], 3),
        (SAID[:8], 8),
    ]:
        one = sequence()
        [result] = play(ScriptedDrafter([chain]), [one])
        assert result == (len(chain), accepted)
        assert one.tokens == [*PROMPT, *SAID[: accepted + 1]]
        one.blocks.close()


def test_a_chain_given_as_a_tree_is_a_chain() -> None:
    """Kind: a tree that is really a chain is refused, or computed in another way."""
    one, two = sequence(0), sequence(1)
    [first] = play(ScriptedDrafter([SAID[:4]]), [one])
    [second] = play(Tree(tuple(SAID[:4]), (0, 1, 2, 3)), [two])
    assert (first, one.tokens) == (second, two.tokens)


def test_branches_move_to_where_they_belong() -> None:
    """Kind: the accepted branch stays in the slots of the tree, so that later tokens see the wrong ones."""
    a, b, c = SAID[:3]
    tokens = (WRONG, a, WRONG, (b + 1) % V, b, WRONG, c)
    one = sequence()
    [result] = play(Tree(tokens, (0, 0, 1, 2, 2, 3, 5)), [one])
    assert result == (7, 3)
    assert one.tokens == [*PROMPT, *SAID[:4]]
    for _ in range(3):  # the table reads the cache: it would show what was left behind
        play(ScriptedDrafter([]), [one])
    assert one.tokens == [*PROMPT, *SAID[:7]]


def test_five_shapes_one_text() -> None:
    a, b, c = SAID[:3]
    for tokens, parents in [
        ((), ()),
        ((a, b, c), (0, 1, 2)),
        ((WRONG, a), (0, 0)),
        ((a, WRONG, b, WRONG), (0, 0, 1, 1)),
        ((WRONG, a, b, (c + 1) % V, c), (0, 0, 2, 3, 3)),
    ]:
        one = sequence()
        play(Tree(tokens, parents), [one])
        while len(one.tokens) < 14:
            play(ScriptedDrafter([]), [one])
        assert one.tokens == [*PROMPT, *SAID[:11]]


def test_a_sequence_may_end_anywhere_in_a_round() -> None:
    """Kind: tokens accepted beyond the end stay in the cache."""
    for keep in range(1, 6):
        one = sequence()
        [result] = play(ScriptedDrafter([SAID[:4]]), [one], keep=keep)
        assert result == (4, min(4, keep))
        assert one.tokens == [*PROMPT, *SAID[:keep]]


def test_the_drafter_is_asked_only_where_something_fits() -> None:
    drafter = ScriptedDrafter([SAID[:4]])
    one, two = sequence(0, max_length=4), sequence(1, max_length=4)
    assert play(drafter, [one, two]) == [(0, 0)] * 2
    assert drafter.num_calls == 0
    assert drafter.observed == {0: (*PROMPT, SAID[0]), 1: (*PROMPT, SAID[0])}
    three, four = sequence(2, max_length=4), sequence(3, max_length=6)
    assert play(ScriptedDrafter([SAID[:4]], obey_budget=False), [three, four]) == [(0, 0), (2, 2)]


def test_ragged_drafts_keep_to_their_sequences() -> None:
    """Kind: rows are taken from a neighbour when one sequence has no draft."""
    prompts = [[i, i + 1, i + 2] for i in range(6)]
    said = [MODEL.generate(prompt, SamplingParams(), 9) for prompt in prompts]
    script = {i: [tokens[: i % 4]] for i, tokens in enumerate(said)}
    sequences = [sequence(i, prompt) for i, prompt in enumerate(prompts)]
    results = play(ScriptedDrafter(script), sequences)
    assert results == [(i % 4, i % 4) for i in range(6)]
    for one, tokens in zip(sequences, said, strict=True):
        assert one.tokens[3:] == tokens[: one.id % 4 + 1]


# --- chunks of prompts beside the trees -----------------------------------------------------------------------------


class Listening(ScriptedDrafter):
    """Notes what it is told of tokens outside of rounds, and the outcomes."""

    def __init__(self, rounds: list[list[int]]) -> None:
        super().__init__(rounds)
        self.told: list[tuple[int, int, int]] = []
        self.outcomes: list[Outcome] = []

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        super().begin(sequence, features)
        self.told.append((sequence.id, features.start, features.num_tokens))

    def observe(self, sequences: Several[SequenceView], outcomes: Several[Outcome]) -> None:
        super().observe(sequences, outcomes)
        self.outcomes.extend(outcomes)


def run_both(running: list[Sequence], chunks: list[PromptChunk], drafter: Drafter) -> RoundReport:
    return run_round(Batch(tuple(running), tuple(chunks)), FixedPlanner(drafter, 8), TARGET, emitting())


def test_trees_and_chunks_share_one_pass() -> None:
    """Kind: rows of a prompt are taken for those of a tree, or a prompt's chunk for the whole of it."""
    prompt = [*range(30)]
    one, waiting, other = sequence(0), sequence(1, prompt, num_computed=5), sequence(2, [7, 8])
    drafter = Listening([SAID[:4]])
    before = FORWARD.num_passes
    report = run_both([one, other], [PromptChunk(waiting, 20)], drafter)
    assert FORWARD.num_passes == before + 1
    assert report.result.num_prefill_tokens == 20
    assert (waiting.num_computed_tokens, waiting.num_told_tokens, waiting.tokens) == (25, 25, prompt)
    assert drafter.told == [(1, 5, 20)]
    assert one.tokens == [*PROMPT, *SAID[:5]]
    run_both([one, other], [PromptChunk(waiting, 4)], drafter)
    assert drafter.told == [(1, 5, 20), (1, 25, 4)]
    run_both([one, other, waiting], [], drafter)
    assert waiting.tokens == [*prompt, *MODEL.generate(prompt, SamplingParams(), 1)]
    assert [len(one.tokens) - 3, len(other.tokens) - 2] == [7, 3]


def test_chunks_of_what_was_told_before_are_not_told_again() -> None:
    """Kind: a sequence that was preempted is computed anew, and drafters take it for new tokens."""
    again = sequence(0, [*range(30)], num_computed=0)
    again.num_told_tokens = 12
    drafter = Listening([])
    for num_tokens in (7, 10, 5):
        run_both([], [PromptChunk(again, num_tokens)], drafter)
    assert drafter.told == [(0, 12, 5), (0, 17, 5)]


def test_logits_of_a_prompt_are_shown_where_they_are_wanted() -> None:
    seen: list[tuple[int, int, int]] = []

    def see_prompt(sequence: Sequence, logits_SV: Floats) -> None:
        start = sequence.num_computed_tokens
        seen.append((sequence.id, start, len(logits_SV)))
        for place, logits_V in enumerate(logits_SV, start=start + 1):
            np.testing.assert_array_equal(logits_V, MODEL.logits(sequence.tokens[:place]))

    one, two = sequence(0, [*range(20)], num_computed=2), sequence(1, [*range(20)], num_computed=3)
    chunks = (PromptChunk(one, 6, wants_logits=True), PromptChunk(two, 9))
    planner = FixedPlanner(ScriptedDrafter([]), 0)
    run_round(Batch((), chunks), planner, TARGET, emitting(), see_prompt=see_prompt)
    assert seen == [(0, 2, 6)]


# --- what a round returns -------------------------------------------------------------------------------------------


def test_the_plan_and_the_result_tell_what_was_done() -> None:
    """Kind: what became of a round is told under the place of another sequence."""
    ticks = iter([10.0, 11.0, 13.0, 16.0])
    sequences = [sequence(0), sequence(1, [5, 6])]
    drafter = Listening([SAID[:2]])
    planner = FixedPlanner(drafter, 4)
    batch = Batch(tuple(sequences))
    report = run_round(batch, planner, TARGET, emitting(), clock=lambda: next(ticks))
    assert report.plan.sequences == batch.running
    assert report.plan.num_tokens == (3, 2)
    assert [tree.tokens[0] for tree in report.plan.trees] == [3, 6]
    assert report.plan.asked == (frozenset({"scripted"}),) * 2
    times = report.result.times
    assert (times.draft, times.verify, times.accept, times.total) == (1.0, 2.0, 3.0, 6.0)
    assert list(report.result.outcomes) == drafter.outcomes
    assert [outcome.tree for outcome in drafter.outcomes] == list(report.plan.trees)


def test_of_greedy_text_the_likeliest_tokens_are_told_of_every_node_that_was_looked_at() -> None:
    drafter = Listening([[SAID[0], WRONG]])
    play(drafter, [sequence()])
    [outcome] = drafter.outcomes
    assert outcome.path == (1,)
    assert sorted(outcome.likeliest) == [0, 1]  # where the target left the tree, and before
    for node, tokens in ((0, PROMPT), (1, [*PROMPT, SAID[0]])):
        assert outcome.likeliest[node][:3] == np.argsort(-MODEL.logits(tokens), kind="stable")[:3].tolist()
        np.testing.assert_array_equal(outcome.logits_NV[node], MODEL.logits(tokens))


def test_a_draft_that_finds_no_room_in_the_cache_is_left_out() -> None:
    """Kind: drafts take the last block, and a sequence that has one for its root fails."""
    decoder, _ = table_decoder(MODEL)
    decoder.resize_cache(16)
    target = ModelTarget(decoder, V)
    prompt = [*range(12)]
    blocks = decoder.cache.open()
    decoder.prefill(blocks, prompt[:-1])
    one = Sequence(0, prompt, 12, SamplingParams(seed=0), 100, blocks)
    said = MODEL.generate(prompt, SamplingParams(), 9)
    planner = FixedPlanner(ScriptedDrafter([said[:5], said[1:4]]), 8)
    for num_drafted in (0, 3):
        report = run_round(Batch((one,)), planner, target, emitting())
        assert report.failed == {}
        [outcome] = report.result.outcomes
        assert outcome is not None
        assert outcome.num_draft_tokens == outcome.num_accepted_tokens == num_drafted
    assert one.tokens == [*range(12), *said[:5]]


# --- what breaks, breaks for one ------------------------------------------------------------------------------------


def test_a_tree_with_another_root_fails_its_sequence_alone() -> None:
    class Confused(ScriptedDrafter):
        def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
            return DraftTree.chain(39 if sequence.id else sequence.tokens[-1], (1,))

    sequences = [sequence(0), sequence(1), sequence(2, [5, 6])]
    drafter = Confused([])
    report = run_round(Batch(tuple(sequences[:2])), FixedPlanner(drafter, 2), TARGET, emitting())
    assert list(report.failed) == [1]
    assert isinstance(report.failed[1], ForedraftError)
    assert [outcome is None for outcome in report.result.outcomes] == [False, True]
    assert (len(sequences[0].tokens), sequences[1].tokens) == (4, PROMPT)
    assert drafter.observed.keys() == {0}


@pytest.mark.parametrize("bad", [0, 1, 2])
def test_a_pass_that_fails_is_tried_again_one_by_one(bad: int) -> None:
    """Kind: nobody can tell whose fault it was, so all end; or those tried again see rows of each other."""
    sequences = [sequence(0), sequence(1, [5, 6]), sequence(2, [*range(20)], num_computed=3)]
    chunk = PromptChunk(sequences[2], 9, wants_logits=True)

    class Broken(ModelTarget):
        def forward(self, entries: Several[Entry]) -> ForwardResult:
            if any(entry.blocks is sequences[bad].blocks for entry in entries):
                raise MemoryError("no memory for this one")
            return super().forward(entries)

    shown: list[int] = []

    def see_prompt(sequence: Sequence, logits_SV: Floats) -> None:
        shown.append(len(logits_SV))
        for place, logits_V in enumerate(logits_SV, start=4):
            np.testing.assert_array_equal(logits_V, MODEL.logits([*range(place)]))

    drafter = Listening([SAID[:2]])
    batch = Batch(tuple(sequences[:2]), (chunk,))
    planner = FixedPlanner(drafter, 4)
    report = run_round(batch, planner, Broken(DECODER, V), emitting(), see_prompt=see_prompt)
    assert [(id, str(error)) for id, error in report.failed.items()] == [(bad, "no memory for this one")]
    assert [outcome is None for outcome in report.result.outcomes] == [bad == 0, bad == 1]
    assert sequences[0].tokens == ([*PROMPT] if bad == 0 else [*PROMPT, *SAID[:3]])
    assert sequences[1].tokens[:3] == [5, 6, *([] if bad == 1 else MODEL.generate([5, 6], SamplingParams(), 1))]
    assert (sequences[2].num_computed_tokens, shown) == ((3, []) if bad == 2 else (12, [9]))
    assert drafter.observed.keys() == {0, 1} - {bad}
    assert drafter.told == ([] if bad == 2 else [(2, 3, 9)])


def test_rows_of_passes_made_one_by_one_are_kept() -> None:
    """Kind: each pass overwrites the logits of the one before, and all get those of the last."""
    decoder = tiny_decoder()

    class OneAtATime(ModelTarget):
        def forward(self, entries: Several[Entry]) -> ForwardResult:
            if len(entries) > 1:
                raise MemoryError
            return super().forward(entries)

    rows: dict[int, list[Floats]] = {}

    def emit(sequence: Sequence, tokens: tuple[int, ...], logits: Several[Floats]) -> int:
        rows[sequence.id] = [logits_V.copy() for logits_V in logits]
        sequence.tokens.extend(tokens)
        return len(tokens)

    sequences = []
    for id, prompt in enumerate(([1, 2, 3], [4, 5], [6, 7, 8, 9])):
        blocks = decoder.cache.open()
        decoder.prefill(blocks, prompt[:-1])
        sequences.append(Sequence(id, list(prompt), len(prompt), SamplingParams(seed=0), 100, blocks))
    drafter = ScriptedDrafter({0: [[10, 11]], 1: [[]], 2: [[12]]})
    target = OneAtATime(decoder, VOCAB_SIZE)
    report = run_round(Batch(tuple(sequences)), FixedPlanner(drafter, 2), target, emit)
    assert report.failed == {}
    for one in sequences:
        whole = tiny_decoder().logits(one.tokens[:-1])[one.num_prompt_tokens - 1 :, :VOCAB_SIZE]
        np.testing.assert_array_equal(np.stack(rows[one.id]), whole)
