"""When a drafter with a model of its own is worth asking.

Before it is asked, only its past says how good it is: the share of its tokens that were right, given that what came
before them was. From that share follows what chains of 1, 2, ... tokens would bring, and what they cost is known. It is
asked where the best of them beats what the free drafters offer. Where it has text to read first, the gain over the rest
of the answer must pay for the reading; how long that rest is, earlier answers say.

A drafter that is not asked says nothing about how good it would be now. So a share of the time is laid by, and when
that is enough for a short chain it is tried.
"""

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace

from foredraft.drafters.base import CostlyDrafter, LateReader
from foredraft.planner.base import Planned, RoundTimes
from foredraft.planner.cost import CostModel, PassSeconds
from foredraft.planner.lengths import SHORT_ANSWER, Lengths
from foredraft.planner.profile import Learned
from foredraft.planner.select import HURDLE, Selection
from foredraft.planner.share import Share
from foredraft.planner.step_costs import StepCosts
from foredraft.planner.survival import Survival
from foredraft.tree import Budget, DraftTree

MAX_CHAIN = 12
PROBE_SHARE = 0.01
"""Share of all time that trying may take, and that is laid by for it."""
MOST_LOST = 0.02
"""Share of an answer's time that reading or trying in vain may take, besides what drafts have won for it."""
NUM_PROBE_TOKENS = 2
MOST_FIRST_TRIES = 4
"""Times that a drafter of which no token was ever seen is tried without anything laid by: it may have none to show."""
NUM_AT_END, LONG_UNREAD = 24, 32
"""Tokens at the end of an unread text that are read, where it has so many or more and reading all is too dear."""
CAUTION = 0.75
"""Share of the expected gain that reading may cost: an answer may end sooner than expected."""
FIRST_GUESS = 0.7
"""Share of right tokens before any was seen."""
USUAL_TOKENS = 500.0
"""Tokens of answers over which what is usual is averaged."""
MOST_DEMANDED = 0.95
"""A token that is likelier than this to be accepted is followed by another one, whatever that costs."""


@dataclass(frozen=True)
class _Offer:
    """The best that a drafter is expected to do in a round.

    num_tokens: length of the chain. tokens: expected, bonus included. value: tokens gained at the usual rate, reading
    apart. unread: tokens of each text. late: whether of long unread texts it is to read the end only. probing: whether
    it is asked to know it better.
    """

    drafter: CostlyDrafter
    num_tokens: int
    tokens: float
    value: float
    read_s: float
    unread: Sequence[int]
    late: bool = False
    probing: bool = False


class CostlyPlan:
    """Decides about costly drafters, and remembers how they did.

    step_costs: of each drafter by name. survival: finds what was learned of a drafter's confidence.
    """

    def __init__(
        self,
        drafters: Sequence[CostlyDrafter],
        step_costs: dict[str, StepCosts],
        cost: CostModel,
        survival: Callable[[str, Planned], Survival],
    ) -> None:
        self.drafters = drafters
        self._late_readers = {drafter.name: drafter for drafter in drafters if isinstance(drafter, LateReader)}
        self._step_costs = step_costs
        self._cost = cost
        self._survival = survival
        self._shared: dict[tuple[str, bool], Share] = {}
        self._own: dict[tuple[int, str], Share] = {}
        self._lengths = Lengths()
        self._outputs: dict[int, tuple[int, bool]] = {}
        self._gains: dict[tuple[int, str], float] = {}
        self._usual_gains: dict[tuple[str, bool], float] = {}
        self._asked: dict[int, set[str]] = {}
        self._num_asked = Counter[str]()
        self._laid_by_s = 0.0
        self._spent_s: dict[int, float] = {}
        self._offer: _Offer | None = None
        self._num_dozed = 0
        self._saved_s: Sequence[float] = ()
        self.reading_s = 0.0
        """Of the last time a drafter was asked, the seconds that it read text it had not seen."""

    @property
    def awake(self) -> bool:
        """Whether a drafter was asked when one was last chosen: if so, one is to be chosen in the next round as well.

        Otherwise that is left to rounds in which the free drafters are asked. Choosing takes time, too.
        """
        return self._offer is not None

    def choose(
        self,
        requests: Sequence[Planned],
        rooms: Sequence[int],
        free: Selection,
        rate: float,
        pass_s: PassSeconds,
        saved_s: Sequence[float],
    ) -> CostlyDrafter | None:
        """The drafter to ask in this round, if any.

        free: what the free drafters offer. rate: tokens per second. saved_s: by drafts so far, of each request.
        """
        self._offer = None
        self._saved_s = saved_s
        offers = [self._best_offer(drafter, requests, rooms, rate, pass_s) for drafter in self.drafters]
        paying = [self._paying(offer, requests, rooms, free, rate) for offer in offers]
        good = [offer for offer in paying if offer]
        if good:
            self._offer = max(good, key=lambda offer: offer.value - rate * offer.read_s)
        else:
            self._offer = self._probe(offers, requests, rooms, rate)
        self._num_dozed = 0
        if self._offer is None:
            return None
        if self._offer.late:
            self._leave_out(self._offer, requests)
        return self._offer.drafter

    def budgets(
        self,
        drafter: CostlyDrafter,
        requests: Sequence[Planned],
        rooms: Sequence[int],
        rate: float,
        pass_s: PassSeconds,
    ) -> list[Budget]:
        """How much a chosen drafter is to draft: up to where the next token is not worth its step."""
        assert self._offer is not None
        if self._offer.probing:
            return [Budget(min(most, NUM_PROBE_TOKENS)) for most in rooms]
        num_requests = len(requests)
        step_s = self._step_costs[drafter.name].step_s(num_requests)
        # Of one token more for each request, behind a token at each depth: its step and its row.
        costs = [
            step_s + pass_s(num_requests * (depth + 2)) - pass_s(num_requests * (depth + 1))
            for depth in range(MAX_CHAIN + 1)
        ]
        budgets = []
        for request, most in zip(requests, rooms, strict=True):
            survival, share = self._survival(drafter.name, request), self._acceptance(drafter.name, request)
            worth = rate / num_requests / max(share, 0.05)
            budgets.append(
                Budget(
                    min(most, MAX_CHAIN),
                    lambda depth, worth=worth: min(worth * costs[depth], MOST_DEMANDED),  # type: ignore[misc]
                    lambda confidence, depth, s=survival, i=request.id: s.chance(i, confidence, depth),  # type: ignore[misc]
                )
            )
        return budgets

    def drafted(
        self, drafter: CostlyDrafter, requests: Sequence[Planned], trees: Sequence[DraftTree], seconds: float
    ) -> None:
        """It was asked: what it drafted, and how long it took, reading included.

        Where it drafted nothing, say because a text is beyond its context, its time says nothing of a step; but that it
        was asked in vain counts, for this request.
        """
        assert self._offer is not None
        costs = self._step_costs[drafter.name]
        num_steps = max(max(tree.depths) for tree in trees)  # a pass for each level
        expected_s = self._offer.read_s + num_steps * costs.step_s(len(requests))
        self.reading_s = min(seconds, self._offer.read_s)
        if num_steps:
            self.reading_s = seconds * self._offer.read_s / expected_s
            costs.observe(expected_s, seconds)
        self._num_asked[drafter.name] += 1
        for request, tree in zip(requests, trees, strict=True):
            self._asked.setdefault(request.id, set()).add(drafter.name)
            if not tree.num_draft_tokens:
                self._own.setdefault((request.id, drafter.name), Share()).asked_in_vain()

    def learn(self, name: str, request: Planned, *, right: bool) -> None:
        """Count one of its tokens whose parent was right."""
        self._own.setdefault((request.id, name), Share()).count(right=right)
        self._shared.setdefault((name, request.params.greedy), Share()).count(right=right)

    def start_from(self, name: str, known: Learned) -> None:
        """Take over what an earlier plan found out about a drafter."""
        for greedy, (right, total) in known.shares().items():
            self._shared[name, greedy] = Share(right, total)
        self._usual_gains[name, True], self._usual_gains[name, False] = known.greedy_gain, known.sampled_gain

    def learned(self, name: str, survivals: Mapping[bool, Survival]) -> Learned:
        """What a later plan may start from. survivals: of the drafter's confidences, by whether texts were greedy."""
        states = {greedy: survival.to_json() for greedy, survival in survivals.items()}
        shares = {greedy: self._shared.get((name, greedy), Share()) for greedy in (True, False)}
        return Learned(
            greedy=states.get(True, {}),
            sampled=states.get(False, {}),
            greedy_share=(shares[True].right, shares[True].total),
            sampled_share=(shares[False].right, shares[False].total),
            greedy_gain=self._usual_gains.get((name, True), 0.0),
            sampled_gain=self._usual_gains.get((name, False), 0.0),
        )

    def observe(self, requests: Sequence[Planned], times: RoundTimes) -> None:
        """Lay by what trying may cost."""
        if self.drafters:
            self._laid_by_s += PROBE_SHARE * times.total
            for request in requests:
                self._spent_s[request.id] = self._spent_s.get(request.id, 0.0) + times.total
                self._outputs[request.id] = _so_far(request), request.params.greedy

    def doze(self, requests: Sequence[Planned], times: RoundTimes) -> None:
        """After a round in which none was chosen."""
        self._num_dozed += 1
        self.observe(requests, times)

    def forget(self, request_id: int) -> None:
        """The request has ended."""
        length, greedy = self._outputs.pop(request_id, (0, True))
        if length:
            self._lengths.add(length)
        self._asked.pop(request_id, None)
        self._spent_s.pop(request_id, None)
        for drafter in self.drafters:
            self._own.pop((request_id, drafter.name), None)
            gained = self._gains.pop((request_id, drafter.name), 0.0)
            if length:
                usual, share = self._usual_gains.get((drafter.name, greedy), 0.0), length / (length + USUAL_TOKENS)
                self._usual_gains[drafter.name, greedy] = usual + share * (gained / length - usual)

    def remarks(self, request_id: int) -> list[str]:
        """What there is to say of each costly drafter: what it costs, and how often it is right."""
        words = []
        for drafter in self.drafters:
            share = self._own.get((request_id, drafter.name))
            costs = self._step_costs[drafter.name].step_s(1) / self._cost.seconds(1)
            seen = "not tried"
            if share and share.right:
                seen = f"{share.right / share.total:.0%} of its tokens are right"
            elif share:
                seen = "had nothing to propose" if share.num_in_vain else "0% of its tokens are right"
            asked = "" if drafter.name in self._asked.get(request_id, ()) else ": not worth it"
            words.append(f"{drafter.name} costs {costs:.2f} of a target step, {seen}{asked}")
        return words

    def _acceptance(self, name: str, request: Planned) -> float:
        shared = self._shared.get((name, request.params.greedy), Share()).estimate(FIRST_GUESS)
        return self._own.get((request.id, name), Share()).estimate(shared)

    def _best_offer(
        self,
        drafter: CostlyDrafter,
        requests: Sequence[Planned],
        rooms: Sequence[int],
        rate: float,
        pass_s: PassSeconds,
    ) -> _Offer:
        costs = self._step_costs[drafter.name]
        shares = [self._acceptance(drafter.name, request) for request in requests]
        unread = [drafter.num_unread(request) for request in requests]
        num_requests, step_s = len(requests), costs.step_s(len(requests))
        tokens, paths = float(num_requests), [1.0] * num_requests
        read_s = costs.read_s(sum(max(0, number - 1) for number in unread))  # one rides along with the root
        best = _Offer(drafter, 0, 1.0, float("-inf"), read_s, unread)
        for length in range(1, MAX_CHAIN + 1):
            fits = [length <= most for most in rooms]
            if not any(fits):
                break
            paths = [path * share if fit else 0.0 for path, share, fit in zip(paths, shares, fits, strict=True)]
            tokens += sum(paths)
            seconds = length * step_s + pass_s(num_requests * (length + 1))
            value = tokens - HURDLE * num_requests * length - rate * seconds
            if value > best.value:
                best = _Offer(drafter, length, tokens, value, read_s, unread)
        return best

    def _paying(
        self, offer: _Offer, requests: Sequence[Planned], rooms: Sequence[int], free: Selection, rate: float
    ) -> _Offer | None:
        """The offer, with as much reading as pays: if it gains something in this round, and enough over the rest of
        the answers for the reading."""
        gain, name = offer.value - free.value(rate), offer.drafter.name
        if gain <= 0.0:
            return None
        promised = 0.0
        for request, most in zip(requests, rooms, strict=True):
            key = (request.id, name)
            # A round of its brings offer.tokens, this one free.tokens: the gain is for what comes in the meantime, and
            # in the rounds since a drafter was last chosen.
            gained = gain * min(1.0, free.tokens / offer.tokens) * (1 + self._num_dozed) / len(requests)
            self._gains[key] = self._gains.get(key, 0.0) + gained
            promised += CAUTION * self._gain_a_token(request, name) * min(most, self._lengths.rest(_so_far(request)))
        for way in self._ways_to_read(offer, requests):
            price = rate * way.read_s
            if gain > price or (promised > price and self._bearable(way.drafter, way.read_s, requests, rooms, rate)):
                return way
        return None

    def _ways_to_read(self, offer: _Offer, requests: Sequence[Planned]) -> list[_Offer]:
        """As it stands, and where it need not read all of the texts, with the ends of long ones only."""
        if not any(self._may_leave_out(offer, requests)):
            return [offer]
        left = zip(offer.unread, self._may_leave_out(offer, requests), strict=True)
        read_s = self._step_costs[offer.drafter.name].read_s(sum(NUM_AT_END if may else num for num, may in left))
        return [offer, replace(offer, read_s=read_s, late=True)]

    def _may_leave_out(self, offer: _Offer, requests: Sequence[Planned]) -> Iterator[bool]:
        """Of which texts it may read the end only: long ones that it was not asked for before."""
        for request, unread in zip(requests, offer.unread, strict=True):
            yield unread >= LONG_UNREAD and self._may_begin_late(offer.drafter.name, request)

    def _may_begin_late(self, name: str, request: Planned) -> bool:
        return name in self._late_readers and name not in self._asked.get(request.id, ())

    def _leave_out(self, offer: _Offer, requests: Sequence[Planned]) -> None:
        """Have the drafter read no more than the ends of long texts."""
        for request, may in zip(requests, self._may_leave_out(offer, requests), strict=True):
            if may:
                self._late_readers[offer.drafter.name].read_only_end(request, NUM_AT_END)

    def _bearable(
        self, drafter: CostlyDrafter, price_s: float, requests: Sequence[Planned], rooms: Sequence[int], rate: float
    ) -> bool:
        """Whether no request would lose more if this were spent in vain than it has won, and a share of its time.

        Its time so far, and for as long as all answers went on that came further: it may end any moment. Where all must
        be read this would get nowhere, since a text grows by about as much reading as may be lost; so there the answer
        is taken to go on for as long as is expected.
        """
        for request, most, saved_s in zip(requests, rooms, self._saved_s, strict=True):
            late = self._may_begin_late(drafter.name, request)
            rest = self._lengths.sure_rest if late else self._lengths.rest
            rest_s = min(most, rest(_so_far(request))) / rate
            if price_s > saved_s + MOST_LOST * (self._spent_s.get(request.id, 0.0) + rest_s):
                return False
        return True

    def _gain_a_token(self, request: Planned, name: str) -> float:
        """Tokens gained for each token of the answer, had the drafter been asked wherever it was the best.

        Before this answer has shown it, as much as in earlier answers is expected, and nothing in the first.
        """
        usual = self._usual_gains.get((name, request.params.greedy), 0.0)
        num_tokens = _so_far(request)
        gained = self._gains.get((request.id, name), 0.0)
        return (gained + SHORT_ANSWER / 2 * usual) / (num_tokens + SHORT_ANSWER / 2)

    def _probe(
        self, offers: Sequence[_Offer], requests: Sequence[Planned], rooms: Sequence[int], rate: float
    ) -> _Offer | None:
        """A short chain of a drafter that is not worth it as far as is known, to know better.

        What was laid by must suffice for it, unless none of its tokens was ever seen in the few times it was asked, and
        it must be bearable.
        """
        for offer in (way for whole in offers for way in self._ways_to_read(whole, requests)):
            name = offer.drafter.name
            price = offer.read_s + NUM_PROBE_TOKENS * self._step_costs[name].step_s(len(requests))
            seen = any((name, greedy) in self._shared for greedy in (True, False))
            new = not seen and self._num_asked[name] < MOST_FIRST_TRIES
            bearable = offer.num_tokens and self._bearable(offer.drafter, price, requests, rooms, rate)
            if bearable and (new or price <= self._laid_by_s):
                self._laid_by_s -= price
                return replace(offer, num_tokens=NUM_PROBE_TOKENS, tokens=1.0, value=0.0, probing=True)
        return None


def _so_far(request: Planned) -> int:
    """Tokens of the answer."""
    return len(request.tokens) - request.num_prompt_tokens
