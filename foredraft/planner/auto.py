"""The planner that never makes things slower: it drafts what is expected to save more time than it costs.

The model-free drafters are asked in every round, or in some where that brings less than it takes (see
`foredraft.planner.skipping`), and their trees laid over each other; each node gets its chance from what was seen of its
drafter so far, and the nodes that are worth their place in the pass are verified. A model-based drafter is asked where
its steps are expected to pay, too (see `foredraft.planner.model_based`).

After the round every proposal is compared with what the target said, whether it was verified or not. So a model-free
drafter that was of no use costs little, and is back as soon as the text suits it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from foredraft.drafters import merge_trees
from foredraft.drafters.base import Drafter, Outcome, PromptFeatures, SequenceView, no_draft
from foredraft.planner.base import Plan, RoundResult
from foredraft.planner.cost import CostModel
from foredraft.planner.explain import Explanation
from foredraft.planner.judging import Judge, Proposal
from foredraft.planner.loss_budget import MODEL_BASED_LOSS, MODEL_FREE_LOSS, LossBudget
from foredraft.planner.model_based import CandidatePlan, Considered, ModelBased
from foredraft.planner.profile import Learned
from foredraft.planner.rate import Rate
from foredraft.planner.round_costs import RoundCosts, tells_costs
from foredraft.planner.select import FIRST_LEAST_GAIN, LEAST_GAIN, Selection, select, survivals
from foredraft.planner.skipping import Skipping
from foredraft.planner.step_costs import StepCosts
from foredraft.planner.terms import Terms
from foredraft.sequence import Batch, num_remaining_tokens
from foredraft.tree import Budget, DraftTree

MAX_MODEL_FREE_NODES = 15
"""Most nodes that each model-free drafter is asked for: with the root, they are two of the passes that kernels like
best."""
BELIEVED_AT_ONCE = 0.5
"""Part of what a node must promise below which a drafter's own estimate of a token is believed at once."""
MAX_NODES = 48
"""Most drafted nodes of a round, of all sequences together."""
MARGIN = 0.03
"""Part by which a node must be expected to save more than it costs: expectations are never quite right."""

_NOBODY: frozenset[str] = frozenset()


@dataclass(frozen=True, kw_only=True)
class AutoPlan(Plan):
    """A plan of a round in which drafts were considered, and what is to be known when it is over.

    due: for each sequence, whether the model-free drafters were to be asked. proposals: of each sequence. gained_s: of
    each, what model-free drafts are expected to save. asking_s: seconds of asking the model-free drafters, and of
    planning with what they said; None: they were skipped. draft_s: seconds of a model-based drafter that count as spent
    on this round. considered: of the model-based drafters, if there are any.
    """

    terms: Terms
    due: tuple[bool, ...]
    proposals: tuple[Sequence[Proposal], ...]
    gained_s: tuple[float, ...]
    asking_s: float | None
    draft_s: float
    considered: Considered | None


@dataclass
class _Known:
    """What is known of a running sequence."""

    losses: LossBudget = field(default_factory=LossBudget)
    explanation: Explanation = field(default_factory=Explanation)


_NEW = LossBudget()


class AutoPlanner:
    """Chooses drafters, trees and lengths by expected tokens per second. See `Planner`.

    cost: of the target's passes. step_costs: of each model-based drafter, by name.
    clock: seconds since some moment; another one makes simulations possible.
    learned: what an earlier planner found out about drafters of these names.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        cost: CostModel,
        step_costs: Mapping[str, StepCosts],
        *,
        clock: Callable[[], float] = time.perf_counter,
        learned: Mapping[str, Learned] | None = None,
    ) -> None:
        self._clock = clock
        self._drafters = tuple(drafters)
        self._never_skipped = [drafter for drafter in drafters if drafter.spec.observes_skipped_rounds]
        self._model_free = [drafter for drafter in drafters if drafter.model_free]
        self._model_free_names = frozenset(name for drafter in self._model_free for name in drafter.names)
        self._costs = RoundCosts(cost)
        self._rate = Rate()
        self._judge = Judge(drafters)
        model_based = [drafter for drafter in drafters if not drafter.model_free]
        self._model_based = ModelBased(model_based, step_costs, cost, self._judge.survival)
        self._skipping = Skipping()
        self._known: dict[int, _Known] = {}
        for drafter in drafters:
            if learned and (known := learned.get(drafter.name)):
                self._judge.start_from(drafter.name, known.survivals())
                self._model_based.history.start_from(drafter.name, known)

    @property
    def learned(self) -> dict[str, Learned]:
        """What was found out about the drafters, for a later planner to start from."""
        history = self._model_based.history
        return {one.name: history.learned(one.name, self._judge.learned(one.name)) for one in self._drafters}

    @property
    def names(self) -> tuple[str, ...]:
        """See `Planner`."""
        return tuple(name for drafter in self._drafters for name in drafter.names)

    # --- before the pass ------------------------------------------------------------------------------------------

    def plan(self, batch: Batch) -> Plan:
        """See `Planner`. An `AutoPlan` where drafts were considered."""
        started, sequences = self._clock(), batch.running
        remaining = [num_remaining_tokens(sequence) for sequence in sequences]
        is_due = self._skipping.is_due
        due = [most > 0 and is_due(one.id) for one, most in zip(sequences, remaining, strict=True)]
        if any(due) or (self._model_based.active and any(remaining)):
            return self._considered(batch, remaining, due, started)
        num_sequences = len(sequences)
        expected_s = self._costs.round_s(batch) if sequences else None
        return Plan(
            sequences=sequences,
            trees=tuple([no_draft(sequence) for sequence in sequences]),
            num_tokens=tuple([len(sequence.tokens) for sequence in sequences]),
            asked=(_NOBODY,) * num_sequences,
            expected_tokens=(1.0,) * num_sequences,
            expected_s=expected_s,
            plain_s=None if batch.chunks else expected_s,
            spent_s=self._clock() - started,
        )

    def _considered(self, batch: Batch, remaining: Sequence[int], due: Sequence[bool], started: float) -> AutoPlan:
        """A plan for a round in which drafters are asked, or at least considered. started: when this began."""
        sequences, terms = batch.running, self._terms(batch, remaining)
        proposals: tuple[list[Proposal], ...] = tuple([] for _ in sequences)
        asked = [self._model_free_names if one_due else _NOBODY for one_due in due]
        asking_s, gained_s = None, (0.0,) * len(sequences)
        trees = self._model_free_trees(terms, due, proposals)
        selection, expected = self._select(terms, trees, spent_s=terms.overhead_s)
        if any(due):
            asking_s = self._clock() - started
            gained_s = tuple([gained / terms.rate for gained in selection.gained])
        considered, draft_s = None, 0.0
        if self._model_based.drafters:
            considered = self._consider(terms, selection)
            if (chosen := considered.chosen) is not None:
                drafted, considered, draft_s = self._asked(terms, chosen, considered, proposals)
                merged = [merge_trees(pair, ("", "")) for pair in zip(trees, drafted, strict=True)]
                spent_s = terms.overhead_s + self._clock() - started
                selection, expected = self._select(terms, merged, spent_s=spent_s, model_based=True)
                names = frozenset(chosen.drafter.names)
                asked = [one | names if most else one for one, most in zip(asked, remaining, strict=True)]
        return AutoPlan(
            sequences=sequences,
            trees=tuple(selection.trees),
            num_tokens=tuple([len(sequence.tokens) for sequence in sequences]),
            asked=tuple(asked),
            expected_tokens=tuple(expected),
            expected_s=selection.seconds,
            plain_s=None if batch.chunks else terms.token_s * len(sequences),
            spent_s=self._clock() - started,
            due=tuple(due),
            terms=terms,
            proposals=proposals,
            gained_s=gained_s,
            asking_s=asking_s,
            draft_s=draft_s,
            considered=considered,
        )

    def _terms(self, batch: Batch, remaining: Sequence[int]) -> Terms:
        overhead_s, alone_s, num_beside = self._costs.overhead_s, self._costs.passes(batch), batch.num_prefill_tokens
        token_s = (overhead_s + alone_s(len(remaining))) / len(remaining)
        plain = 1.0 / token_s
        rate = self._rate.at_least(plain) if self._goes_on(batch.running) else plain
        return Terms(
            sequences=batch.running,
            remaining=remaining,
            rate=rate * (1.0 + MARGIN),
            token_s=token_s,
            overhead_s=overhead_s,
            pass_s=(lambda number: alone_s(number + num_beside)) if num_beside else alone_s,
        )

    def _goes_on(self, sequences: Sequence[SequenceView]) -> bool:
        """Whether any of them was in a round before: otherwise other texts come now, at a speed of their own."""
        return any(sequence.id in self._known for sequence in sequences)

    def _model_free_trees(
        self, terms: Terms, due: Sequence[bool], proposals: Sequence[list[Proposal]]
    ) -> Sequence[DraftTree]:
        if not any(due) or not self._model_free:
            return [no_draft(sequence) for sequence in terms.sequences]
        num = terms.num_sequences
        least = BELIEVED_AT_ONCE * (terms.rate * (terms.pass_s(num + 1) - terms.pass_s(num)) + LEAST_GAIN)
        budgets = [
            Budget(min(MAX_MODEL_FREE_NODES, most) if one_due else 0, least=least)
            for most, one_due in zip(terms.remaining, due, strict=True)
        ]
        proposed = [self._judge.ask(drafter, terms.sequences, budgets, proposals) for drafter in self._model_free]
        if len(proposed) == 1:
            return proposed[0]
        names = [""] * len(proposed)
        return [merge_trees(trees, names) for trees in zip(*proposed, strict=True)]

    def _consider(self, terms: Terms, model_free: Selection) -> Considered:
        """Whether a model-based drafter is worth asking beside what is to be verified otherwise."""
        losses = [self._losses(sequence) for sequence in terms.sequences]
        demand = fmean([one.demand(terms.token_s, MODEL_BASED_LOSS) for one in losses])
        demanded = terms if demand == 1.0 else replace(terms, rate=demand * terms.rate)
        return self._model_based.consider(demanded, model_free, [one.saved_s for one in losses])

    def _asked(
        self, terms: Terms, chosen: CandidatePlan, considered: Considered, proposals: Sequence[list[Proposal]]
    ) -> tuple[list[DraftTree], Considered, float]:
        """Ask the drafter that was chosen: its trees, what asking came to, and the seconds that count as spent."""
        self._model_based.leave_out(chosen, terms)
        budgets, started = self._model_based.budgets(chosen, terms), self._clock()
        trees = self._judge.ask(chosen.drafter, terms.sequences, budgets, proposals)
        drafted = self._model_based.drafted(chosen, trees, self._clock() - started)
        # What was prefilled serves the rest of the completion. If it counted as lost, it would never be used.
        told = Considered(chosen, considered.gains, considered.exploration_s, drafted)
        return trees, told, drafted.seconds - drafted.prefill_s

    def _select(
        self, terms: Terms, trees: Sequence[DraftTree], *, spent_s: float, model_based: bool = False
    ) -> tuple[Selection, list[float]]:
        """What of the trees to verify, and the tokens expected of each. model_based: whether a model has a part in
        them."""
        promised = [
            self._promised(terms, sequence, tree, model_based=model_based)
            for sequence, tree in zip(terms.sequences, trees, strict=True)
        ]
        most = min(MAX_NODES, sum([tree.num_draft_tokens for tree in trees]))
        selected = select(trees, promised, terms.pass_s, rate=terms.rate, spent_s=spent_s, max_nodes=most)
        expected = [sum(survivals(tree, tree.confidence)) if tree.num_draft_tokens else 1.0 for tree in selected.trees]
        return Selection(selected.trees, sum(expected), selected.seconds, selected.gained), expected

    def _promised(self, terms: Terms, sequence: SequenceView, tree: DraftTree, *, model_based: bool) -> list[float]:
        """Chances of the nodes to be on the accepted path, as far as the sequence's loss budget lets them count."""
        if tree.num_draft_tokens == 0:
            return [1.0]
        losses = self._losses(sequence)
        demand = losses.demand(terms.token_s, MODEL_BASED_LOSS if model_based else MODEL_FREE_LOSS)
        least_gain = LEAST_GAIN if model_based or losses.saved_s > 0.0 else FIRST_LEAST_GAIN
        chances = survivals(tree, tree.confidence)
        least = sorted(chances)[-losses.max_nodes - 1] if tree.num_draft_tokens > losses.max_nodes else 0.0
        return [max(0.0, chance / demand - least_gain) if chance >= least else 0.0 for chance in chances]

    def _losses(self, sequence: SequenceView) -> LossBudget:
        known = self._known.get(sequence.id)
        return _NEW if known is None else known.losses

    # --- after the pass -------------------------------------------------------------------------------------------

    def observe(self, plan: Plan, result: RoundResult) -> None:
        """See `Planner`. Of a round beside prompt chunks, neither costs nor speed are learned."""
        if isinstance(plan, AutoPlan):
            self._observe_considered(plan, result)
        else:
            self._observe_skipped(plan, result)

    def _observe_skipped(self, plan: Plan, result: RoundResult) -> None:
        """After a round in which nobody was asked: there are others to learn from, and here time matters most."""
        num_emitted, goes_on = 0, False
        for sequence, num_before, outcome in zip(plan.sequences, plan.num_tokens, result.outcomes, strict=True):
            if outcome is not None:
                known = self._known.get(sequence.id)
                if known is None:
                    known = self._known[sequence.id] = _Known()
                else:
                    goes_on = True
                num_emitted += len(sequence.tokens) - num_before
                known.losses.num_tokens += len(sequence.tokens) - num_before
                known.explanation.add(outcome, ())
                self._skipping.count_skipped(sequence.id)
        if not num_emitted:  # all have failed: nothing is known of the pass but its time
            return
        total_s = result.times.total
        if not goes_on:
            self._rate.start_anew()
        if tells_costs(result):
            self._rate.observe(num_emitted, total_s)
            self._costs.observe_overhead(result.times)
        self._model_based.observe(plan.sequences, None, total_s)
        self._tell(self._never_skipped, plan, result)

    @staticmethod
    def _tell(drafters: Sequence[Drafter], plan: Plan, result: RoundResult) -> None:
        if drafters:
            told = [pair for pair in zip(plan.sequences, result.outcomes, strict=True) if pair[1] is not None]
            for drafter in drafters:
                drafter.observe([sequence for sequence, _ in told], [outcome for _, outcome in told if outcome])

    def _observe_considered(self, plan: AutoPlan, result: RoundResult) -> None:
        started = self._clock()
        outcomes = [(index, outcome) for index, outcome in enumerate(result.outcomes) if outcome is not None]
        if not outcomes:  # all have failed: nothing is known of the pass but its time
            return
        if not self._goes_on(plan.sequences):
            self._rate.start_anew()
        if tells_costs(result):
            num_emitted = sum([len(one.tokens) for one in plan.sequences]) - sum(plan.num_tokens)
            self._rate.observe(num_emitted, result.times.total)
            self._costs.observe(plan, result)
        self._model_based.observe(plan.sequences, plan.considered, result.times.total)
        self._count(plan, outcomes)
        asked = plan.asking_s is not None
        self._tell(self._drafters if asked else self._never_skipped, plan, result)
        if plan.asking_s is not None:
            num_asked = sum([plan.due[index] for index, _ in outcomes])
            self._skipping.count_cost((plan.asking_s + self._clock() - started) / max(1, num_asked))

    def _count(self, plan: AutoPlan, outcomes: Sequence[tuple[int, Outcome]]) -> None:
        """What the round brought each sequence, what it cost it, and what is learned of the drafters."""
        terms = plan.terms
        # What a node and a sequence's draft cost; each sequence answers for its own.
        num_nodes = sum([outcome.tree.num_nodes for _, outcome in outcomes])
        num_drafted = sum([outcome.num_draft_tokens > 0 for _, outcome in outcomes])
        node_s = (terms.pass_s(num_nodes) - terms.pass_s(len(outcomes))) / max(1, num_nodes - len(outcomes))
        draft_s = plan.draft_s / max(1, num_drafted)
        for index, outcome in outcomes:
            sequence = plan.sequences[index]
            known = self._known.get(sequence.id)
            if known is None:
                known = self._known[sequence.id] = _Known()
            emitted = sequence.tokens[plan.num_tokens[index] :]
            known.losses.count(
                num_emitted=len(emitted),
                num_drafted=outcome.num_draft_tokens,
                token_s=terms.token_s,
                extra_s=(draft_s + node_s * outcome.num_draft_tokens) if outcome.num_draft_tokens else 0.0,
            )
            if plan.due[index]:
                self._skipping.count_gain(sequence.id, plan.gained_s[index], terms.token_s)
            else:
                self._skipping.count_skipped(sequence.id)
            for proposal in plan.proposals[index]:
                accepted = self._judge.learn(sequence, proposal, emitted)
                if not proposal.drafter.model_free:
                    for one in accepted:
                        self._model_based.history.learn(proposal.drafter.name, sequence, accepted=one)
            known.explanation.add(outcome, [proposal.drafter.name for proposal in plan.proposals[index]])

    # --- sequences ------------------------------------------------------------------------------------------------

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """See `Planner`."""
        for drafter in self._drafters:
            drafter.begin(sequence, features)

    def end(self, sequence_id: int) -> None:
        """See `Planner`."""
        self._known.pop(sequence_id, None)
        self._skipping.end(sequence_id)
        self._judge.end(sequence_id)
        self._model_based.history.end(sequence_id)
        for drafter in self._drafters:
            drafter.end(sequence_id)

    def reset_prefix_cache(self) -> None:
        """See `Planner`."""
        for drafter in self._drafters:
            drafter.reset_prefix_cache()

    def reason(self, sequence_id: int) -> str:
        """See `Planner`. With what drafters have to say against themselves, if anything."""
        known = self._known.get(sequence_id)
        if known is None:
            return "auto: ended before its first round"
        problems = [drafter.problem for drafter in self._drafters if drafter.problem]
        return known.explanation.words(self.names, [*self._model_based.remarks(sequence_id), *problems])
