"""Two completions of the same prompt: what differs, and where it begins."""

import contextlib
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from foredraft.bench.measuring import first_difference
from foredraft.engine import Completion
from foredraft.kernels.operations import Floats
from foredraft.llm import LLM
from foredraft.models.cached_decoder import Entry
from foredraft.tree import DraftTree

_OF_THE_RUN = {"timings", "speculation"}


@dataclass(frozen=True)
class Divergence:
    """The first token of a completion that is another one.

    position: index in the completion. plain, drafted: the tokens without and with speculation; None: it had ended.
    plain_logit, drafted_logit: the target's logits of the two after the tokens before, in plain decoding; gap: what is
    between them. Near 0, a tie was broken in another way; else something is wrong.
    """

    position: int
    plain: int | None
    drafted: int | None
    plain_text: str
    drafted_text: str
    plain_logit: float | None
    drafted_logit: float | None

    @property
    def gap(self) -> float | None:
        """How much larger the logit of plain decoding's token is."""
        if self.plain_logit is None or self.drafted_logit is None:
            return None
        return self.plain_logit - self.drafted_logit


@dataclass(frozen=True)
class Difference:
    """A completion that is not the one of plain decoding. parts: which of its parts differ."""

    prompt: str
    parts: tuple[str, ...]
    divergence: Divergence | None


def difference(llm: LLM, prompt: str, plain: Completion, drafted: Completion) -> Difference | None:
    """What differs between the completions without and with speculation; None: nothing."""
    expected, found = plain.to_json_dict(), drafted.to_json_dict()
    parts = [name for name in expected if name not in _OF_THE_RUN and expected[name] != found.get(name)]
    parts += [name for name in found if name not in expected]
    if not parts:
        return None
    return Difference(prompt, tuple(parts), _divergence(llm, prompt, expected, found))


def _divergence(llm: LLM, prompt: str, expected: dict[str, Any], found: dict[str, Any]) -> Divergence | None:
    for plain, drafted in zip(_token_ids(expected), _token_ids(found), strict=False):
        position = first_difference(plain, drafted)
        if position is not None:
            return _at(llm, prompt, plain, drafted, position)
    return None


def _token_ids(completion: dict[str, Any]) -> list[list[int]]:
    """Of each of the choices where there are several."""
    return [choice["token_ids"] for choice in completion.get("choices") or [completion]]


def _at(llm: LLM, prompt: str, plain: Sequence[int], drafted: Sequence[int], position: int) -> Divergence:
    tokens = [token_ids[position] if position < len(token_ids) else None for token_ids in (plain, drafted)]
    logits_V = plain_logits(llm, [*llm.tokenizer.encode(prompt), *plain[:position]])
    texts = ["(end)" if token is None else llm.tokenizer.decode([token], skip_special=False) for token in tokens]
    logits = [None if token is None else float(logits_V[token]) for token in tokens]
    return Divergence(position, tokens[0], tokens[1], texts[0], texts[1], logits[0], logits[1])


def plain_logits(llm: LLM, tokens: Sequence[int]) -> Floats:
    """The target's logits after these tokens, computed anew: float32 [V]."""
    decoder = llm.decoder
    with llm.exclusive(), contextlib.closing(decoder.cache.open()) as blocks:
        decoder.prefill(blocks, tokens[:-1])
        [logits_NV] = decoder.forward([Entry(blocks, DraftTree.chain(tokens[-1]))]).logits_NV
        logits_V: Floats = logits_NV[0, : llm.tokenizer.vocab_size].copy()
        return logits_V
