"""Verification: one forward pass of the target over the draft trees of all requests."""

from collections.abc import Callable, Sequence

import numpy as np

from foredraft.cache import CacheSequence
from foredraft.errors import ForedraftError, OptionError
from foredraft.kernels.operations import Floats
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.sampling import Choosing, SamplingParams, choose, filtered_probs, processed
from foredraft.sampling.noise import FloatArray
from foredraft.tree import DraftTree

NUM_LIKELIEST = 8
"""Tokens with the largest logits that are told with the choice of a greedy one. To find them takes little longer."""
_CHUNK_TOKENS = 32
_NO_TOKEN = "the options leave no token to choose: loosen --logit-bias, --bad-words, --min-tokens or the grammar"


class Verifier:
    """The target: runs trees, chooses its own token after a node, and keeps what was accepted.

    vocab_size: the real tokens; a model may have logits for padding beyond them, which are never chosen.
    """

    def __init__(self, decoder: CachedDecoder, vocab_size: int) -> None:
        self._decoder = decoder
        self.vocab_size = vocab_size

    def open(self, tokens: Sequence[int], see: Callable[[Floats], None] | None = None) -> tuple[CacheSequence, int]:
        """Cache all of a prompt but its last token, which is the first root. Requests that begin alike may share it.

        see: is shown the logits [tokens, V] after each of these tokens, piece by piece; nothing is then taken from the
        cache. They are views that are valid until it returns.

        Returns the sequence, and how many of the tokens were in the cache already.
        """
        sequence = self._decoder.cache.open(tokens if see is None else ())
        num_cached = len(sequence)
        try:
            if see is None:
                self._decoder.prefill(sequence, tokens[num_cached:-1])
            else:
                self._read(sequence, tokens[:-1], see)
            sequence.publish()
        except BaseException:  # an interrupt, say: nobody else knows of the sequence yet
            sequence.close()
            raise
        return sequence, num_cached

    def forget_texts(self) -> None:
        """Drop what is cached of requests that have ended."""
        self._decoder.cache.pool.forget_kept()

    def _read(self, sequence: CacheSequence, tokens: Sequence[int], see: Callable[[Floats], None]) -> None:
        for start in range(0, len(tokens), _CHUNK_TOKENS):
            root, *rest = tokens[start : start + _CHUNK_TOKENS]
            chunk = DraftTree.chain(root, tuple(rest))
            see(self.verify([sequence], [chunk])[0])
            sequence.commit(chunk.tokens)

    def verify(self, sequences: Sequence[CacheSequence], trees: Sequence[DraftTree]) -> list[Floats]:
        """Logits [nodes, V] of each tree. They are views that are valid until the next pass."""
        entries = [Entry(sequence, tree) for sequence, tree in zip(sequences, trees, strict=True)]
        return [logits[:, : self.vocab_size] for logits in self._decoder.forward(entries)]

    def target_tokens(self, logits_V: Floats, request: Choosing, path: Sequence[int]) -> list[int]:
        """The token the target chooses after the tokens of a request and those of a path below the root.

        A fixed one, since the noise depends on seed and position alone, and what options do on the tokens before it.
        Behind it the next likeliest tokens, where they come for free: in greedy text whose logits no option changes.
        Raises OptionError where the options leave no token.
        """
        as_it_is = request.params.greedy and request.processors is None
        chosen = choose(self._decoder.kernels, logits_V, request, path, count=NUM_LIKELIEST if as_it_is else 1)
        if not chosen:
            raise OptionError(_NO_TOKEN)
        return chosen

    def target_probs(
        self, logits_V: Floats, request: Choosing, path: Sequence[int], params: SamplingParams
    ) -> FloatArray:
        """The distribution that the target's token there is drawn from over all seeds, under `params`: float64 [V].

        Raises OptionError as `target_tokens`.
        """
        row_V = processed(logits_V, request, path)
        if row_V.max() == -np.inf:
            raise OptionError(_NO_TOKEN)
        return filtered_probs(row_V, params)

    def commit(self, sequence: CacheSequence, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the root and the accepted nodes; everything else is forgotten."""
        self._decoder.commit(sequence, tree, path)


def usable_part(tree: DraftTree, *, room: int, vocab_size: int) -> DraftTree:
    """The tree without what must not reach the target: ids outside the vocabulary, and nodes beyond the room
    (most drafted tokens that the request can still use).

    A node goes together with everything below it. A drafter's mistake thus costs speed, nothing else.

    Raises ForedraftError where tokens were drawn from a distribution over another vocabulary: to leave out those that
    do not exist here would bias rules that go by it.
    """
    if any(probs_V is not None and len(probs_V) != vocab_size for probs_V in tree.draft_probs):
        raise ForedraftError(f"draft_probs must be over the target's {vocab_size} tokens")
    if tree.num_draft_tokens <= room and all(0 <= token < vocab_size for token in tree.tokens[1:]):
        return tree
    kept = [0]
    for node in range(1, tree.num_nodes):
        fits = len(kept) <= room and 0 <= tree.tokens[node] < vocab_size
        if fits and tree.parents[node] in kept:
            kept.append(node)
    return tree.restricted(kept)
