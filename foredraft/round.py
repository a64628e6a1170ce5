"""START HERE: one round of speculative decoding.

      batch of sequences          Plan: trees                 logits                  accepted path
      planner.plan  ------------------------->  target.forward  -------->  rule.accept  ------------>  commit to cache
         |     ^                          (trees of running sequences and    (pure                        |
    drafter.propose                      chunks of prompts, in one pass)   arithmetic)                    |
         +------ drafter.observe, planner.observe(plan, result) <-----------------------------------------+

Every draft is a tree; *no draft* is a tree that holds only its root. So plain decoding is this same round with the
drafter that proposes nothing, and emits one token: the bonus. Prompts are computed beside the trees, chunk by chunk.
"""

import time
from collections.abc import Callable, Mapping
from collections.abc import Sequence as Several
from dataclasses import dataclass, field

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.cache import OutOfBlocksError
from foredraft.drafters.base import Outcome, PromptFeatures, no_draft
from foredraft.errors import ForedraftError
from foredraft.kernels.operations import Floats
from foredraft.planner.base import Plan, Planner, RoundResult, RoundTimes
from foredraft.sampling import SamplingParams
from foredraft.sampling.noise import FloatArray
from foredraft.sequence import Batch, PromptChunk, Sequence, num_remaining_tokens
from foredraft.target import Entry, ForwardResult, Target, usable_part
from foredraft.tree import DraftTree

Emit = Callable[[Sequence, tuple[int, ...], Several[Floats]], int]
"""Appends emitted tokens to a sequence and returns how many it kept: fewer than all where the sequence ends.

The last argument holds the row of logits [V] that each of the tokens was chosen from.
"""
SeePrompt = Callable[[Sequence, Floats], None]
"""Is shown the logits [S, V] after the tokens of a chunk whose logits were wanted, in order."""


@dataclass(frozen=True)
class RoundReport:
    """What a round did: the plan, what became of it, and what broke.

    failed: for each sequence that cannot go on, why. It has no outcome, or its chunk was not computed.
    """

    plan: Plan
    result: RoundResult
    failed: Mapping[int, Exception] = field(default_factory=dict)


def run_round(
    batch: Batch,
    planner: Planner,
    target: Target,
    emit: Emit,
    rule: AcceptanceRule = COUPLED,
    *,
    see_prompt: SeePrompt = lambda sequence, logits_SV: None,
    clock: Callable[[], float] = time.perf_counter,
) -> RoundReport:
    """Draft, verify, accept and commit once for every running sequence, and compute the chunks of prompts.

    What fails for one sequence, fails for it alone.
    """
    started = clock()
    plan = planner.plan(batch)
    trees, failed = _usable_trees(batch, plan, target, rule)
    drafted = clock()
    rows = _forward(_entries(batch, trees, failed), target, failed)
    verified = clock()
    outcomes: list[Outcome | None] = []
    for sequence, tree in zip(batch.running, trees, strict=True):
        outcome = None
        if sequence.id in rows:
            try:
                outcome = _accept(_NodeTarget(sequence, tree, rows[sequence.id], target), rule, emit)
            except Exception as error:  # of this sequence alone: its options leave no token, say
                failed[sequence.id] = error
        outcomes.append(outcome)
    for chunk in batch.chunks:
        if chunk.sequence.id in rows:
            try:
                _commit_chunk(chunk, rows[chunk.sequence.id], planner, target, see_prompt)
            except Exception as error:
                failed[chunk.sequence.id] = error
    times = RoundTimes(drafted - started, verified - drafted, clock() - verified)
    result = RoundResult(tuple(outcomes), times, batch.num_prefill_tokens)
    planner.observe(plan, result)
    return RoundReport(plan, result, failed)


def _usable_trees(
    batch: Batch, plan: Plan, target: Target, rule: AcceptanceRule
) -> tuple[list[DraftTree], dict[int, Exception]]:
    """What of the planned trees may reach the target, and sequences whose trees are wrong.

    The scheduler has seen to it that there are blocks for the roots; drafts take what is left.
    """
    trees: list[DraftTree] = []
    failed: dict[int, Exception] = {}
    for sequence, planned in zip(batch.running, plan.trees, strict=True):
        tree = planned
        if planned.num_draft_tokens or planned.tokens[0] != sequence.tokens[-1]:
            try:
                tree = _usable(sequence, planned, target, rule)
            except ForedraftError as error:
                failed[sequence.id] = error
        trees.append(tree)
    return trees, failed


def _usable(sequence: Sequence, planned: DraftTree, target: Target, rule: AcceptanceRule) -> DraftTree:
    if planned.tokens[0] != sequence.tokens[-1]:
        raise ForedraftError(f"the draft tree of sequence {sequence.id} has another root")
    remaining = num_remaining_tokens(sequence)
    tree = usable_part(rule.usable(planned), num_remaining=remaining, vocab_size=target.vocab_size)
    try:
        sequence.blocks.reserve(tree.num_nodes)
    except OutOfBlocksError:
        return no_draft(sequence)
    return tree


def _entries(batch: Batch, trees: Several[DraftTree], failed: Mapping[int, Exception]) -> dict[int, Entry]:
    """What each sequence adds to the pass, by its id."""
    entries = {
        sequence.id: Entry(sequence.blocks, tree)
        for sequence, tree in zip(batch.running, trees, strict=True)
        if sequence.id not in failed
    }
    for chunk in batch.chunks:
        entries[chunk.sequence.id] = Entry(chunk.sequence.blocks, chunk.tree, "all" if chunk.wants_logits else "none")
    return entries


@dataclass(frozen=True, eq=False)
class _Rows:
    """A sequence's part of the result of a pass: see `ForwardResult`."""

    logits_NV: Floats
    hidden_ND: Mapping[int, Floats]


def _forward(entries: Mapping[int, Entry], target: Target, failed: dict[int, Exception]) -> dict[int, _Rows]:
    """One pass over all entries. Where it fails, each is tried by itself, to find out whose fault it is.

    A row comes out the same, bit for bit, in a pass by itself.
    """
    try:
        result = target.forward(list(entries.values())) if entries else ForwardResult([])
        return {id: _Rows(result.logits_NV[i], result.hidden_of(i)) for i, id in enumerate(entries)}
    except Exception as error:
        if len(entries) == 1:
            failed[next(iter(entries))] = error
            return {}
    rows: dict[int, _Rows] = {}
    for id, entry in entries.items():
        try:
            result = target.forward([entry])
        except Exception as error:
            failed[id] = error
        else:  # copies: the next pass overwrites what this one returned
            hidden_ND = {layer: states.copy() for layer, states in result.hidden_of(0).items()}
            rows[id] = _Rows(result.logits_NV[0].copy(), hidden_ND)
    return rows


@dataclass(frozen=True, eq=False)
class _NodeTarget:
    """The target after each node of a sequence's tree, as acceptance rules see it."""

    sequence: Sequence
    tree: DraftTree
    rows: _Rows
    target: Target
    likeliest: dict[int, Several[int]] = field(default_factory=dict)

    @property
    def params(self) -> SamplingParams:
        return self.sequence.params

    @property
    def sample_index(self) -> int:
        return self.sequence.sample_index

    @property
    def position(self) -> int:
        return len(self.sequence.tokens)

    def token(self, node: int) -> int:
        chosen = self.target.tokens(self.rows.logits_NV[node], self.sequence, self._path(node))
        if len(chosen) > 1:
            self.likeliest[node] = chosen
        return chosen[0]

    def probs(self, node: int, params: SamplingParams) -> FloatArray:
        return self.target.probs(self.rows.logits_NV[node], self.sequence, self._path(node), params)

    def _path(self, node: int) -> list[int]:
        return [self.tree.tokens[above] for above in self.tree.path(node)]


def _accept(at: _NodeTarget, rule: AcceptanceRule, emit: Emit) -> Outcome:
    sequence, tree, rows = at.sequence, at.tree, at.rows
    accepted = rule.accept(tree, at)
    logits = [rows.logits_NV[node] for node in (0, *accepted.path)]
    num_kept = emit(sequence, accepted.tokens(tree), logits)
    # The last token kept is the next root: it is not computed yet, even where it was a node of the tree.
    at.target.commit(sequence.blocks, tree, accepted.path[: num_kept - 1])
    sequence.num_told_tokens = sequence.num_computed_tokens
    path, choices = accepted.path[:num_kept], accepted.choices[:num_kept]
    return Outcome(tree, path, rows.logits_NV, choices, at.likeliest, rows.hidden_ND)


def _commit_chunk(chunk: PromptChunk, rows: _Rows, planner: Planner, target: Target, see_prompt: SeePrompt) -> None:
    sequence, start = chunk.sequence, chunk.sequence.num_computed_tokens
    if chunk.wants_logits:
        see_prompt(sequence, rows.logits_NV)
    target.commit(sequence.blocks, chunk.tree, range(1, chunk.num_tokens))
    num_told = max(0, min(chunk.num_tokens, sequence.num_told_tokens - start))
    if num_told < chunk.num_tokens:
        hidden_ND = {layer: states[num_told:] for layer, states in rows.hidden_ND.items()}
        planner.begin(sequence, PromptFeatures(start + num_told, chunk.num_tokens - num_told, hidden_ND))
        sequence.num_told_tokens = sequence.num_computed_tokens
