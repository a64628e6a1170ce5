"""Every drafter behind a net: what it does wrong costs drafts, never a completion."""

import logging
import math
from collections.abc import Callable, Sequence
from typing import TypeVar

import numpy as np

from foredraft.accept.rejection import drawn_from
from foredraft.drafters.base import Drafter, Outcome, PromptFeatures, SequenceView, no_draft
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.errors import ForedraftError
from foredraft.tree import Budget, DraftTree

MAX_FAILURES = 3
"""Rounds with a failure after which a drafter is switched off: one that failed so often will go on failing."""

_NEVER_S = 3600.0
"""What a step takes of a drafter that cannot say it: so long that it is not worth asking."""
_ROUNDING = 1e-3
"""By which a confidence may be above 1."""
_Result = TypeVar("_Result")


class SupervisedDrafter(DelegatingDrafter):
    """Passes everything on to a drafter, and catches what it raises.

    A sequence for which it fails gets no draft from it in that round. After some rounds with a failure nothing is
    passed on any more but the ends of sequences. `problem` says what it failed in; the first time a warning does, too.

    vocab_size: of the target, to check proposals against; None: they are taken as they are.
    """

    def __init__(self, drafter: Drafter, *, vocab_size: int | None = None) -> None:
        super().__init__(drafter)
        self._drafter = drafter
        self._vocab_size = vocab_size
        self._num_failures = 0
        self._failed_in_round = False
        self._failure = ""

    @property
    def is_off(self) -> bool:
        """Whether it failed too often to be asked again."""
        return self._num_failures >= MAX_FAILURES

    @property
    def names(self) -> tuple[str, ...]:
        """See `Drafter`."""
        try:
            return self._drafter.names
        except Exception:
            return (self.name,)

    @property
    def problem(self) -> str:
        """See `Drafter`."""
        try:
            of_its_own = _one_line(self._drafter.problem)
        except Exception as error:
            of_its_own = f"drafter {self.name!r} {_failed_in('problem', error)}"
        return "; ".join(filter(None, (self._failure, of_its_own)))

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """See `Drafter`. Where it fails for several sequences, it is asked for one at a time."""
        trees = self._ask(sequences, budgets)
        if trees is not None:
            return trees
        if len(sequences) == 1:
            return [no_draft(sequences[0])]
        alone = [self._ask([sequence], [budget]) for sequence, budget in zip(sequences, budgets, strict=True)]
        return [no_draft(one) if trees is None else trees[0] for one, trees in zip(sequences, alone, strict=True)]

    def _ask(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree] | None:
        """What it proposes; None where it fails."""
        if self.is_off:
            return None
        try:
            trees: list[DraftTree] = self._drafter.propose(sequences, budgets)
            wrong = "" if self._vocab_size is None else _wrong(trees, sequences, budgets, self._vocab_size)
        except Exception as error:
            self._fail(_failed_in("propose", error))
            return None
        if wrong:
            self._fail(wrong)
            return None
        return list(trees)

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        """See `Drafter`."""
        self._try("begin", lambda: self._drafter.begin(sequence, features), None)

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        """See `Drafter`. With it a round is over."""
        self._try("observe", lambda: self._drafter.observe(sequences, outcomes), None)
        self._failed_in_round = False

    def end(self, sequence_id: int) -> None:
        """See `Drafter`. It is told of this even when it was switched off."""
        try:
            self._drafter.end(sequence_id)
        except Exception as error:
            self._fail(_failed_in("end", error))

    def num_uncached_tokens(self, sequence: SequenceView) -> int:
        """See `Drafter`."""
        return self._try("num_uncached_tokens", lambda: self._drafter.num_uncached_tokens(sequence), 0, valid=_is_count)

    def time_step(self, *, num_tokens: int, context: int) -> float:
        """See `Drafter`."""
        return float(
            self._try(
                "time_step",
                lambda: self._drafter.time_step(num_tokens=num_tokens, context=context),
                _NEVER_S,
                valid=lambda s: _is_number(s) and 0 <= s < math.inf and (s > 0 or self.model_free),
            )
        )

    def prefill(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        self._try("prefill", lambda: self._drafter.prefill(sequence, num_tokens), None)

    def begin_late(self, sequence: SequenceView, num_tokens: int) -> None:
        """See `Drafter`."""
        self._try("begin_late", lambda: self._drafter.begin_late(sequence, num_tokens), None)

    def reset_prefix_cache(self) -> None:
        """See `Drafter`."""
        self._try("reset_prefix_cache", lambda: self._drafter.reset_prefix_cache(), None)

    def _try(
        self,
        method: str,
        call: Callable[[], _Result],
        otherwise: _Result,
        *,
        valid: Callable[[_Result], bool] = lambda result: True,
    ) -> _Result:
        """What it says, or something else where it fails, says what makes no sense, or was switched off."""
        if self.is_off:
            return otherwise
        try:
            result = call()
        except Exception as error:
            self._fail(_failed_in(method, error))
            return otherwise
        if not valid(result):
            self._fail(f"returned {_shown(result)} from `{method}`")
            return otherwise
        return result

    def _fail(self, what: str) -> None:
        """Note a failure. Those of one round count once."""
        is_first = not self._num_failures
        if not self._failed_in_round:
            self._failed_in_round = True
            self._num_failures += 1
        follows = (
            f"it is switched off after {MAX_FAILURES} failures" if self.is_off else "it is left out where it fails"
        )
        self._failure = f"drafter {self.name!r} {what}; {follows}"
        if is_first:
            logging.getLogger("foredraft").warning(self._failure)


def _wrong(trees: object, sequences: Sequence[SequenceView], budgets: Sequence[Budget], vocab_size: int) -> str:
    """What is wrong with a proposal; empty: nothing."""
    if not isinstance(trees, list | tuple) or len(trees) != len(sequences):
        return f"proposed {_shown(trees)} instead of a list of {len(sequences)} trees, one for each sequence"
    found = (
        _wrong_tree(tree, sequence.tokens[-1], budget, vocab_size)
        for tree, sequence, budget in zip(trees, sequences, budgets, strict=True)
    )
    return next(filter(None, found), "")


def _wrong_tree(tree: object, root: int, budget: Budget, vocab_size: int) -> str:
    if not isinstance(tree, DraftTree):
        return f"proposed {_shown(tree)} instead of a DraftTree"
    if tree.tokens[0] != root:
        return f"proposed a tree with root {tree.tokens[0]!r} where the last token is {root}"
    if tree.num_draft_tokens > max(budget.num_tokens, 0):
        return f"proposed {tree.num_draft_tokens} tokens where {budget.num_tokens} were asked for"
    tokens: Sequence[object] = tree.tokens[1:]
    for token in tokens:
        if not isinstance(token, int):
            return f"proposed token {_shown(token)}, which is no int"
        if not 0 <= token < vocab_size:
            return f"proposed token {token}, which is not in the vocabulary of {vocab_size}"
    for confidence in tree.confidence[1:]:
        if not (_is_number(confidence) and 0 <= confidence <= 1 + _ROUNDING):
            return f"proposed a token with confidence {_shown(confidence)}, which is not from 0 to 1"
    try:
        for node in (node for node, probs_V in enumerate(tree.draft_probs) if probs_V is not None):
            drawn_from(tree, node, vocab_size)
    except ForedraftError as error:
        return f"proposed a tree whose {error}"
    return ""


def _is_number(value: object) -> bool:
    return isinstance(value, int | float | np.floating)


def _is_count(value: object) -> bool:
    return isinstance(value, int) and value >= 0


def _failed_in(method: str, error: Exception) -> str:
    return f"failed in `{method}`: {type(error).__name__}: {_one_line(str(error))}"


def _shown(value: object) -> str:
    return _one_line(repr(value))


def _one_line(text: str) -> str:
    line = " ".join(text.split())
    return line if len(line) <= 120 else line[:117] + "..."
