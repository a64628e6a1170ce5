"""The target: one forward pass over draft trees and prompt chunks together, and its own token after a node."""

from collections.abc import Sequence
from functools import cached_property
from typing import Protocol

import numpy as np

from foredraft.cache import BlockTable
from foredraft.errors import ForedraftError, ModelFileError, OptionError, UserError
from foredraft.kernels.operations import Floats
from foredraft.models.cached_decoder import CachedDecoder, Entry, ForwardResult
from foredraft.models.finite import not_finite_error
from foredraft.sampling import SamplingParams, SequenceView, choose, filtered_probs, processed
from foredraft.sampling.noise import FloatArray
from foredraft.tree import DraftTree

__all__ = ["NUM_LIKELIEST", "Entry", "ForwardResult", "ModelTarget", "Target", "usable_part"]

NUM_LIKELIEST = 8
"""Tokens with the largest logits that are told with the choice of a greedy one. To find them takes little longer."""
_NO_TOKEN = "the options leave no token to choose: loosen --logit-bias, --bad-words, --min-tokens or the grammar"


class Target(Protocol):
    """What rounds ask of a target. `ModelTarget` is the real one.

    vocab_size: the real tokens; a model may have logits for padding beyond them, which are never chosen.
    """

    @property
    def vocab_size(self) -> int:
        """The real tokens."""

    def forward(self, entries: Sequence[Entry]) -> ForwardResult:
        """One pass over draft trees and prompt chunks; nothing is committed. Results are valid until the next pass."""

    def commit(self, blocks: BlockTable, tree: DraftTree, path: Sequence[int]) -> None:
        """Keep the root and the accepted nodes of a tree that was just run; everything else is rolled back."""

    def tokens(self, logits_V: Floats, sequence: SequenceView, path: Sequence[int]) -> list[int]:
        """The token the target chooses after a sequence's tokens and those of a path below the root.

        A fixed one, since the noise depends on seed and position alone, and what options do on the tokens before it.
        Behind it the next likeliest tokens, where they come for free: in greedy text whose logits no option changes.
        Raises OptionError where the options leave no token.
        """

    def probs(
        self, logits_V: Floats, sequence: SequenceView, path: Sequence[int], params: SamplingParams
    ) -> FloatArray:
        """The distribution that the target's token there is drawn from over all seeds, under `params`: float64 [V].

        Raises OptionError as `tokens`.
        """


class ModelTarget:
    """A decoder as a target. See `Target`."""

    def __init__(self, decoder: CachedDecoder, vocab_size: int) -> None:
        self.decoder = decoder
        self.vocab_size = vocab_size

    def forward(self, entries: Sequence[Entry]) -> ForwardResult:
        """See `Target`."""
        result = self.decoder.forward(entries)
        logits_NV = [logits_NV[:, : self.vocab_size] for logits_NV in result.logits_NV]
        return ForwardResult(logits_NV, result.hidden_ND)

    def commit(self, blocks: BlockTable, tree: DraftTree, path: Sequence[int]) -> None:
        """See `Target`."""
        self.decoder.commit(blocks, tree, path)

    def tokens(self, logits_V: Floats, sequence: SequenceView, path: Sequence[int]) -> list[int]:
        """See `Target`."""
        as_it_is = sequence.params.greedy and sequence.processors is None
        try:
            chosen = choose(self.decoder.kernels, logits_V, sequence, path, count=NUM_LIKELIEST if as_it_is else 1)
        except UserError:
            raise
        except ForedraftError as error:  # a logit is no number
            raise self._error_of_the_file or error from None
        if not chosen:
            raise OptionError(_NO_TOKEN)
        return chosen

    @cached_property
    def _error_of_the_file(self) -> ModelFileError | None:
        """Why logits are no numbers, where the reason lies in the weights. Looked for when it has happened."""
        source = self.decoder.source
        return None if source is None else not_finite_error(source)

    def probs(
        self, logits_V: Floats, sequence: SequenceView, path: Sequence[int], params: SamplingParams
    ) -> FloatArray:
        """See `Target`."""
        row_V = processed(logits_V, sequence, path)
        if row_V.max() == -np.inf:
            raise OptionError(_NO_TOKEN)
        return filtered_probs(row_V, params)


def usable_part(tree: DraftTree, *, num_remaining: int, vocab_size: int) -> DraftTree:
    """The tree without what must not reach the target: ids outside the vocabulary, and nodes beyond the most drafted
    tokens that the sequence can still use.

    A node goes together with everything below it. A drafter's mistake thus costs speed, nothing else.

    Raises ForedraftError where tokens were drawn from a distribution over another vocabulary: to leave out those that
    do not exist here would bias rules that go by it.
    """
    if any(probs_V is not None and len(probs_V) != vocab_size for probs_V in tree.draft_probs):
        raise ForedraftError(f"draft_probs must be over the target's {vocab_size} tokens")
    if tree.num_draft_tokens <= num_remaining and all(0 <= token < vocab_size for token in tree.tokens[1:]):
        return tree
    kept = [0]
    for node in range(1, tree.num_nodes):
        fits = len(kept) <= num_remaining and 0 <= tree.tokens[node] < vocab_size
        if fits and tree.parents[node] in kept:
            kept.append(node)
    return tree.restricted(kept)
