"""Tokenizer: text to token ids and back, for every vocabulary foredraft can read."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol

from foredraft.errors import UserError
from foredraft.text import detokenize
from foredraft.text.chat import Templates, conversation
from foredraft.text.traced import Traced, origins_of
from foredraft.text.vocabulary import Vocabulary
from foredraft.text.vocabulary import first_difference as _first_difference


class Encoder(Protocol):
    """What turns text into ids, without bos and eos; one implementation per source of vocabularies."""

    def encode(self, text: str, *, parse_special: bool) -> list[int]:
        """Return the ids of a whole text, user-defined tokens matched, control tokens only on request."""
        ...

    def encode_traced(self, text: str, origins: bytes) -> list[int]:
        """Return the ids of a conversation, where each character has an origin (see `traced`).

        Control tokens are found only in what the template wrote, other structural tokens also in answers.
        """
        ...


@dataclass(frozen=True, eq=False)
class Tokenizer:
    """A model's vocabulary with everything that depends on it.

    `bos_id` and `eos_ids` (every id that ends a generation), `add_bos` (whether an encoded text starts with it),
    `space_prefix` (a space is written before the first word) and `templates` come from the model's files. An end
    token is never put behind a text, whatever the files say: what is encoded here is continued.
    """

    vocabulary: Vocabulary
    encoder: Encoder
    bos_id: int | None
    eos_id: int | None
    eos_ids: frozenset[int]
    add_bos: bool
    space_prefix: bool
    templates: Templates

    @property
    def chat_template(self) -> str | None:
        """The model's chat template, None where it has none."""
        return self.templates.default

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

        `add_special` adds the beginning token that the model wants, unless the text begins with it. With
        `parse_special=False` the text of a control token, such as `<|im_end|>`, stays ordinary text; with True it
        becomes that token. User-defined tokens are matched either way.

        Raises `UserError` if the text is not valid Unicode (holds half of a surrogate pair).
        """
        ids = self.encoder.encode(_checked(text), parse_special=parse_special)
        return self._begun(ids) if add_special else ids

    def _begun(self, ids: list[int]) -> list[int]:
        return [self.bos_id, *ids] if self.add_bos and self.bos_id is not None and ids[:1] != [self.bos_id] else ids

    def check_ids(self, ids: Sequence[int]) -> list[int]:
        """Return token ids that came from outside; raises `UserError` for what is no id of the vocabulary."""
        for token_id in ids:
            if isinstance(token_id, bool) or not isinstance(token_id, int) or not 0 <= token_id < self.vocab_size:
                raise UserError(f"{token_id!r} is no token id of the model; they go from 0 to {self.vocab_size - 1}")
        return list(ids)

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
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> str:
        """Return the text of a conversation as the chat template writes it; options as in `encode_chat`."""
        options = (tools, documents, chat_template, chat_template_kwargs)
        text = self._render(messages, add_generation_prompt, continue_final_message, *options)
        return str.__getitem__(text, slice(None))  # an ordinary text, nothing of its origins

    def encode_chat(
        self,
        messages: Sequence[Mapping[str, object]],
        *,
        add_generation_prompt: bool | None = None,
        continue_final_message: bool = False,
        tools: Sequence[Mapping[str, object]] | None = None,
        documents: Sequence[Mapping[str, object]] | None = None,
        chat_template: str | None = None,
        chat_template_kwargs: Mapping[str, object] | None = None,
    ) -> list[int]:
        """Return the ids of a conversation.

        messages: objects with `role` and `content`, a text or a list of parts `{"type": "text", "text": ...}`; null
        counts as left out. add_generation_prompt: begin an answer; None: unless the last message is continued.
        continue_final_message: leave the last message open, for the model to go on with it. tools, documents: for
        templates that take them. chat_template: in place of the model's, or the name of one of several that it has.
        chat_template_kwargs: variables of the template, `enable_thinking` say.

        The template sees texts as they are. Text inside messages never becomes a control token, and a structural
        token that is none (`</think>`) only in messages of the assistant, which is where the model wrote it. Exactly
        one beginning-of-text token leads if the model wants one, whether the template writes it or not.

        Raises `UserError` if there is no template, or it fails, for what is no conversation, and for options that the
        template would ignore.
        """
        options = (tools, documents, chat_template, chat_template_kwargs)
        text = self._render(messages, add_generation_prompt, continue_final_message, *options)
        return self._begun(self.encoder.encode_traced(_checked(text), origins_of(text)))

    def _render(
        self,
        messages: Sequence[Mapping[str, object]],
        add_generation_prompt: bool | None,
        continue_final_message: bool,
        tools: Sequence[Mapping[str, object]] | None,
        documents: Sequence[Mapping[str, object]] | None,
        chat_template: str | None,
        chat_template_kwargs: Mapping[str, object] | None,
    ) -> Traced:
        _check_strings(messages)
        return conversation(
            self.templates,
            messages,
            add_generation_prompt=add_generation_prompt,
            continue_final_message=continue_final_message,
            tools=tools,
            documents=documents,
            chat_template=chat_template,
            chat_template_kwargs=chat_template_kwargs,
        ).render()


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
