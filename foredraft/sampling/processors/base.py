"""What options do to a row of logits before a token is chosen from it, and the state that some of them need.

A processor sees the tokens of one request one after the other, and can go back. So it follows the target down a draft
tree, and a drafter down its own drafts: what it does after a node depends on the tokens on the way there and on
nothing else, however many rounds or detours it took.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np
import numpy.typing as npt

if TYPE_CHECKING:
    from foredraft.sampling.processors.grammar import Grammar

Row = npt.NDArray[np.float32]
TokenIds = npt.NDArray[np.integer[Any]]


class LogitProcessor(Protocol):
    """One option at work, for one request. It has been told of the prompt when it was made."""

    def push(self, token: int) -> None:
        """A token of the output, or of a draft that follows it. Any id of the vocabulary."""

    def pop(self, token: int) -> None:
        """Take back the last token pushed, which is this one."""

    def apply(self, logits_V: Row) -> None:
        """Change the logits of the next token in place; -inf is a token that must not be chosen."""


class Processors:
    """All processors of one request, in the order in which they apply.

    num_prompt_tokens: where the output begins. vocab_size: length of a whole row of logits. grammar: the one among
    the processors that gives the text its form, if any does.
    """

    def __init__(
        self,
        processors: Sequence[LogitProcessor],
        *,
        num_prompt_tokens: int,
        vocab_size: int,
        grammar: "Grammar | None" = None,
    ) -> None:
        self._processors = tuple(processors)
        self._grammar = grammar
        self._num_prompt_tokens = num_prompt_tokens
        self._vocab_size = vocab_size
        self._pushed: list[int] = []
        self._num_sure = 0

    def follow(self, tokens: Sequence[int], path: Sequence[int] = ()) -> None:
        """Bring every processor to the end of `tokens`, prompt and output of the request, and then of `path`.

        What was once among `tokens` is taken to stay there; of a path nothing is.
        """
        num_output = len(tokens) - self._num_prompt_tokens
        begin = self._num_sure
        wanted = [*tokens[self._num_prompt_tokens + begin :], *path]
        num_shared = 0
        for known, token in zip(self._pushed[begin:], wanted, strict=False):
            if known != token:
                break
            num_shared += 1
        while len(self._pushed) > begin + num_shared:
            token = self._pushed.pop()
            for processor in self._processors:
                processor.pop(token)
        for token in wanted[num_shared:]:
            self._pushed.append(token)
            for processor in self._processors:
                processor.push(token)
        self._num_sure = num_output

    def complete(self, tokens: Sequence[int]) -> bool:
        """Whether the text of these tokens has its form and nothing may follow."""
        if self._grammar is None:
            return False
        self.follow(tokens)
        return self._grammar.complete

    def forced(self, tokens: Sequence[int]) -> list[int]:
        """What the form of the text says has to follow these tokens; often nothing."""
        if self._grammar is None:
            return []
        self.follow(tokens)
        return self._grammar.forced()

    def apply(self, logits_V: Row, tokens: Sequence[int], path: Sequence[int], token_ids: TokenIds | None) -> Row:
        """What the options make of the logits after `tokens` and `path`; the row itself stays as it is.

        token_ids: which token each logit belongs to; None: the i-th logit is token i's. Raises OptionError where the
        text cannot go on in its form.
        """
        self.follow(tokens, path)
        if self._grammar is not None:
            self._grammar.check(len(path))
        if token_ids is None:
            row = np.array(logits_V, dtype=np.float32)
        else:
            row = np.full(self._vocab_size, -np.inf, dtype=np.float32)
            row[token_ids] = logits_V
        for processor in self._processors:
            processor.apply(row)
        return row if token_ids is None else row[token_ids]
