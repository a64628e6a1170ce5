"""Playing recorded answers again: what would other drafters, lengths and trees have brought?

The texts are known, so a round is simulated by asking what the drafter proposed at that place, and how far it is right;
its time follows from what passes cost. Drafters that follow from the text alone are asked anew. Of all others the
proposals are those of the recording: at the place itself, or what an earlier proposal said of it where the text went
that way. Where there is neither the round goes without a draft, and `coverage` tells how often there was one.
"""

import itertools
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from statistics import median
from typing import Any

from foredraft.drafters import Drafter, Outcome, RequestView, drafter_of_text, likeliest_part
from foredraft.drafters.base import no_draft
from foredraft.errors import OptionError
from foredraft.planner import AutoPlanner, FixedPlanner, Planner
from foredraft.planner.cost import Calibration, CostModel
from foredraft.planner.step_costs import StepCosts
from foredraft.sampling import SamplingParams
from foredraft.testing import SimulatedClock
from foredraft.trace import RequestTrace, RoundRecord, Trace
from foredraft.tree import Budget, DraftTree
from foredraft.tune.simulate import KnownRequest, Simulated, simulate

MAX_SUBSETS = 4
"""Drafters up to whose number `auto` is tried with all subsets of them."""


@dataclass
class Recorded:
    """A recording, ready to be played. texts: prompt and answer of each request; num_prompt_tokens: of these.

    proposals: by drafter, request and number of tokens before the round. calibrations: what passes cost, the target's
    under "". costly: names of drafters whose steps cost time. overhead_s: seconds of a round outside of passes.
    width: tokens that proposals have at most. has_costs: whether calibrations were measured, or guessed from rounds.
    """

    texts: dict[int, tuple[int, ...]]
    num_prompt_tokens: dict[int, int]
    params: dict[int, SamplingParams]
    proposals: dict[str, dict[tuple[int, int], DraftTree]]
    calibrations: dict[str, Calibration]
    costly: tuple[str, ...]
    overhead_s: float
    num_rounds: int
    num_tokens: int
    width: int
    has_costs: bool

    @property
    def drafters(self) -> list[str]:
        """Names of the drafters there are proposals of."""
        return list(self.proposals)


def read(trace: Trace) -> Recorded:
    """What a trace says of its answers and drafters. Raises OptionError where it does not hold enough."""
    whole = [one for one in trace.requests.values() if one.start is not None and one.rounds]
    if trace.header is None or not whole:
        raise OptionError("--replay: the trace holds no whole request")
    kept: Mapping[str, Any] = trace.header.settings.get("recording", {})
    try:
        calibrations = {
            name: Calibration(
                tuple(fields["rows"]), tuple(fields["seconds"]), fields["per_position"], fields["per_position_row"]
            )
            for name, fields in kept.get("calibrations", {}).items()
        }
        costly, width = tuple(kept.get("costly", ())), int(kept.get("width", 64))
    except (KeyError, TypeError, ValueError, AttributeError, OverflowError) as error:
        raise OptionError(f"--replay: what the header says of the recording is damaged: {error}") from error
    rounds = [record for one in whole for record in one.rounds]
    try:
        seen = {"": _from_rounds(rounds)}
    except ValueError as error:
        raise OptionError(f"--replay: what rounds cost cannot be: {error}") from error
    recorded = Recorded(
        texts={one.request: _text(one) for one in whole},
        num_prompt_tokens={one.request: len(one.start.prompt_tokens) for one in whole if one.start},
        params={one.request: _params(one) for one in whole},
        proposals={name: {} for name in trace.header.drafters if name != "none"},
        calibrations=calibrations or seen,
        costly=costly,
        overhead_s=median(record.accept_s for record in rounds),
        num_rounds=len(rounds),
        num_tokens=sum(len(record.emitted) for record in rounds),
        width=width,
        has_costs=bool(calibrations),
    )
    for record in rounds:
        text = recorded.texts[record.request]
        if not 0 < record.num_tokens <= len(text) or text[record.num_tokens - 1] != record.tokens[0]:
            raise OptionError(f"--replay: request {record.request}: round {record.round} does not fit those before")
        for name, tree in _trees(record):
            recorded.proposals.setdefault(name, {})[record.request, record.num_tokens] = tree
    for name in [name for name, known in recorded.proposals.items() if not known and drafter_of_text(name) is None]:
        del recorded.proposals[name]
    return recorded


def _text(one: RequestTrace) -> tuple[int, ...]:
    assert one.start is not None
    return (*one.start.prompt_tokens, *(token for record in one.rounds for token in record.emitted))


def _params(one: RequestTrace) -> SamplingParams:
    assert one.start is not None
    return SamplingParams(temperature=one.start.params.get("temperature", 0.0), seed=0)


def _trees(record: RoundRecord) -> list[tuple[str, DraftTree]]:
    """The proposals of a round; where none were kept, what of each drafter was verified."""
    if record.proposals:
        return [(p.drafter, DraftTree(p.tokens, p.parents, p.confidence)) for p in record.proposals]
    tree = DraftTree(record.tokens, record.parents, record.confidence)
    found = []
    for name in dict.fromkeys(source for source in record.sources if source):
        nodes = [0]
        for node in range(1, tree.num_nodes):
            if record.sources[node] == name and record.parents[node] in nodes:
                nodes.append(node)
        found.append((name, tree.restricted(nodes)))
    return found


def _from_rounds(rounds: Sequence[RoundRecord]) -> Calibration:
    """What passes cost, as far as the rounds of a trace of one request at a time show it."""
    seconds: dict[int, list[float]] = {}
    for record in rounds:
        seconds.setdefault(record.num_rows, []).append(record.verify_s)
    if 1 not in seconds:
        seconds[1] = [min(min(times) for times in seconds.values())]
    rows = sorted(seconds)
    medians = [median(seconds[count]) for count in rows]
    return Calibration(tuple(rows), tuple(itertools.accumulate(medians, max)))


class RecordedDrafter:
    """Proposes what was proposed when the recording was made.

    num_asked, num_known: places it was asked for, and of these those for which there is a recording.
    """

    def __init__(self, name: str, recorded: Recorded, clock: SimulatedClock, steps: StepCosts | None) -> None:
        self.name, self.free = name, name not in recorded.costly
        self.num_asked = self.num_known = 0
        self._recorded, self._clock, self._steps = recorded, clock, steps
        self._anew = drafter_of_text(name)
        self._read: dict[int, tuple[int, ...]] = {}

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        if self._anew is not None:
            self.num_asked += len(requests)
            self.num_known += len(requests)
            return self._anew.propose(requests, budgets)
        trees = [
            self._propose_one(request, budget) if budget.num_tokens > 0 else no_draft(request)
            for request, budget in zip(requests, budgets, strict=True)
        ]
        self._take_time(requests, trees)
        return trees

    def _propose_one(self, request: RequestView, budget: Budget) -> DraftTree:
        self.num_asked += 1
        known = self.tree_at(request)
        if known is None:
            return no_draft(request)
        self.num_known += 1
        if self.free:
            return likeliest_part(known, budget)
        return _as_far_as_it_pays(known, budget)

    def tree_at(self, request: RequestView) -> DraftTree | None:
        """What is known of the proposal at the place a request has come to; None: nothing."""
        own = self._recorded.proposals[self.name]
        tokens = request.tokens
        for back in range(min(self._recorded.width, len(tokens) - request.num_prompt_tokens) + 1):
            tree = own.get((request.id, len(tokens) - back))
            if tree is not None:
                return _below(tree, tokens[len(tokens) - back :])
        return None

    def _take_time(self, requests: Sequence[RequestView], trees: Sequence[DraftTree]) -> None:
        if self._steps is None:
            return
        unread = sum(max(0, self.num_unread(request) - 1) for request in requests)
        self._clock.advance(self._steps.read_s(unread))
        depths = [max(tree.depths) for tree in trees]
        for level in range(max(depths)):
            self._clock.advance(self._steps.step_s(sum(level < depth for depth in depths)))
        for request, tree in zip(requests, trees, strict=True):
            self._read[request.id] = (*request.tokens, *tree.first_chain().tokens[1:-1])

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        if self._anew is not None:
            self._anew.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        self._read.pop(request_id, None)
        if self._anew is not None:
            self._anew.forget(request_id)

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`."""
        read, tokens = self._read.get(request.id, ()), request.tokens
        shorter = min(len(read), len(tokens) - 1)
        common = next((i for i in range(shorter) if read[i] != tokens[i]), shorter)
        return len(tokens) - 1 - common

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        return self._steps.read_s(num_tokens) if self._steps else 0.0


def _below(tree: DraftTree, path: Sequence[int]) -> DraftTree | None:
    """The part of a tree below a path of tokens; None where it does not hold the path, or ends with it."""
    at = 0
    for token in path:
        child = tree.child(at, token)
        if child is None:
            return None
        at = child
    if not path:
        return tree
    nodes = [at]
    for node in range(at + 1, tree.num_nodes):
        if tree.parents[node] in nodes:
            nodes.append(node)
    if len(nodes) == 1:
        return None
    index = {node: i for i, node in enumerate(nodes)}
    return DraftTree(
        tuple(tree.tokens[node] for node in nodes),
        (-1, *(index[tree.parents[node]] for node in nodes[1:])),
        (1.0, *(tree.confidence[node] for node in nodes[1:])),
    )


def _as_far_as_it_pays(tree: DraftTree, budget: Budget) -> DraftTree:
    """What a drafter with this budget would have drafted of a chain."""
    chain, survival = tree.first_chain(), 1.0
    for depth in range(1, min(chain.num_draft_tokens, budget.num_tokens) + 1):
        survival *= budget.chance(chain.confidence[depth], depth)
        if not budget.goes_on(survival, depth):
            return chain.cut(depth)
    return chain.cut(budget.num_tokens)


@dataclass(frozen=True, kw_only=True)
class Replayed:
    """What a setting would have brought. coverage: share of the proposals asked for that the recording knows."""

    setting: str
    mean_acceptance_length: float
    num_rounds: int
    num_drafted: int
    acceptance_rate: float | None
    tokens_per_s: float
    to_plain: float
    coverage: float


class _Chains:
    """A drafter whose trees are cut down to the chain of first children."""

    def __init__(self, drafter: Drafter) -> None:
        self.name, self.free = drafter.name, drafter.free
        self._drafter = drafter

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        wide = [Budget(4 * budget.num_tokens, budget.min_survival, budget.chance) for budget in budgets]
        trees = self._drafter.propose(requests, wide)
        return [tree.first_chain().cut(b.num_tokens) for tree, b in zip(trees, budgets, strict=True)]

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""
        self._drafter.observe(requests, outcomes)

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""
        self._drafter.forget(request_id)


MakePlanner = Callable[[list[RecordedDrafter], dict[str, StepCosts], SimulatedClock], Planner]


class Replay:
    """Plays a recording with settings of one's own."""

    def __init__(self, recorded: Recorded) -> None:
        self.recorded = recorded
        self._cost = recorded.calibrations[""]
        self._plain = self._play([], lambda drafters, steps, clock: FixedPlanner(RecordedNothing(), 0))[0]

    def fixed(self, drafter: str, num_draft_tokens: int, *, chains: bool = False) -> Replayed:
        """One drafter and a number of draft tokens. chains: of its trees only the first child of each node."""

        def planner(drafters: list[RecordedDrafter], steps: dict[str, StepCosts], clock: SimulatedClock) -> Planner:
            return FixedPlanner(_Chains(drafters[0]) if chains else drafters[0], num_draft_tokens)

        name = f"{drafter} {num_draft_tokens}{' chain' if chains else ''}"
        return self._replayed(name, [drafter], planner)

    def auto(self, drafters: Sequence[str]) -> Replayed:
        """As `auto` would have chosen among some of the drafters."""

        def planner(found: list[RecordedDrafter], steps: dict[str, StepCosts], clock: SimulatedClock) -> Planner:
            return AutoPlanner(found, CostModel(self._cost), steps, clock=clock)

        return self._replayed(f"auto of {', '.join(drafters)}", drafters, planner)

    def _replayed(self, name: str, drafters: Sequence[str], make: MakePlanner) -> Replayed:
        simulated, asked = self._play(drafters, make)
        num_drafted = sum(sum(one.num_drafted) for one in simulated.rounds)
        num_accepted = sum(sum(one.num_accepted) for one in simulated.rounds)
        num_asked = sum(drafter.num_asked for drafter in asked)
        return Replayed(
            setting=name,
            mean_acceptance_length=simulated.mean_acceptance_length,
            num_rounds=simulated.num_request_rounds,
            num_drafted=num_drafted,
            acceptance_rate=num_accepted / num_drafted if num_drafted else None,
            tokens_per_s=simulated.tokens_per_s,
            to_plain=simulated.tokens_per_s / self._plain.tokens_per_s,
            coverage=sum(drafter.num_known for drafter in asked) / num_asked if num_asked else 1.0,
        )

    def _play(self, drafters: Sequence[str], make: MakePlanner) -> tuple[Simulated, list[RecordedDrafter]]:
        recorded, clock = self.recorded, SimulatedClock()
        steps = {name: StepCosts(recorded.calibrations[name]) for name in drafters if name in recorded.costly}
        found = [
            RecordedDrafter(name, recorded, clock, StepCosts(recorded.calibrations[name]) if name in steps else None)
            for name in drafters
        ]
        requests = [
            KnownRequest(request, text, recorded.num_prompt_tokens[request], recorded.params[request])
            for request, text in recorded.texts.items()
        ]
        seconds = CostModel(self._cost).seconds
        planner = make(found, steps, clock)
        return simulate(requests, planner, seconds, clock, overhead_s=recorded.overhead_s), found


class RecordedNothing:
    """Proposes nothing: plain decoding."""

    name = "none"
    free = True

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`."""
        return [no_draft(request) for request in requests]

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`."""

    def forget(self, request_id: int) -> None:
        """See `Drafter`."""


def replay_all(recorded: Recorded, lengths: Sequence[int]) -> list[Replayed]:
    """Every drafter with numbers of draft tokens, as trees and as chains, and `auto` of what it may choose from."""
    replay = Replay(recorded)
    found: list[Replayed] = []
    for name in recorded.drafters:
        found.extend(replay.fixed(name, length) for length in lengths)
        if any(not tree.is_chain for tree in recorded.proposals[name].values()):
            found.extend(replay.fixed(name, length, chains=True) for length in lengths)
    names = recorded.drafters
    sizes = range(1, len(names) + 1) if len(names) <= MAX_SUBSETS else (1, len(names))
    found.extend(replay.auto(some) for size in sizes for some in itertools.combinations(names, size))
    return found
