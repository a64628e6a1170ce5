"""The plan that never makes things slower: it drafts what is expected to save more time than it costs.

The free drafters are asked in every round, or in some where that brings less than it takes (see
`foredraft.planner.interest`), and their trees laid over each other; each node gets its chance from what was seen of its
drafter so far, and the nodes that are worth a row of the verify pass are verified. A drafter with a model of its own is
asked where its steps are expected to pay, too (see `foredraft.planner.costly`).

After the round every proposal is compared with what the target said, whether it was verified or not. So a free drafter
that was of no use costs little, and is back as soon as the text suits it.
"""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from statistics import fmean

from foredraft.drafters import merge_trees
from foredraft.drafters.base import CostlyDrafter, Drafter, Outcome, no_draft
from foredraft.planner.balance import COSTLY_SHARE, FREE_SHARE, Balance
from foredraft.planner.base import Planned, RoundTimes, room
from foredraft.planner.cost import CostModel, PassSeconds
from foredraft.planner.costly import CostlyPlan
from foredraft.planner.explain import Explanation
from foredraft.planner.interest import Interest
from foredraft.planner.profile import Learned
from foredraft.planner.rate import Rate
from foredraft.planner.select import FIRST_HURDLE, HURDLE, Selection, select, survivals
from foredraft.planner.step_costs import StepCosts
from foredraft.planner.survival import Survival
from foredraft.trace import Expectation
from foredraft.tree import Budget, DraftTree

MAX_FREE_NODES = 15
"""Most nodes that each free drafter is asked for: with the root, they are two of the passes that kernels like best."""
HOPELESS = 0.5
"""Share of what a row must promise below which a drafter's own estimate of a token is believed at once."""
MAX_NODES = 48
"""Most drafted nodes of a round, of all requests together."""
MARGIN = 0.03
"""Share by which a row must be expected to save more than it costs: expectations are never quite right."""


@dataclass
class _Proposal:
    """What one drafter proposed to one request, to be compared with what comes. chances: what was thought of it."""

    drafter: str
    tree: DraftTree
    chances: list[float]


@dataclass
class _Running:
    """What is known of a request between draft and observe.

    asked: whether the free drafters were, for it. gained_s: what their drafts are expected to save.
    """

    length: int = 0
    asked: bool = False
    gained_s: float = 0.0
    proposals: list[_Proposal] = field(default_factory=list)
    expected: float = 1.0
    balance: Balance = field(default_factory=Balance)
    explanation: Explanation = field(default_factory=Explanation)


class AutoPlanner:
    """Chooses drafters, trees and lengths by expected tokens per second. See `Planner`.

    drafters: free ones and costly ones. cost: of the target's passes. step_costs: of each costly drafter, by name.
    clock: seconds since some moment; another one makes simulations possible.
    learned: what an earlier planner found out about drafters of these names.
    """

    def __init__(
        self,
        drafters: Sequence[Drafter],
        cost: CostModel,
        step_costs: dict[str, StepCosts],
        *,
        clock: Callable[[], float] = time.perf_counter,
        learned: Mapping[str, Learned] | None = None,
    ) -> None:
        self._clock = clock
        self._drafters = {drafter.name: drafter for drafter in drafters}
        self._free = [drafter for drafter in drafters if drafter.free]
        costly: list[CostlyDrafter] = [drafter for drafter in drafters if not drafter.free]  # type: ignore[misc]
        self._cost = cost
        self._rate = Rate()
        self._costly = CostlyPlan(costly, step_costs, cost, self._survival)
        self._survivals: dict[tuple[str, bool], Survival] = {}
        self._interest = Interest()
        self._running: dict[int, _Running] = {}
        self._expected_s: float | None = None
        self._plain_s = self._draft_s = 0.0
        self._asking_s: float | None = None
        self._idle, self._num_planned = False, 0
        self._pass_s: PassSeconds = cost.seconds
        for name, known in (learned or {}).items():
            if name in self._drafters:
                self._survivals |= {(name, greedy): found for greedy, found in known.survivals().items()}
                self._costly.start_from(name, known)

    @property
    def learned(self) -> dict[str, Learned]:
        """What was found out about the drafters, for a later planner to start from."""
        found = {}
        for name in self._drafters:
            kinds = {greedy: self._survivals.get((name, greedy)) for greedy in (True, False)}
            found[name] = self._costly.learned(name, {greedy: kind for greedy, kind in kinds.items() if kind})
        return found

    @property
    def methods(self) -> tuple[str, ...]:
        """See `Planner`."""
        return tuple(self._drafters)

    def draft(self, requests: Sequence[Planned]) -> list[DraftTree]:
        """See `Planner`."""
        started = self._clock()
        rooms = [room(request) for request in requests]
        due = [most > 0 and self._interest.due(request.id) for request, most in zip(requests, rooms, strict=True)]
        if not any(request.id in self._running for request in requests):
            self._rate.start_anew()
        for request, asked in zip(requests, due, strict=True):
            running = self._running.setdefault(request.id, _Running())
            running.length, running.asked, running.expected = len(request.tokens), asked, 1.0
            running.proposals.clear()
        trees = [no_draft(request) for request in requests]
        self._asking_s = None
        self._idle = not any(due) and not (self._costly.awake and any(rooms))
        if self._idle and self._num_planned == len(requests):
            self._expected_s = self._plain_s
            return trees
        self._num_planned = len(requests)
        self._pass_s = pass_s = self._cost.passes(len(requests), sum(len(request.tokens) for request in requests))
        self._expected_s = self._plain_s = plain_s = self._rate.overhead_s + pass_s(len(requests))
        self._draft_s = 0.0
        rate = self._rate.at_least(len(requests) / plain_s) * (1.0 + MARGIN)
        if any(due):
            row_s = pass_s(len(requests) + 1) - pass_s(len(requests))
            budgets = [
                Budget(min(MAX_FREE_NODES, most) if one_due else 0, least=HOPELESS * (rate * row_s + HURDLE))
                for most, one_due in zip(rooms, due, strict=True)
            ]
            trees = self._free_trees(requests, budgets)
        selection = self._select(requests, trees, rate, pass_s, spent_s=self._rate.overhead_s)
        if any(due):
            self._asking_s = self._clock() - started
            for request, gained in zip(requests, selection.gained, strict=True):
                self._running[request.id].gained_s = gained / rate
        if self._costly.drafters:
            selection = self._with_costly(requests, rooms, trees, selection, rate, started)
        self._expected_s = selection.seconds
        return selection.trees

    def _with_costly(
        self,
        requests: Sequence[Planned],
        rooms: Sequence[int],
        trees: Sequence[DraftTree],
        free: Selection,
        rate: float,
        started: float,
    ) -> Selection:
        """The plan after the drafter with a model of its own that is worth asking was asked, if there is one.

        trees: of the free drafters. free: what of them is to be verified otherwise. started: when this round began.
        """
        a_token_s, pass_s = self._plain_s / len(requests), self._pass_s
        demands = [self._running[request.id].balance.demand(a_token_s, COSTLY_SHARE) for request in requests]
        saved_s = [self._running[request.id].balance.saved_s for request in requests]
        drafter = self._costly.choose(requests, rooms, free, fmean(demands) * rate, pass_s, saved_s)
        asked = self._clock()
        if drafter is None:
            return free
        drafted = self._ask(drafter, requests, self._costly.budgets(drafter, requests, rooms, rate, pass_s))
        self._costly.drafted(drafter, requests, drafted, self._clock() - asked)
        merged = [merge_trees(pair, ("", "")) for pair in zip(trees, drafted, strict=True)]
        spent_s = self._rate.overhead_s + self._clock() - started
        # What was read serves the rest of the answer. If it counted as lost, it would never be used.
        self._draft_s = self._clock() - asked - self._costly.reading_s
        return self._select(requests, merged, rate, pass_s, spent_s=spent_s, drafter=drafter)

    def _free_trees(self, requests: Sequence[Planned], budgets: Sequence[Budget]) -> list[DraftTree]:
        proposed = [self._ask(drafter, requests, budgets) for drafter in self._free]
        if not proposed:
            return [no_draft(request) for request in requests]
        names = [""] * len(proposed)
        return [merge_trees(trees, names) if len(trees) > 1 else trees[0] for trees in zip(*proposed, strict=True)]

    def _ask(self, drafter: Drafter, requests: Sequence[Planned], budgets: Sequence[Budget]) -> list[DraftTree]:
        """Its proposals, with chances in place of its confidences, and its name on them."""
        trees = drafter.propose(requests, budgets)
        return [
            self._judged(drafter, request, tree.cut(budget.num_tokens)) if tree.num_draft_tokens else tree
            for request, tree, budget in zip(requests, trees, budgets, strict=True)
        ]

    def _judged(self, drafter: Drafter, request: Planned, tree: DraftTree) -> DraftTree:
        survival = self._survival(drafter.name, request)
        chances = survival.chances(request.id, tree.confidence, tree.depths)
        self._running[request.id].proposals.append(_Proposal(drafter.name, tree, chances))
        return tree.judged(chances, drafter.name)

    def _survival(self, drafter: str, request: Planned) -> Survival:
        """Drafts of sampled text are right in other ways than those of greedy text."""
        kind = drafter, request.params.greedy
        found = self._survivals.get(kind)
        if found is None:
            found = self._survivals[kind] = Survival()
        return found

    def expectation(self, request_id: int) -> Expectation | None:
        """What was expected of the last round: tokens of this request, seconds of the whole round."""
        if self._expected_s is None or request_id not in self._running:
            return None
        return Expectation(num_tokens=self._running[request_id].expected, seconds=self._expected_s)

    def _select(
        self,
        requests: Sequence[Planned],
        trees: Sequence[DraftTree],
        rate: float,
        pass_s: PassSeconds,
        *,
        spent_s: float,
        drafter: CostlyDrafter | None = None,
    ) -> Selection:
        """What of the trees to verify. drafter: the one with a model of its own that was asked, too."""
        num, free = len(requests), drafter is None
        survival = [self._promised(one, tree, num, free=free) for one, tree in zip(requests, trees, strict=True)]
        most = min(MAX_NODES, sum(tree.num_draft_tokens for tree in trees))
        selected = select(trees, survival, pass_s, rate=rate, spent_s=spent_s, max_nodes=most)
        tokens = 0.0
        for request, tree in zip(requests, selected.trees, strict=True):
            expected = sum(survivals(tree, tree.confidence)) if tree.num_draft_tokens else 1.0
            self._running[request.id].expected = expected
            tokens += expected
        return replace(selected, tokens=tokens)

    def _promised(self, request: Planned, tree: DraftTree, num_requests: int, *, free: bool) -> list[float]:
        """Chances of the nodes to be on the accepted path, as far as the request's balance lets them count.

        free: whether free drafters alone proposed them.
        """
        if tree.num_draft_tokens == 0:
            return [1.0]
        balance = self._running[request.id].balance
        demand = balance.demand(self._plain_s / num_requests, FREE_SHARE if free else COSTLY_SHARE)
        hurdle = FIRST_HURDLE if free and balance.saved_s <= 0.0 else HURDLE
        chances = survivals(tree, tree.confidence)
        least = sorted(chances)[-balance.max_nodes - 1] if tree.num_draft_tokens > balance.max_nodes else 0.0
        return [max(0.0, chance / demand - hurdle) if chance >= least else 0.0 for chance in chances]

    def observe(self, requests: Sequence[Planned], outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """See `Planner`."""
        if not requests:  # all have failed: nothing is known of the pass but its time
            return
        if self._idle:
            self._observe_idle(requests, outcomes, times)
            return
        started = self._clock()
        lengths = [self._running[request.id].length for request in requests]
        rows = [outcome.tree.num_nodes for outcome in outcomes]
        num_tokens = sum(len(request.tokens) - length for request, length in zip(requests, lengths, strict=True))
        self._rate.observe(num_tokens, times)
        row_positions = sum(r * length for r, length in zip(rows, lengths, strict=True))
        self._cost.observe(sum(rows), times.verify, num_row_positions=row_positions, num_positions=sum(lengths))
        self._count(requests, outcomes, rows)
        self._costly.observe(requests, times)
        for drafter in self._drafters.values():
            if self._asking_s is not None or not getattr(drafter, "dozes", False):
                drafter.observe(requests, outcomes)
        if self._asking_s is not None:
            num_asked = sum(self._running[request.id].asked for request in requests)
            self._interest.count_cost((self._asking_s + self._clock() - started) / max(1, num_asked))

    def _observe_idle(self, requests: Sequence[Planned], outcomes: Sequence[Outcome], times: RoundTimes) -> None:
        """After a round in which nobody was asked: there are others to learn from, and here time matters most."""
        self._rate.observe(len(requests), times)
        self._costly.doze(requests, times)
        for request, outcome in zip(requests, outcomes, strict=True):
            running = self._running[request.id]
            running.balance.num_tokens += len(request.tokens) - running.length
            running.explanation.add(outcome, ())
        for drafter in self._drafters.values():
            if not getattr(drafter, "dozes", False):
                drafter.observe(requests, outcomes)

    def _count(self, requests: Sequence[Planned], outcomes: Sequence[Outcome], rows: Sequence[int]) -> None:
        """What the round brought each request, what it cost it, and what is learned of the drafters."""
        # What a row and a request's draft cost; each request answers for its own.
        row_s = (self._pass_s(sum(rows)) - self._pass_s(len(rows))) / max(1, sum(rows) - len(rows))
        draft_s = self._draft_s / max(1, sum(count > 1 for count in rows))
        plain_s = self._plain_s / len(rows)
        for request, outcome in zip(requests, outcomes, strict=True):
            running = self._running[request.id]
            running.balance.count(
                num_emitted=len(request.tokens) - running.length,
                num_drafted=outcome.num_draft_tokens,
                plain_s=plain_s,
                extra_s=(draft_s + row_s * outcome.num_draft_tokens) if outcome.num_draft_tokens else 0.0,
            )
            if running.asked:
                self._interest.count_gain(request.id, running.gained_s, plain_s)
            emitted = request.tokens[running.length :]
            for proposal in running.proposals:
                self._learn(request, proposal, emitted)
            running.explanation.add(outcome, [proposal.drafter for proposal in running.proposals])

    def _learn(self, request: Planned, proposal: _Proposal, emitted: Sequence[int]) -> None:
        """Compare a proposal with what was said, as deep as both go."""
        survival, tree = self._survival(proposal.drafter, request), proposal.tree
        costly = not self._drafters[proposal.drafter].free
        for depth, nodes, right in tree.compared(emitted):
            for node in nodes:
                chance = proposal.chances[node]
                survival.learn(request.id, tree.confidence[node], depth, right=node == right, expected=chance)
            if costly:
                self._costly.learn(proposal.drafter, request, right=right is not None)

    def forget(self, request_id: int) -> None:
        """See `Planner`."""
        self._running.pop(request_id, None)
        self._interest.forget(request_id)
        for survival in self._survivals.values():
            survival.forget(request_id)
        self._costly.forget(request_id)
        for drafter in self._drafters.values():
            drafter.forget(request_id)

    def reason(self, request_id: int) -> str:
        """See `Planner`. With what drafters have to say against themselves, if anything."""
        running = self._running.get(request_id)
        if running is None:
            return "auto: ended before its first round"
        problems = filter(None, (getattr(drafter, "problem", "") for drafter in self._drafters.values()))
        return running.explanation.words(self.methods, [*self._costly.remarks(request_id), *problems])

    @property
    def calibration_error(self) -> dict[str, float]:
        """Expected calibration error of each drafter that was counted, greedy and sampled text apart."""
        found = {}
        for (name, greedy), survival in self._survivals.items():
            if survival.calibration_error is not None:
                found[f"{name} ({'greedy' if greedy else 'sampled'})"] = survival.calibration_error
        return found
