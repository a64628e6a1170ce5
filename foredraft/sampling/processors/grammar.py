"""The form of a text: JSON schema, regular expression or grammar, by the package llguidance.

The tokens that may come next are a mask over the logits. The state of the parser follows the tokens of a path and goes
back with it, so a draft is held against the grammar token by token, and what the grammar forces can be drafted.
"""

import importlib
import os
import threading
import weakref
from collections import OrderedDict
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from foredraft.errors import OptionError
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.processors.base import Row
from foredraft.sampling.processors.notation import exact_schema, one_line, plain_characters, reason_of

if TYPE_CHECKING:
    from foredraft.text import Tokenizer

JSON_STYLE = {"whitespace_flexible": False, "item_separator": ", ", "key_separator": ": "}
"""How JSON is written unless the schema says otherwise under "x-guidance": on one line, as Python's json does. Most of
it is then forced, and a small model cannot lose itself in white space."""
_NUM_KEPT = 16


class Grammar:
    """The form of one request's text, and how far the text has come in it.

    begin: an LLMatcher at the beginning of the text, which is never moved. option: what the user gave, for error
    messages.
    """

    def __init__(self, begin: Any, option: str) -> None:
        self._begin = begin
        self._matcher = begin.deep_copy()
        self._option = option
        self._followed: list[int] = []
        self._num_lost = 0  # tokens pushed since, and including, one that the grammar does not allow

    @property
    def complete(self) -> bool:
        """Whether no more can follow. A parser that has given up is not at an end: `apply` says so."""
        return not self._num_lost and bool(self._matcher.is_stopped()) and not self._matcher.is_error()

    def forced(self) -> list[int]:
        """Tokens that spell what has to follow; the target may spell it with others."""
        if self._num_lost or self._matcher.is_stopped():
            return []
        return [int(token) for token in self._matcher.compute_ff_tokens()]

    def push(self, token: int) -> None:
        """See `LogitProcessor`."""
        if self._num_lost or not self._matcher.try_consume_tokens([token]):
            self._num_lost += 1
        else:
            self._followed.append(token)

    def pop(self, token: int) -> None:
        """See `LogitProcessor`."""
        if self._num_lost:
            self._num_lost -= 1
        else:
            self._followed.pop()
            if not self._matcher.is_error():
                self._matcher.rollback(1)
        if not self._num_lost and self._matcher.is_error():  # it gave up in a draft, and does not go back from there
            self._matcher = self._begin.deep_copy()
            self._matcher.try_consume_tokens(self._followed)

    def check(self, num_drafted: int) -> None:
        """Raise OptionError where the text, but for its last `num_drafted` tokens, has left its form.

        Such a text was chosen under the grammar, so the grammar and the vocabulary do not fit together. Where only a
        draft has left it there is nothing to say: none of what follows is emitted.
        """
        if self._num_lost > num_drafted:
            self._refuse()
            raise OptionError(f"{self._option} cannot be followed any further: a token of the text is none of its own")

    def apply(self, logits_V: Row) -> None:
        """See `LogitProcessor`. After a complete text, or a draft that is none, all tokens are alike: none is emitted.

        Raises OptionError where the parser has given up, or no token of the vocabulary goes on.
        """
        if self._num_lost:
            return
        self._refuse()
        if self._matcher.is_stopped():
            return
        allowed = self._allowed(len(logits_V))
        self._refuse()
        logits_V[~allowed] = -np.inf

    def _allowed(self, vocab_size: int) -> npt.NDArray[np.bool_]:
        bits = np.frombuffer(self._matcher.compute_bitmask(), dtype=np.uint8)
        return np.unpackbits(bits, count=vocab_size, bitorder="little").astype(np.bool_)

    def _refuse(self) -> None:
        if self._matcher.is_error():
            raise OptionError(f"{self._option} cannot be followed any further: {reason_of(self._matcher)}")


class GrammarCompiler:
    """Makes the grammars of requests for one vocabulary; those used last are kept.

    vocab_size: length of a row of logits.
    """

    def __init__(self, tokenizer: "Tokenizer", vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._vocabulary: Any = None
        self._kept: OrderedDict[str, Any] = OrderedDict()
        self._begin_anew()
        _compilers.add(self)

    def _begin_anew(self) -> None:
        self._lock = threading.Lock()  # requests are prepared by several threads

    def compile(self, params: SamplingParams) -> Grammar:
        """The grammar that the parameters ask for.

        Raises OptionError where it means nothing, or where the package llguidance is not installed.
        """
        option, source = _source(_llguidance(params), params)
        with self._lock:
            if source not in self._kept:
                self._kept[source] = self._matcher(option, source)
                if len(self._kept) > _NUM_KEPT:
                    self._kept.popitem(last=False)
            self._kept.move_to_end(source)
            return Grammar(self._kept[source], option)

    def _matcher(self, option: str, source: str) -> Any:
        llguidance = importlib.import_module("llguidance")
        if self._vocabulary is None:
            self._vocabulary = _vocabulary(llguidance, self._tokenizer, self._vocab_size)
        matcher = llguidance.LLMatcher(self._vocabulary, source, log_level=0)
        if matcher.is_error():
            raise OptionError(f"{option} cannot be used: {reason_of(matcher)}")
        return matcher


_compilers: "weakref.WeakSet[GrammarCompiler]" = weakref.WeakSet()


def _after_fork_in_child() -> None:
    """The thread that was compiling is the parent's: here nobody would ever open its lock."""
    for compiler in list(_compilers):
        compiler._begin_anew()


os.register_at_fork(after_in_child=_after_fork_in_child)


def _llguidance(params: SamplingParams) -> Any:
    try:
        return importlib.import_module("llguidance")
    except ImportError:
        option = _option(params)
        raise OptionError(f"{option} needs the package llguidance: pip install 'foredraft[grammar]'") from None


def _option(params: SamplingParams) -> str:
    if params.json_schema is not None:
        return "--json-schema"
    if params.json_object:
        return "--json-object"
    return "--regex" if params.regex is not None else "--grammar"


def _source(llguidance: Any, params: SamplingParams) -> tuple[str, str]:
    """The option, and the grammar in llguidance's own notation."""
    option, matcher = _option(params), llguidance.LLMatcher
    try:
        if params.json_schema is not None:
            return option, matcher.grammar_from_json_schema(exact_schema(str(params.json_schema)), defaults=JSON_STYLE)
        if params.json_object:
            return option, matcher.grammar_from_json_schema('{"type": "object"}', defaults=JSON_STYLE)
        if params.regex is not None:
            return option, matcher.grammar_from_regex(params.regex)
        return option, llguidance.grammar_from("gbnf", plain_characters(params.grammar or ""))  # leaves Lark as it is
    except (ValueError, RecursionError) as error:  # not of this notation, or nested deeper than it reads
        raise OptionError(f"{option} cannot be used: {one_line(str(error))}") from None


def _vocabulary(llguidance: Any, tokenizer: "Tokenizer", vocab_size: int) -> Any:
    """The tokens as llguidance wants them. It needs an end token: where the model has none, one behind the others."""
    tokens = [tokenizer.token_bytes(token_id) for token_id in range(vocab_size)]
    special_ids = sorted(token_id for token_id in tokenizer.special_ids if token_id < vocab_size)
    end_ids = sorted(token_id for token_id in tokenizer.eos_ids if token_id < vocab_size)
    if not end_ids:
        end_ids = [vocab_size]
        special_ids.append(vocab_size)
        tokens.append(b"<end>")
    vocabulary = _Vocabulary(tokenizer, tokens, special_ids, end_ids[0])
    return llguidance.LLTokenizer(llguidance.TokenizerWrapper(vocabulary), n_vocab=len(tokens), eos_token=end_ids)


class _Vocabulary:
    """What llguidance asks of a tokenizer."""

    def __init__(self, tokenizer: "Tokenizer", tokens: list[bytes], special_ids: list[int], end_id: int) -> None:
        from foredraft.text.translation import ExactEncoder

        self._encoder = ExactEncoder(tokenizer, min(len(tokens), tokenizer.vocab_size))
        self.tokens = tokens
        self.special_token_ids = special_ids
        self.eos_token_id = end_id
        self.bos_token_id = tokenizer.bos_id

    def __call__(self, text: bytes | str) -> list[int]:
        """Token ids that spell a text byte for byte: the first of them may become the only token allowed."""
        return self._encoder.encode(text.encode() if isinstance(text, str) else text)
