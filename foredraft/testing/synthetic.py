"""A drafter that is right as often as it is told to be, and a clock that moves only when it is told to.

With these a planner can be put to cases whose best answer is known, and put there again: nothing is measured.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

from foredraft.drafters.base import RequestView
from foredraft.testing.drafters import _Double
from foredraft.testing.table_model import TableModel
from foredraft.tree import Budget, DraftTree

Acceptance = float | Sequence[float] | Callable[[int, int], float]
"""The chance that a drafted token is right, given that its parent is: one for all; one for each depth, the last for all
below; or a function of the token's place in the request and its depth (1 for a child of the root)."""


class SimulatedClock:
    """Seconds that pass only by `advance`; called, it says what time it is, as `time.perf_counter` does."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        """The time."""
        return self.now

    def advance(self, seconds: float) -> None:
        """Let time pass."""
        self.now += seconds


class SyntheticDrafter(_Double):
    """Knows what the target will say, and proposes chains of it that are right with a given probability.

    Whether a token is right depends on the seed, the request and the token's place alone, as that of a real drafter
    depends on the text: asked again, it says the same.

    outputs: what the target will say: the output tokens of every request, a mapping from request ids to them, or the
    target itself. Nothing is proposed beyond their end.
    acceptance: see `Acceptance`. vocab_size: wrong tokens are chosen below it.
    confidence: what it says of a token, from the true chance; None: that chance.
    step_s: seconds of one step for a number of requests; None: the drafter is free. read_s: seconds of reading one
    token. clock: where this time passes.
    """

    def __init__(
        self,
        outputs: Sequence[int] | Mapping[int, Sequence[int]] | TableModel,
        acceptance: Acceptance,
        *,
        seed: int = 0,
        vocab_size: int = 1000,
        confidence: Callable[[float], float] | None = None,
        step_s: Callable[[int], float] | None = None,
        read_s: float = 0.0,
        clock: SimulatedClock | None = None,
        name: str = "synthetic",
    ) -> None:
        super().__init__()
        self.name, self.free = name, step_s is None
        self._outputs, self._acceptance = outputs, acceptance
        self._seed, self._vocab_size, self._confidence = seed, vocab_size, confidence
        self._step_s, self._read_s, self._clock = step_s, read_s, clock or SimulatedClock()
        self._read: dict[int, tuple[int, ...]] = {}
        self.num_steps = 0

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """A chain for each request. Takes the time of its levels, and of what had to be read."""
        self.num_calls += 1
        asked = [(r, b) for r, b in zip(requests, budgets, strict=True) if b.num_tokens > 0]
        chains = {request.id: self._chain(request, budget) for request, budget in asked}
        if self._step_s is not None and asked:
            unread = sum(max(0, self.num_unread(request) - 1) for request, _ in asked)  # one rides along with the root
            self._clock.advance(unread * self._read_s)
            levels = [chains[request.id].num_draft_tokens for request, _ in asked]
            for level in range(max(levels)):
                self.num_steps += 1
                self._clock.advance(self._step_s(sum(level < depth for depth in levels)))
            # The last token of a chain was proposed, and not run itself.
            self._read |= {request.id: (*request.tokens, *chains[request.id].tokens[1:-1]) for request, _ in asked}
        return [chains.get(request.id, DraftTree.chain(request.tokens[-1])) for request in requests]

    def num_unread(self, request: RequestView) -> int:
        """See `CostlyDrafter`."""
        read = self._read.get(request.id, ())
        return len(request.tokens) - 1 - _common(read, request.tokens[:-1])

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `CostlyDrafter`."""
        return self._step_s(num_tokens) if self._step_s else 0.0

    def forget(self, request_id: int) -> None:
        """Note the end of a request."""
        super().forget(request_id)
        self._read.pop(request_id, None)

    def draft(self, request: RequestView, budget: int) -> DraftTree:
        """The chain for one request."""
        return self._chain(request, Budget(budget))

    def _chain(self, request: RequestView, budget: Budget) -> DraftTree:
        tokens: list[int] = []
        confidences: list[float] = []
        survival = 1.0
        for depth in range(1, budget.num_tokens + 1):
            place = len(request.tokens) + len(tokens)
            right = self._right_token(request, tokens)
            if right is None:
                break
            chance = self._chance(place, depth)
            confidence = chance if self._confidence is None else self._confidence(chance)
            said = right
            if self._uniform(request.id, place) >= chance:
                said = (right + 1) % self._vocab_size
            tokens.append(said)
            confidences.append(confidence)
            survival *= budget.chance(confidence, depth)
            if not budget.goes_on(survival, depth):
                break
        return DraftTree.chain(request.tokens[-1], tuple(tokens), tuple(confidences))

    def _right_token(self, request: RequestView, drafted: Sequence[int]) -> int | None:
        if isinstance(self._outputs, TableModel):
            return self._outputs.next_token([*request.tokens, *drafted], request.params)
        outputs = self._outputs[request.id] if isinstance(self._outputs, Mapping) else self._outputs
        place = len(request.tokens) - request.num_prompt_tokens + len(drafted)
        return outputs[place] if place < len(outputs) else None

    def _chance(self, place: int, depth: int) -> float:
        if callable(self._acceptance):
            return self._acceptance(place, depth)
        if isinstance(self._acceptance, Sequence):
            return self._acceptance[min(depth, len(self._acceptance)) - 1]
        return self._acceptance

    def _uniform(self, request_id: int, place: int) -> float:
        digest = hashlib.blake2b(repr((self._seed, request_id, place)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") / 2**64


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginnings."""
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)
