"""What may be given as a prompt or a conversation, checked where it enters."""

from collections.abc import Mapping, Sequence
from typing import Any

from foredraft.errors import OptionError
from foredraft.text import Tokenizer

Messages = Sequence[Mapping[str, Any]]
Prompt = str | Sequence[int] | Mapping[str, Any]
"""A text, token ids, or a mapping with one of "prompt" (a text) and "prompt_token_ids", as vLLM takes them."""


def as_prompts(given: object) -> list[Prompt]:
    """The single prompts of one or several. A list of ids is one prompt, an empty list none. Raises OptionError."""
    if isinstance(given, str | Mapping) or (_is_ids(given) and given):
        return [given]  # type: ignore[list-item]
    if not isinstance(given, Sequence) or not all(isinstance(one, str | Mapping) or _is_ids(one) for one in given):
        raise OptionError("prompts must be a text, a list of token ids, or a list of these")
    return list(given)


def tokens_of(prompt: Prompt, tokenizer: Tokenizer) -> list[int]:
    """The token ids of one prompt. Raises OptionError for what is none, and for an empty one."""
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
    return tokenizer.encode(prompt) if isinstance(prompt, str) else [int(token) for token in prompt]


def check_messages(messages: object) -> None:
    """Raise OptionError for what is no conversation."""
    if not isinstance(messages, Sequence) or isinstance(messages, str) or not messages:
        raise OptionError("a conversation must be a list of at least one message")
    for message in messages:
        texts = [message.get(key) for key in ("role", "content")] if isinstance(message, Mapping) else [None]
        if not all(isinstance(text, str) for text in texts):
            raise OptionError(f"a message must have a role and a content, both texts, got {message!r}")


def _is_ids(given: object) -> bool:
    if isinstance(given, str) or not isinstance(given, Sequence):
        return False
    return all(isinstance(token, int) and not isinstance(token, bool) for token in given)
