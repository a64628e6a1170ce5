"""A target whose distribution is known exactly."""

import hashlib
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

from foredraft.sampling.choose import SequenceView, processed
from foredraft.sampling.noise import FloatArray, Noise, gumbel
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.pick import filtered_probs, pick
from foredraft.tree import DraftTree


class TableModel:
    """A model whose next-token logits are a fixed function of the last `order` tokens.

    No weights and no cache: whatever a decoder does to its drafts, what this model would have said can be
    computed anew from the tokens alone (`generate`), and its distribution after any tokens is known
    (`probs`).

    order: number of last tokens that decide. vocab_size: length of a row of logits. seed: another seed is
    another model. scale: spread of the logits; 0 makes all tokens equally likely. one_hot: only one token
    can follow any tokens; all other logits are -inf.

    Raises ValueError when asked for the logits after a token outside the vocabulary: nothing may feed it one.
    """

    def __init__(
        self,
        order: int = 2,
        vocab_size: int = 32,
        seed: int = 0,
        *,
        scale: float = 1.0,
        one_hot: bool = False,
    ) -> None:
        self.order, self.vocab_size, self.seed = order, vocab_size, seed
        self._scale, self._one_hot = scale, one_hot
        self._rows: dict[tuple[int, ...], npt.NDArray[np.float32]] = {}

    def logits(self, tokens: Sequence[int]) -> npt.NDArray[np.float32]:
        """The logits of the token after `tokens`: float32 [V], not to be written to."""
        context = tuple(tokens[-self.order :])
        if context not in self._rows:
            self._rows[context] = self._row(context)
        return self._rows[context]

    def tree_logits(self, tokens: Sequence[int], tree: DraftTree) -> npt.NDArray[np.float32]:
        """The logits after each node of a draft: float32 [N, V]. Its root is the last of `tokens`."""
        if tree.tokens[0] != tokens[-1]:
            raise ValueError(f"the tree's root is token {tree.tokens[0]}, the last token {tokens[-1]}")
        paths = ([tree.tokens[i] for i in tree.path(node)] for node in range(tree.num_nodes))
        return np.stack([self.logits([*tokens, *path]) for path in paths])

    def probs(self, tokens: Sequence[int], params: SamplingParams) -> FloatArray:
        """The exact distribution of the token after `tokens`: float64 [V]."""
        return filtered_probs(self.logits(tokens), params)

    def next_token(
        self,
        tokens: Sequence[int],
        params: SamplingParams,
        *,
        sample_index: int = 0,
        sequence: SequenceView | None = None,
        path: Sequence[int] = (),
    ) -> int:
        """The token after `tokens` with the noise of `params.seed`.

        sequence, path: where options change logits, the sequence they belong to, and how `tokens` go on behind its own.
        Options that leave no token are then no options.
        """
        logits = self.logits(tokens)
        if sequence is not None:
            changed = processed(logits, sequence, path)
            logits, sample_index = (logits if changed.max() == -np.inf else changed), sequence.sample_index
        return pick(
            logits,
            temperature=params.temperature,
            top_k=params.top_k,
            top_p=params.top_p,
            min_p=params.min_p,
            noise=None if params.seed is None else Noise(params.seed, sample_index, len(tokens)),
        )

    def generate(
        self, tokens: Sequence[int], params: SamplingParams, num_tokens: int, *, sample_index: int = 0
    ) -> list[int]:
        """Plain decoding, one token at a time: the `num_tokens` tokens after `tokens`."""
        text = list(tokens)
        for _ in range(num_tokens):
            text.append(self.next_token(text, params, sample_index=sample_index))
        return text[len(tokens) :]

    def _row(self, context: tuple[int, ...]) -> npt.NDArray[np.float32]:
        for token in context:
            if not 0 <= token < self.vocab_size:
                raise ValueError(f"token {token} is outside the vocabulary of {self.vocab_size}")
        # A hash of its own, so that the table has nothing in common with the noise of sampling.
        digest = hashlib.blake2b(repr((self.seed, context)).encode(), digest_size=8).digest()
        values = gumbel(int.from_bytes(digest, "little"), 0, 0, np.arange(self.vocab_size))
        row = (self._scale * values).astype(np.float32)
        if self._one_hot:
            row = np.where(np.arange(row.size) == values.argmax(), np.float32(0), np.float32(-np.inf))
        row.flags.writeable = False
        return row
