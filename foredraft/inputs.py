"""What may be given as a prompt or a conversation, and as options of it."""

from collections.abc import Mapping, Sequence
from typing import Any, TypedDict

from foredraft.errors import OptionError
from foredraft.text import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, or a mapping with one of "prompt" (a text) and "prompt_token_ids", as vLLM takes them."""


class ChatOptions(TypedDict, total=False):
    """How a conversation becomes tokens: see `foredraft.text.Tokenizer.encode_chat`."""

    add_generation_prompt: bool | None
    continue_final_message: bool
    tools: Sequence[Mapping[str, object]] | None
    documents: Sequence[Mapping[str, object]] | None
    chat_template: str | None
    chat_template_kwargs: Mapping[str, object] | None


class PromptOptions(ChatOptions, total=False):
    """How a plain text or a conversation becomes tokens. parse_special is for texts, all others for conversations."""

    parse_special: bool


def as_prompts(given: object) -> list[Prompt]:
    """The single prompts of one or several. A list of ids is one prompt, an empty list none. Raises OptionError."""
    if isinstance(given, str | Mapping) or (_is_ids(given) and given):
        return [given]  # type: ignore[list-item]
    if not isinstance(given, Sequence) or not all(isinstance(one, str | Mapping) or _is_ids(one) for one in given):
        raise OptionError("prompts must be a text, a list of token ids, or a list of these")
    return list(given)


def is_conversation(prompt: object) -> bool:
    """Whether it is a list of messages, or what was meant as one."""
    if isinstance(prompt, str | Mapping):
        return False
    return not isinstance(prompt, Sequence) or not prompt or not isinstance(prompt[0], int | str)


def tokens_of(prompt: Prompt, tokenizer: Tokenizer, *, parse_special: bool = False) -> list[int]:
    """The token ids of one prompt. Raises OptionError for what is none, and for an empty one.

    parse_special: whether special tokens written in a text are read as such.
    """
    if isinstance(prompt, Mapping):
        known = [key for key in ("prompt", "prompt_token_ids") if prompt.get(key) is not None]
        if len(known) != 1 or set(prompt) - {"prompt", "prompt_token_ids"}:
            raise OptionError(
                'a prompt given as a mapping needs either "prompt" or "prompt_token_ids", and no other key'
            )
        prompt = prompt[known[0]]
        if not (isinstance(prompt, str) if known[0] == "prompt" else _is_ids(prompt)):
            raise OptionError(f'"{known[0]}" must be {"a text" if known[0] == "prompt" else "a list of token ids"}')
    if not len(prompt):
        raise OptionError("the prompt is empty: give at least one character of text, or one token id")
    if isinstance(prompt, str):
        return tokenizer.encode(prompt, parse_special=parse_special)
    return [int(token) for token in prompt]


def _is_ids(given: object) -> bool:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return False
    return all(isinstance(token, int) and not isinstance(token, bool) for token in given)
