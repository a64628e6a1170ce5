"""When a model-based drafter is worth asking.

Before it is asked, only its past says how good it is: its acceptance rate. From that follows what chains of 1, 2, ...
tokens would bring, and what they cost is known. It is asked where the best of them beats what the model-free drafters
propose. Where it has uncached tokens, the gain over the rest of the completion must pay for their prefill; how long
that rest is, earlier completions say.

A drafter that is not asked says nothing about how good it would be now. So a part of the time goes into an exploration
budget, and when that is enough for a short chain it is tried.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace

from foredraft.drafters.base import Drafter, SequenceView
from foredraft.planner.cost import CostModel
from foredraft.planner.history import History, num_output_tokens
from foredraft.planner.select import LEAST_GAIN, Selection
from foredraft.planner.step_costs import StepCosts
from foredraft.planner.survival import Survival
from foredraft.planner.terms import Terms
from foredraft.tree import Budget, DraftTree

MAX_CHAIN = 12
EXPLORATION_PART = 0.01
"""Part of all time that exploration may take."""
MOST_LOST = 0.02
"""Part of a completion's time that prefill or exploration may take in vain, besides what drafts have won for it."""
NUM_EXPLORED_TOKENS = 2
MOST_FIRST_TRIES = 4
"""Times that a drafter of which no token was ever seen is tried outside the budget: it may have none to show."""
NUM_AT_END, MANY_UNCACHED = 24, 32
"""Tokens at the end of a text that are prefilled, where so many or more are uncached and all of them are too dear."""
CAUTION = 0.75
"""Part of the expected gain that prefill may cost: a completion may end sooner than expected."""
MOST_DEMANDED = 0.95
"""A token that is likelier than this to be accepted is followed by another one, whatever that costs."""


@dataclass(frozen=True)
class CandidatePlan:
    """The best that a drafter is expected to do in a round.

    num_tokens: length of the chain. tokens: expected, bonus included. value: tokens gained at the usual rate, prefill
    apart. prefill_s: of the uncached tokens, whose numbers are `uncached`. late: whether of long uncached texts only
    the end is prefilled. exploring: whether it is asked in order to know it better.
    """

    drafter: Drafter
    num_tokens: int
    tokens: float
    value: float
    prefill_s: float
    uncached: Sequence[int]
    late: bool = False
    exploring: bool = False


@dataclass(frozen=True)
class Drafted:
    """What asking a drafter took. prefill_s: the part of the seconds that was prefill. in_vain: for each sequence,
    whether the drafter had nothing to propose. num_steps: levels of the deepest tree."""

    seconds: float
    expected_s: float
    prefill_s: float
    num_steps: int
    in_vain: tuple[bool, ...]


@dataclass(frozen=True)
class Considered:
    """What a round's look at all drafters came to, to be counted when the round is over.

    chosen: the candidate plan that is carried out, if one is. gains: by drafter, the tokens that asking it would have
    gained for each sequence; those that would have gained nothing are missing. exploration_s: spent of the budget.
    """

    chosen: CandidatePlan | None = None
    gains: Mapping[str, float] = field(default_factory=dict)
    exploration_s: float = 0.0
    drafted: Drafted | None = None


class ModelBased:
    """Decides about model-based drafters. history: what rounds have shown of them.

    step_costs: of each drafter by name. survival: finds what was learned of a drafter's confidence.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        step_costs: Mapping[str, StepCosts],
        cost: CostModel,
        survival: Callable[[str, SequenceView], Survival],
    ) -> None:
        self.drafters = drafters
        self._step_costs = step_costs
        self._cost = cost
        self._survival = survival
        self.history = History([drafter.name for drafter in drafters])
        self._exploration_s = 0.0
        self._num_skipped = 0
        self.active = False
        """Whether a drafter was asked when one was last considered: if so, they are considered in the next round, too.

        Otherwise that is left to rounds in which the model-free drafters are asked. Considering takes time, too."""

    def consider(self, terms: Terms, model_free: Selection, saved_s: Sequence[float]) -> Considered:
        """Which drafter to ask in a round, if any.

        model_free: what is to be verified otherwise. saved_s: by drafts so far, of each sequence.
        """
        candidates = [self._best_candidate(drafter, terms) for drafter in self.drafters]
        gains = {
            candidate.drafter.name: self._gain(candidate, model_free, terms)
            for candidate in candidates
            if candidate.value > model_free.value(terms.rate)
        }
        paying = [self._paying(one, terms, model_free, saved_s, gains) for one in candidates]
        good = [candidate for candidate in paying if candidate]
        if good:
            best = max(good, key=lambda candidate: candidate.value - terms.rate * candidate.prefill_s)
            return Considered(best, gains)
        return self._explored(candidates, terms, saved_s, gains)

    def _best_candidate(self, drafter: Drafter, terms: Terms) -> CandidatePlan:
        costs, num_sequences = self._step_costs[drafter.name], terms.num_sequences
        rates = [self.history.acceptance_rate(drafter.name, sequence) for sequence in terms.sequences]
        uncached = [drafter.num_uncached_tokens(sequence) for sequence in terms.sequences]
        step_s, pass_s = costs.step_s(num_sequences), terms.pass_s
        prefill_s = costs.prefill_s(sum([max(0, number - 1) for number in uncached]))  # one rides along with the root
        tokens, paths = float(num_sequences), [1.0] * num_sequences
        best = (float("-inf"), 0, 1.0)
        for length in range(1, min(MAX_CHAIN, max(terms.remaining)) + 1):
            paths = [
                path * rate if length <= most else 0.0
                for path, rate, most in zip(paths, rates, terms.remaining, strict=True)
            ]
            tokens += sum(paths)
            seconds = length * step_s + pass_s(num_sequences * (length + 1))
            value = tokens - LEAST_GAIN * num_sequences * length - terms.rate * seconds
            if value > best[0]:
                best = (value, length, tokens)
        value, length, tokens = best
        return CandidatePlan(drafter, length, tokens, value, prefill_s, uncached)

    def _gain(self, candidate: CandidatePlan, model_free: Selection, terms: Terms) -> float:
        """Tokens gained for each sequence, in this round and in those since drafters were last considered.

        A round of the candidate's brings candidate.tokens, this one model_free.tokens: the gain is for what comes in
        the meantime.
        """
        gain = candidate.value - model_free.value(terms.rate)
        in_time = min(1.0, model_free.tokens / candidate.tokens)
        return gain * in_time * (1 + self._num_skipped) / terms.num_sequences

    def _paying(
        self,
        candidate: CandidatePlan,
        terms: Terms,
        model_free: Selection,
        saved_s: Sequence[float],
        gains: Mapping[str, float],
    ) -> CandidatePlan | None:
        """The candidate, with as much prefill as pays: if it gains something in this round, and enough over the rest of
        the completions for the prefill."""
        name, gain = candidate.drafter.name, candidate.value - model_free.value(terms.rate)
        if name not in gains:
            return None
        promised = 0.0
        for sequence, most in zip(terms.sequences, terms.remaining, strict=True):
            rest = min(most, self.history.lengths.expected_rest(num_output_tokens(sequence)))
            promised += CAUTION * self.history.gain_a_token(name, sequence, gains[name]) * rest
        for way in self._ways_to_prefill(candidate, terms):
            price = terms.rate * way.prefill_s
            fits = promised > price and self._within_loss_budget(way.drafter, way.prefill_s, terms, saved_s)
            if gain > price or fits:
                return way
        return None

    def _ways_to_prefill(self, candidate: CandidatePlan, terms: Terms) -> list[CandidatePlan]:
        """As it stands, and where it need not prefill all of the texts, with the ends of long ones only."""
        may_leave_out = list(self._may_leave_out(candidate, terms))
        if not any(may_leave_out):
            return [candidate]
        left = zip(candidate.uncached, may_leave_out, strict=True)
        costs = self._step_costs[candidate.drafter.name]
        prefill_s = costs.prefill_s(sum(NUM_AT_END if may else number for number, may in left))
        return [candidate, replace(candidate, prefill_s=prefill_s, late=True)]

    def _may_leave_out(self, candidate: CandidatePlan, terms: Terms) -> Iterator[bool]:
        """Of which texts it may prefill the end only: long ones that it was not asked for before."""
        for sequence, uncached in zip(terms.sequences, candidate.uncached, strict=True):
            yield uncached >= MANY_UNCACHED and self._may_begin_late(candidate.drafter, sequence)

    def _may_begin_late(self, drafter: Drafter, sequence: SequenceView) -> bool:
        return drafter.spec.can_begin_late and drafter.name not in self.history.record(sequence.id).asked

    def _within_loss_budget(self, drafter: Drafter, price_s: float, terms: Terms, saved_s: Sequence[float]) -> bool:
        """Whether no sequence would lose more if this were spent in vain than it has won, and a part of its time.

        Its time so far, and for as long as all completions went on that came further: it may end any moment. Where all
        must be prefilled this would get nowhere, since a text grows by about as much as may be lost; so there the
        completion is taken to go on for as long as is expected.
        """
        for sequence, most, saved in zip(terms.sequences, terms.remaining, saved_s, strict=True):
            late = self._may_begin_late(drafter, sequence)
            rest = self.history.lengths.sure_rest if late else self.history.lengths.expected_rest
            rest_s = min(most, rest(num_output_tokens(sequence))) / terms.rate
            if price_s > saved + MOST_LOST * (self.history.record(sequence.id).seconds + rest_s):
                return False
        return True

    def _explored(
        self,
        candidates: Sequence[CandidatePlan],
        terms: Terms,
        saved_s: Sequence[float],
        gains: Mapping[str, float],
    ) -> Considered:
        """A short chain of a drafter that is not worth it as far as is known, to know better.

        The exploration budget must suffice for it, unless none of its tokens was ever seen in the few times it was
        asked, and it must be within the loss budget.
        """
        for candidate in (way for whole in candidates for way in self._ways_to_prefill(whole, terms)):
            name = candidate.drafter.name
            price_s = candidate.prefill_s + NUM_EXPLORED_TOKENS * self._step_costs[name].step_s(terms.num_sequences)
            new = not self.history.was_seen(name) and self.history.num_asked[name] < MOST_FIRST_TRIES
            if (new or price_s <= self._exploration_s) and candidate.num_tokens:
                if not self._within_loss_budget(candidate.drafter, price_s, terms, saved_s):
                    continue
                short = replace(candidate, num_tokens=NUM_EXPLORED_TOKENS, tokens=1.0, value=0.0, exploring=True)
                return Considered(short, gains, price_s)
        return Considered(None, gains)

    def leave_out(self, chosen: CandidatePlan, terms: Terms) -> None:
        """Have the drafter prefill no more than the ends of long texts, where that was chosen."""
        if chosen.late:
            for sequence, may in zip(terms.sequences, self._may_leave_out(chosen, terms), strict=True):
                if may:
                    chosen.drafter.begin_late(sequence, NUM_AT_END)

    def budgets(self, chosen: CandidatePlan, terms: Terms) -> list[Budget]:
        """How much a chosen drafter is to draft: up to where the next token is not worth its step."""
        if chosen.exploring:
            return [Budget(min(most, NUM_EXPLORED_TOKENS)) for most in terms.remaining]
        name, num_sequences = chosen.drafter.name, terms.num_sequences
        step_s = self._step_costs[name].step_s(num_sequences)
        # Of one token more for each sequence, behind a token at each depth: its step and its place in the pass.
        costs = [
            step_s + terms.pass_s(num_sequences * (depth + 2)) - terms.pass_s(num_sequences * (depth + 1))
            for depth in range(MAX_CHAIN + 1)
        ]
        budgets = []
        for sequence, most in zip(terms.sequences, terms.remaining, strict=True):
            survival, rate = self._survival(name, sequence), self.history.acceptance_rate(name, sequence)
            worth = terms.rate / num_sequences / max(rate, 0.05)
            budgets.append(
                Budget(
                    min(most, MAX_CHAIN),
                    lambda depth, worth=worth: min(worth * costs[depth], MOST_DEMANDED),  # type: ignore[misc]
                    lambda confidence, depth, s=survival, i=sequence.id: s.chance(i, confidence, depth),  # type: ignore[misc]
                )
            )
        return budgets

    def drafted(self, chosen: CandidatePlan, trees: Sequence[DraftTree], seconds: float) -> Drafted:
        """What asking the chosen drafter came to. seconds: how long that took, prefill included."""
        num_steps = max(max(tree.depths) for tree in trees)  # a pass for each level
        expected_s = chosen.prefill_s + num_steps * self._step_costs[chosen.drafter.name].step_s(len(trees))
        prefill_s = seconds * chosen.prefill_s / expected_s if num_steps else min(seconds, chosen.prefill_s)
        in_vain = tuple(not tree.num_draft_tokens for tree in trees)
        return Drafted(seconds, expected_s, prefill_s, num_steps, in_vain)

    def observe(self, sequences: Sequence[SequenceView], considered: Considered | None, seconds: float) -> None:
        """A round is over. considered: None where no drafter was. seconds: of the whole round."""
        if not self.drafters:
            return
        self._exploration_s += EXPLORATION_PART * seconds
        if considered is None:
            self._num_skipped += 1
            self.history.count_round(sequences, seconds, {})
            return
        self._num_skipped, self.active = 0, considered.chosen is not None
        self._exploration_s -= considered.exploration_s
        self.history.count_round(sequences, seconds, considered.gains)
        if considered.chosen is not None and considered.drafted is not None:
            name, drafted = considered.chosen.drafter.name, considered.drafted
            self.history.count_asked(name, sequences, drafted.in_vain)
            # Where nothing was drafted, say because a text is too long, the time says nothing of a step.
            if drafted.num_steps:
                self._step_costs[name].observe(drafted.expected_s, drafted.seconds)

    def remarks(self, sequence_id: int) -> list[str]:
        """What there is to say of each drafter: what it costs, and how often its tokens are accepted."""
        record, words = self.history.record(sequence_id), []
        for drafter in self.drafters:
            rate = record.rates.get(drafter.name)
            costs = self._step_costs[drafter.name].step_s(1) / self._cost.seconds(1)
            seen = "not tried"
            if rate and rate.num_in_vain and not rate.accepted:
                seen = "had nothing to propose"
            elif rate:
                seen = f"acceptance rate {rate.accepted / rate.drafted:.0%}"
            asked = "" if drafter.name in record.asked else ": not worth it"
            words.append(f"{drafter.name} costs {costs:.2f} of a target step, {seen}{asked}")
        return words
