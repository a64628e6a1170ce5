"""Which sequences take part in the next pass: running ones first, then chunks of prompts up to a budget of tokens.

First come, first served. A sequence is admitted when there is room in the cache for all of its tokens. Where the cache
runs full, the sequence that came last is preempted: it gives its blocks back, waits in front of all others, and is
computed anew later. So the one that came first always goes on, and nobody starves.
"""

from collections import deque
from dataclasses import dataclass

from foredraft.cache import OutOfBlocksError
from foredraft.kernels.batch import BLOCK_POSITIONS
from foredraft.sequence import Batch, PromptChunk, Sequence, Status

MAX_LOGIT_TOKENS = 32
"""Most tokens of a chunk whose logits are wanted: a row of logits takes as much memory as a whole vocabulary."""
MIN_CHUNK_TOKENS = 16
"""A prompt gets on by so many tokens a pass, however many sequences run."""


@dataclass(frozen=True)
class Wish:
    """What a sequence wants of its prompt: the logits, and no token to be taken from the prefix cache."""

    logits: bool = False
    all_computed: bool = False


class Scheduler:
    """The sequences of one engine in the order of their arrival.

    max_running: most sequences that take part at a time. max_batched_tokens: of one pass, tokens that must be computed;
    drafted tokens come on top.
    """

    def __init__(self, *, max_running: int, max_batched_tokens: int) -> None:
        self._max_running = max_running
        self._max_batched_tokens = max_batched_tokens
        self._waiting: deque[Sequence] = deque()
        self._active: list[Sequence] = []
        self._wishes: dict[int, Wish] = {}

    @property
    def sequences(self) -> tuple[Sequence, ...]:
        """All that are not over, in the order of their arrival."""
        return (*self._active, *self._waiting)

    @property
    def num_active(self) -> int:
        """Sequences that have been admitted."""
        return len(self._active)

    @property
    def num_waiting(self) -> int:
        """Sequences that have not, or were preempted."""
        return len(self._waiting)

    def add(self, sequence: Sequence, wish: Wish) -> None:
        """Queue a sequence."""
        self._wishes[sequence.id] = wish
        self._waiting.append(sequence)

    def remove(self, sequence: Sequence) -> bool:
        """Take a sequence out and give its blocks back; whether it was there."""
        if self._wishes.pop(sequence.id, None) is None:
            return False
        for queue in (self._active, self._waiting):  # in neither where an interrupt came between the two
            if sequence in queue:
                queue.remove(sequence)
        sequence.blocks.close()
        return True

    def schedule(self) -> Batch:
        """What the next pass works on; blocks for it are reserved. Empty where nothing can go on."""
        running = self._running_with_blocks()
        budget = max(MIN_CHUNK_TOKENS, self._max_batched_tokens - len(running))
        chunks: list[PromptChunk] = []
        for sequence in list(self._active):
            if sequence.status is Status.PREFILLING and budget > 0:
                chunk = self._chunk(sequence, budget, chunks)
                if chunk is not None:
                    chunks.append(chunk)
                    budget -= chunk.num_tokens
        while self._waiting and budget > 0 and self._admit(self._waiting[0], chunks):
            sequence = self._waiting.popleft()
            self._active.append(sequence)
            if sequence.status is Status.RUNNING:
                running.append(sequence)
            else:
                chunk = self._chunk(sequence, budget, chunks)
                if chunk is not None:
                    chunks.append(chunk)
                    budget -= chunk.num_tokens
        # Room made for a sequence may have come from one that is in the batch already.
        return Batch(
            tuple(sequence for sequence in running if sequence.status is Status.RUNNING),
            tuple(chunk for chunk in chunks if chunk.sequence.status is Status.PREFILLING),
        )

    def computed(self, sequence: Sequence) -> None:
        """A chunk of the sequence was computed; others that begin alike may have it."""
        sequence.blocks.publish(sequence.tokens)
        if sequence.num_computed_tokens == len(sequence.tokens) - 1:
            sequence.status = Status.RUNNING

    def _running_with_blocks(self) -> list[Sequence]:
        """The running sequences, each with a block for its root."""
        for sequence in list(self._active):
            if sequence.status is Status.RUNNING:
                self._reserve(sequence, 1)
        return [sequence for sequence in self._active if sequence.status is Status.RUNNING]

    def _reserve(self, sequence: Sequence, num_positions: int) -> bool:
        """Make room behind what is computed, if need be by preempting those that came later; whether there is."""
        while True:
            try:
                sequence.blocks.reserve(num_positions)
                return True
            except OutOfBlocksError:
                last = self._active[-1]
                self._preempt(last)
                if last is sequence:
                    return False

    def _preempt(self, sequence: Sequence) -> None:
        """Give its blocks back; what is not needed elsewhere before will be found again."""
        sequence.blocks.publish(sequence.tokens)
        sequence.blocks.close()
        sequence.status = Status.WAITING
        sequence.num_preemptions += 1
        self._active.remove(sequence)
        self._waiting.appendleft(sequence)

    def _admit(self, sequence: Sequence, chunks: list[PromptChunk]) -> bool:
        """Whether a waiting sequence can begin now: there is a place for it, and room for its tokens."""
        if len(self._active) >= self._max_running or _is_being_computed(sequence, chunks):
            return False
        self._reuse(sequence)
        # What others still need of their prompts, and a block for each to grow into, lest one be preempted at once.
        promised = sum(_num_missing(one) + 1 for one in self._active)
        if promised + _num_missing(sequence) > sequence.blocks.num_available:
            sequence.blocks.close()  # what was taken over stays findable
            if not sequence.num_preemptions:
                sequence.num_cached_tokens = 0
            return False
        if sequence.num_computed_tokens == len(sequence.tokens) - 1:
            sequence.blocks.reserve(1)
            sequence.status = Status.RUNNING
        else:
            sequence.status = Status.PREFILLING
        return True

    def _reuse(self, sequence: Sequence) -> None:
        """Take over what is in the prefix cache, where that is welcome."""
        wish = self._wishes[sequence.id]
        if wish.logits or wish.all_computed:
            return
        num_found = sequence.blocks.reuse(sequence.tokens)
        if not sequence.num_preemptions:  # else it is what it had computed itself
            sequence.num_cached_tokens += num_found

    def _chunk(self, sequence: Sequence, budget: int, chunks: list[PromptChunk]) -> PromptChunk | None:
        """The next tokens of a prompt, all but its last, which is the first root."""
        if _is_being_computed(sequence, chunks):
            return None
        self._reuse(sequence)
        if sequence.num_computed_tokens == len(sequence.tokens) - 1:
            sequence.status = Status.RUNNING  # from the next pass on
            return None
        wish = self._wishes[sequence.id]
        most = min(budget, MAX_LOGIT_TOKENS) if wish.logits else budget
        num_tokens = min(most, len(sequence.tokens) - 1 - sequence.num_computed_tokens)
        if not self._reserve(sequence, num_tokens):
            return None
        return PromptChunk(sequence, num_tokens, wants_logits=wish.logits)


def _num_missing(sequence: Sequence) -> int:
    """Blocks that a sequence lacks for the tokens it has."""
    return sequence.blocks.num_missing(len(sequence.tokens) - sequence.num_computed_tokens)


def _is_being_computed(sequence: Sequence, chunks: list[PromptChunk]) -> bool:
    """Whether a chunk of this pass computes the very block that the sequence needs next: it will find it then."""
    start = sequence.num_computed_tokens
    end = start + BLOCK_POSITIONS
    if end >= len(sequence.tokens):
        return False
    for chunk in chunks:
        first = chunk.sequence.num_computed_tokens
        if first <= start and end <= first + chunk.num_tokens and chunk.sequence.tokens[:end] == sequence.tokens[:end]:
            return True
    return False
