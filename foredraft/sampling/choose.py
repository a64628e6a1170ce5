"""From a row of logits to a token under all options of a sequence. Target and drafters both choose by it."""

from collections.abc import Sequence
from typing import Any, Protocol

import numpy as np

from foredraft.sampling.params import SamplingParams
from foredraft.sampling.processors.base import Processors, Row


class SequenceView(Protocol):
    """A sequence as all but its owner see it: what the choice of its next token depends on besides the logits.

    Drafters and planners get no more than this, so a drafter can choose as the target does (`choose`).
    """

    @property
    def id(self) -> int:
        """Stays the same from round to round, and is never used twice."""

    @property
    def tokens(self) -> Sequence[int]:
        """Prompt and output so far; the last one is the root of the next draft tree."""

    @property
    def num_prompt_tokens(self) -> int:
        """How many of the tokens are the prompt."""

    @property
    def max_length(self) -> int:
        """Most tokens, prompt included, that the sequence can come to."""

    @property
    def params(self) -> SamplingParams:
        """With a seed."""

    @property
    def sample_index(self) -> int:
        """Which of several completions of the same prompt this is, from 0."""

    @property
    def processors(self) -> Processors | None:
        """What its options do to logits; None: nothing."""


class Picks(Protocol):
    """The part of a set of kernels that chooses: see `foredraft.kernels.operations.Kernels.pick`."""

    def pick(
        self,
        logits_V: Row,
        *,
        temperature: float,
        top_k: int,
        top_p: float,
        min_p: float,
        noise: tuple[int, int, int],
        count: int = 1,
        token_ids: Any = None,
    ) -> list[int]:
        """Token ids by falling perturbed logit."""


def processed(logits_V: Row, sequence: SequenceView, path: Sequence[int] = (), *, token_ids: Any = None) -> Row:
    """The logits of the token after the sequence's tokens and `path`, as its options make them.

    path: tokens of a draft behind the sequence's own; its last one is the node whose logits these are; empty for the
    root. token_ids: which token each logit belongs to, in rising order; None: the i-th logit is token i's.

    The row given is not changed; it is returned itself where no option asks for anything. All logits are -inf where
    the options leave no token.
    """
    if sequence.processors is None:
        return logits_V
    return sequence.processors.apply(logits_V, sequence.tokens, path, token_ids)


def choose(
    kernels: Picks,
    logits_V: Row,
    sequence: SequenceView,
    path: Sequence[int] = (),
    *,
    count: int = 1,
    token_ids: Any = None,
) -> list[int]:
    """Token ids by falling perturbed logit, at most `count`, after the sequence's tokens and `path`.

    The first is the token that plain decoding would choose from these logits. A drafter that has logits of its own
    calls this with them: same options, same noise, so that what both find likely both choose. Arguments as for
    `processed`. Empty where the options leave no token.

    Raises ForedraftError when a logit is NaN or +inf.
    """
    return choose_processed(
        kernels,
        processed(logits_V, sequence, path, token_ids=token_ids),
        sequence,
        len(path),
        count=count,
        token_ids=token_ids,
    )


def choose_processed(
    kernels: Picks, logits_V: Row, sequence: SequenceView, depth: int, *, count: int = 1, token_ids: Any = None
) -> list[int]:
    """As `choose`, from logits that went through `processed` already. depth: length of the path."""
    if sequence.processors is not None and logits_V.max() == -np.inf:
        return []
    params = sequence.params
    return kernels.pick(
        logits_V,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        noise=(params.seed or 0, sequence.sample_index, len(sequence.tokens) + depth),
        count=count,
        token_ids=token_ids,
    )
