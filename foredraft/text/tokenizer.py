"""Tokenizer: text to token ids and back, for every vocabulary foredraft can read."""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Protocol

from foredraft.errors import UserError
from foredraft.text import detokenize, template
from foredraft.text.special import SpecialSplitter
from foredraft.text.vocabulary import Vocabulary
from foredraft.text.vocabulary import first_difference as _first_difference


class Encoder(Protocol):
    """What turns text into ids, without bos and eos; one implementation per source of vocabularies."""

    @property
    def splitter(self) -> SpecialSplitter:
        """The special tokens of the vocabulary."""
        ...

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of a whole text, user-defined tokens matched, control tokens only on request."""
        ...

    def encode_pieces(self, pieces: Iterable[int | str]) -> list[int]:
        """Return the ids of a text whose control tokens are already cut out."""
        ...


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A model's vocabulary with everything that depends on it.

    `bos_id` and `eos_ids` (every id that ends a generation), `add_bos` and `add_eos` (whether an encoded text
    starts or ends with them), `space_prefix` (a space is written before the first word) and `chat_template`
    come from the model's files.
    """

    vocabulary: Vocabulary
    encoder: Encoder
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    add_bos: bool
    add_eos: bool
    space_prefix: bool
    chat_template: str | None

    @property
    def vocab_size(self) -> int:
        """Number of real tokens: ids from here on only pad the model's tables."""
        return self.vocabulary.num_real

    @property
    def special_ids(self) -> frozenset[int]:
        """Ids of control and unknown tokens."""
        return self.vocabulary.special_ids

    def encode(self, text: str, *, add_special: bool = True, parse_special: bool = False) -> list[int]:
        """Return the ids of a text.

        `add_special` adds the beginning and end tokens that the model wants. With `parse_special=False` the
        text of a control token, such as `<|im_end|>`, stays ordinary text; user-defined tokens are matched
        either way.

        Raises `UserError` if the text is not valid Unicode (holds half of a surrogate pair).
        """
        ids = self.encoder.encode(_checked(text), parse_special=parse_special)
        if not add_special:
            return ids
        if self.add_bos and self.bos_id is not None:
            ids.insert(0, self.bos_id)
        if self.add_eos and self.eos_id is not None:
            ids.append(self.eos_id)
        return ids

    def decode(self, ids: Sequence[int], *, skip_special: bool = True, at_start: bool = True) -> str:
        """Return the text of ids; bytes that form no character become U+FFFD.

        `at_start` is that of `Detokenizer`.
        """
        return detokenize.decode(self, ids, skip_special=skip_special, at_start=at_start)

    def token_bytes(self, token_id: int) -> bytes:
        """Return the bytes that a token stands for; padding ids stand for none."""
        return self.vocabulary.bytes_of(token_id)

    def token_text(self, token_id: int) -> str:
        """Return a token as the vocabulary writes it; the empty string for ids past its end."""
        tokens = self.vocabulary.tokens
        return tokens[token_id] if 0 <= token_id < len(tokens) else ""

    def fingerprint(self) -> str:
        """Return a hash of the real tokens: equal vocabularies have equal fingerprints, however padded."""
        return self.vocabulary.fingerprint

    def render_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> str:
        """Return the text of a conversation as the model's chat template writes it.

        Further keywords are variables of the template (`tools`, `enable_thinking`, ...).
        Raises `UserError` if the model has no template or the template fails.
        """
        context = self._context(add_generation_prompt=add_generation_prompt)
        return template.render(self.chat_template, {**context, **kwargs, "messages": list(messages)})

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool = True,
        **kwargs: object,
    ) -> list[int]:
        """Return the ids of a conversation; text inside messages never becomes a control token.

        The template is rendered with messages in which every special-token text is broken by a mark (see
        `template.SpecialMarker`); control tokens are then looked for in the marked text, so only those that
        the template itself wrote are found. Exactly one beginning-of-text token leads if the model wants one,
        whether the template writes it or not.

        Raises `UserError` as `render_chat` does.
        """
        variables = {**self._context(add_generation_prompt=add_generation_prompt), **kwargs}
        _check_strings(messages)
        marks = template.Marks.unused_in(messages, variables, self.chat_template)
        marked = {key: self._marker.mark(value, marks) for key, value in kwargs.items()}
        marked["messages"] = self._marker.mark(list(messages), marks)
        text = _checked(template.render(self.chat_template, {**variables, **marked}))
        if marks.are_in(text):
            pieces = self.encoder.splitter.split(text, control=True, user_defined=False)
            plain = (p if isinstance(p, int) else marks.remove_from(p) for p in pieces)
            ids = self.encoder.encode_pieces([p for p in plain if p != ""])
        else:
            ids = self.encoder.encode(text, parse_special=True)
        if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id]:
            ids.insert(0, self.bos_id)
        return ids

    @cached_property
    def _marker(self) -> template.SpecialMarker:
        splitter = self.encoder.splitter
        return template.SpecialMarker(
            list(splitter.control), lambda text: splitter.found_in(text, control=True, user_defined=False)
        )

    def _context(self, *, add_generation_prompt: bool) -> dict[str, object]:
        return {
            "add_generation_prompt": add_generation_prompt,
            "bos_token": "" if self.bos_id is None else self.token_text(self.bos_id),
            "eos_token": "" if self.eos_id is None else self.token_text(self.eos_id),
            "tools": None,
            "documents": None,
        }


def first_difference(target: Tokenizer, drafter: Tokenizer) -> tuple[int, str, str] | None:
    """Return the first id whose token differs, with target's and drafter's text; None if all are equal.

    Padding is no difference; see `vocabulary.first_difference` for what counts.
    """
    return _first_difference(target.vocabulary, drafter.vocabulary)


def _checked(text: str) -> str:
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise UserError(
            f"the text is not valid Unicode: character {error.start + 1} is half of a surrogate pair "
            f"(U+{ord(text[error.start]):04X}); give the text as UTF-8"
        ) from None
    return text


def _check_strings(value: object) -> None:
    if isinstance(value, str):
        _checked(value)
    elif isinstance(value, Mapping):
        for inner in value.values():
            _check_strings(inner)
    elif isinstance(value, (list, tuple)):
        for inner in value:
            _check_strings(inner)
