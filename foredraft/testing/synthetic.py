"""A drafter that is right as often as it is told to be, and a clock that moves only when it is told to.

With these a planner can be put to cases whose best answer is known, and put there again: nothing is measured.
"""

import hashlib
from collections.abc import Callable, Mapping, Sequence

from foredraft.drafters.base import DrafterSpec, SequenceView
from foredraft.testing.drafters import Double
from foredraft.testing.table_model import TableModel
from foredraft.tree import Budget, DraftTree

Acceptance = float | Sequence[float] | Callable[[int, int], float]
"""The chance that a drafted token is right, given that its parent is: one for all; one for each depth, the last for all
below; or a function of the token's place in the sequence and its depth (1 for a child of the root)."""


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


class SyntheticDrafter(Double):
    """Knows what the target will say, and proposes chains of it that are right with a given probability.

    Whether a token is right depends on the seed, the sequence and the token's place alone, as that of a real drafter
    depends on the text: asked again, it says the same.

    outputs: what the target will say: the output tokens of every sequence, a mapping from sequence ids to them, or the
    target itself. Nothing is proposed beyond their end.
    acceptance: see `Acceptance`. vocab_size: wrong tokens are chosen below it.
    confidence: what it says of a token, from the true chance; None: that chance.
    step_s: seconds of one step for a number of sequences; None: the drafter is model-free. prefill_s: seconds of one
    token of prefill. clock: where this time passes.
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
        prefill_s: float = 0.0,
        clock: SimulatedClock | None = None,
        name: str = "synthetic",
    ) -> None:
        super().__init__()
        self.spec = DrafterSpec(name=name, model_free=step_s is None)
        self._outputs, self._acceptance = outputs, acceptance
        self._seed, self._vocab_size, self._confidence = seed, vocab_size, confidence
        self._step_s, self._prefill_s, self._clock = step_s, prefill_s, clock or SimulatedClock()
        self._computed: dict[int, tuple[int, ...]] = {}
        self.num_steps = 0

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """A chain for each sequence. Takes the time of its levels, and of what had to be prefilled."""
        self.num_calls += 1
        asked = [(s, b) for s, b in zip(sequences, budgets, strict=True) if b.num_tokens > 0]
        chains = {sequence.id: self._chain(sequence, budget) for sequence, budget in asked}
        if self._step_s is not None and asked:
            for sequence, _ in asked:
                self.prefill(sequence, self.num_uncached_tokens(sequence) - 1)  # one rides along with the root
            levels = [chains[sequence.id].num_draft_tokens for sequence, _ in asked]
            for level in range(max(levels)):
                self.num_steps += 1
                self._clock.advance(self._step_s(sum(level < depth for depth in levels)))
            # The last token of a chain was proposed, and not computed itself.
            self._computed |= {one.id: (*one.tokens, *chains[one.id].tokens[1:-1]) for one, _ in asked}
        return [chains.get(sequence.id, DraftTree.chain(sequence.tokens[-1])) for sequence in sequences]

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """See `Drafter`."""
        if self.model_free:
            return 0
        return len(sequence.tokens) - 1 - _common(self._computed.get(sequence.id, ()), sequence.tokens[:-1])

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`. Takes the time of so many tokens."""
        num_uncached = self.num_uncached_tokens(sequence)
        num_tokens = max(0, min(num_tokens, num_uncached))
        self._computed[sequence.id] = tuple(sequence.tokens[: len(sequence.tokens) - 1 - num_uncached + num_tokens])
        self._clock.advance(num_tokens * self._prefill_s)

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `Drafter`."""
        return self._step_s(num_tokens) if self._step_s else 0.0

    def end(self, sequence_id: int) -> None:
        """Note the end of a sequence."""
        super().end(sequence_id)
        self._computed.pop(sequence_id, None)

    def draft(self, sequence: SequenceView, budget: int) -> DraftTree:
        """The chain for one sequence."""
        return self._chain(sequence, Budget(budget))

    def _chain(self, sequence: SequenceView, budget: Budget) -> DraftTree:
        tokens: list[int] = []
        confidences: list[float] = []
        survival = 1.0
        for depth in range(1, budget.num_tokens + 1):
            place = len(sequence.tokens) + len(tokens)
            right = self._right_token(sequence, tokens)
            if right is None:
                break
            chance = self._chance(place, depth)
            confidence = chance if self._confidence is None else self._confidence(chance)
            said = right
            if self._uniform(sequence.id, place) >= chance:
                said = (right + 1) % self._vocab_size
            tokens.append(said)
            confidences.append(confidence)
            survival *= budget.chance(confidence, depth)
            if not budget.goes_on(survival, depth):
                break
        return DraftTree.chain(sequence.tokens[-1], tuple(tokens), tuple(confidences))

    def _right_token(self, sequence: SequenceView, drafted: Sequence[int]) -> int | None:
        if isinstance(self._outputs, TableModel):
            return self._outputs.next_token([*sequence.tokens, *drafted], sequence.params)
        outputs = self._outputs[sequence.id] if isinstance(self._outputs, Mapping) else self._outputs
        place = len(sequence.tokens) - sequence.num_prompt_tokens + len(drafted)
        return outputs[place] if place < len(outputs) else None

    def _chance(self, place: int, depth: int) -> float:
        if callable(self._acceptance):
            return self._acceptance(place, depth)
        if isinstance(self._acceptance, Sequence):
            return self._acceptance[min(depth, len(self._acceptance)) - 1]
        return self._acceptance

    def _uniform(self, sequence_id: int, place: int) -> float:
        digest = hashlib.blake2b(repr((self._seed, sequence_id, place)).encode(), digest_size=8).digest()
        return int.from_bytes(digest, "little") / 2**64


def _common(one: Sequence[int], other: Sequence[int]) -> int:
    """How many tokens two texts have in common at their beginnings."""
    shorter = min(len(one), len(other))
    return next((i for i in range(shorter) if one[i] != other[i]), shorter)
