"""From a conversation as clients send it to what a chat template is given."""

import secrets
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from foredraft.errors import UserError
from foredraft.text import template
from foredraft.text.traced import ANSWERED, SAID, WRITTEN, Traced, trace

Message = Mapping[str, object]

_RESERVED = frozenset(("messages", "tools", "documents", "add_generation_prompt", "continue_final_message"))
_REASONING = ("reasoning_content", "thinking", "reasoning")  # what clients call it; templates read the first
_PROBE = "what is said here"


@dataclass(frozen=True)
class Templates:
    """The chat templates of a model, and the special tokens that they call by name.

    default: the one for most conversations, None where the model has none. named: others, `tool_use` say.
    variables: names such as `pad_token` with the texts of these tokens.
    """

    default: str | None = None
    named: Mapping[str, str] = field(default_factory=dict)
    variables: Mapping[str, str] = field(default_factory=dict)

    def choose(self, wanted: str | None, *, tools: bool) -> str | None:
        """The template for a conversation. wanted: a template, or the name of one of the model's."""
        if wanted is not None:
            if not isinstance(wanted, str) or not wanted.strip():
                raise UserError("the chat template must be a text that is not empty")
            return self.named.get(wanted, wanted)
        return self.named.get("tool_use", self.default) if tools else self.default


@dataclass(frozen=True)
class Conversation:
    """What a chat template is given: its text, the messages, and the variables besides; checked, and traced.

    tag: what the last message ends with where that is to be continued, else the empty text.
    """

    source: str | None
    messages: list[dict[str, Any]]
    variables: dict[str, Any]
    tag: str = ""

    def render(self) -> Traced:
        """The text of the conversation; raises `UserError` where the template fails."""
        try:
            text = template.render(self.source, {**self.variables, "messages": self.messages})
        except UserError:
            if all("content" in message for message in self.messages):
                raise
            # Some templates look for calls of tools instead, others add the content to something.
            filled = [{"content": "", **message} for message in self.messages]
            text = template.render(self.source, {**self.variables, "messages": filled})
        return _cut(text, self.tag) if self.tag else text


def conversation(
    templates: Templates,
    messages: Sequence[Message],
    *,
    add_generation_prompt: bool | None,
    continue_final_message: bool,
    tools: Sequence[Mapping[str, object]] | None,
    documents: Sequence[Mapping[str, object]] | None,
    chat_template: str | None,
    chat_template_kwargs: Mapping[str, object] | None,
) -> Conversation:
    """Check a conversation and its options; see `Tokenizer.encode_chat` for them.

    Raises `UserError` for what is no conversation, and for options that the template would ignore.
    """
    if continue_final_message and add_generation_prompt:
        raise UserError("a conversation either continues its last message or begins a new one, not both")
    prompt = not continue_final_message if add_generation_prompt is None else add_generation_prompt
    source = templates.choose(chat_template, tools=tools is not None)
    extra = _extra(source, chat_template_kwargs)
    said = [_message(number, message) for number, message in enumerate(_listed("messages", messages), 1)]
    if not said:
        raise UserError("a conversation needs at least one message")
    tag = ""
    if continue_final_message:
        tag = f"CONTINUED-{secrets.token_hex(8)} "
        _leave_open(said[-1], tag)
    for name, value in (("tools", tools), ("documents", documents)):
        if value is not None and source is not None and name not in template.variables_of(source):
            raise UserError(f"the model's chat template has no place for {name}")
    given: dict[str, Any] = {
        "tools": None if tools is None else _mappings("tools", tools),
        "documents": None if documents is None else _mappings("documents", documents),
        "add_generation_prompt": prompt,
        **extra,
    }
    variables = {**trace({"bos_token": "", "eos_token": "", **templates.variables}, WRITTEN), **trace(given, SAID)}
    shaped = said if source is None else [_shaped(source, message) for message in said]
    traced = [trace(message, ANSWERED if message.get("role") == "assistant" else SAID) for message in shaped]
    return Conversation(source, traced, variables, tag)


def _listed(name: str, value: object) -> list[Any]:
    if isinstance(value, str | bytes | Mapping) or not isinstance(value, Sequence):
        raise UserError(f"{name} must be a list, not {type(value).__name__}")
    return list(value)


def _mappings(name: str, value: object) -> list[dict[str, Any]]:
    items = _listed(name, value)
    for number, item in enumerate(items, 1):
        if not isinstance(item, Mapping):
            raise UserError(f"{name} must be a list of objects; number {number} is of type {type(item).__name__}")
    return [dict(item) for item in items]


def _extra(source: str | None, values: Mapping[str, object] | None) -> dict[str, Any]:
    """Variables for the template; refused where it does not know them."""
    if values is None:
        return {}
    if not isinstance(values, Mapping) or not all(isinstance(name, str) for name in values):
        raise UserError("chat_template_kwargs must be an object whose keys are names of the template's variables")
    for name in values:
        if name in _RESERVED:
            raise UserError(f"chat_template_kwargs cannot set {name}, which has an option of its own")
        if source is not None and name not in template.variables_of(source):
            raise UserError(f"the model's chat template knows no variable {name!r} (chat_template_kwargs)")
    return dict(values)


def _message(number: int, message: object) -> dict[str, Any]:
    """A message with its content as text or as a list of parts; what is null counts as left out."""
    if not isinstance(message, Mapping):
        raise UserError(f"message {number} must be an object with role and content, not {type(message).__name__}")
    if not isinstance(message.get("role"), str):
        raise UserError(f"message {number} has no role")
    found = {str(key): value for key, value in message.items() if value is not None}
    content = found.get("content")
    if isinstance(content, list | tuple):
        found["content"] = [_part(number, part) for part in content]
    elif content is not None and not isinstance(content, str):
        raise UserError(f"message {number}: content must be a text or a list of parts, not {type(content).__name__}")
    elif content is None and not (found.keys() - {"role", "name"}):
        raise UserError(f"message {number} has no content")
    reasoning = next((found[name] for name in _REASONING if name in found), None)
    return found if reasoning is None else {"thinking": reasoning, **found, "reasoning_content": reasoning}


def _part(number: int, part: object) -> dict[str, Any]:
    if isinstance(part, str):
        return {"type": "text", "text": part}
    kind = part.get("type", "text") if isinstance(part, Mapping) else type(part).__name__
    text = part.get("text") if isinstance(part, Mapping) else None
    if not isinstance(part, Mapping) or kind not in ("text", "input_text", "output_text") or not isinstance(text, str):
        raise UserError(
            f"message {number}: a part of type {kind!r} cannot be used; content may hold parts of text only"
        )
    return {**part, "type": "text"}


def _shaped(source: str, message: dict[str, Any]) -> dict[str, Any]:
    """The message with its content in the shape that the template reads: a text, or a list of parts."""
    content = message.get("content")
    if isinstance(content, list) and not _takes(source, parts=True):
        return {**message, "content": "\n".join(part["text"] for part in content)}
    if isinstance(content, str) and not _takes(source, parts=False) and _takes(source, parts=True):
        return {**message, "content": [{"type": "text", "text": content}]}
    return message


@lru_cache(maxsize=64)
def _takes(source: str, *, parts: bool) -> bool:
    """Whether a template writes what stands in a content of one shape, found out by trying."""
    content: object = [{"type": "text", "text": _PROBE}] if parts else _PROBE
    context = {"messages": [{"role": "user", "content": content}], "add_generation_prompt": False}
    try:
        text = template.render(source, {"bos_token": "", "eos_token": "", "tools": None, **context})
    except UserError:
        return False
    return _PROBE in text and "'text'" not in text and '"text"' not in text


def _leave_open(message: dict[str, Any], tag: str) -> None:
    """Put a tag behind a message, so that its end is found in the text; as transformers does."""
    content = message.get("content")
    if isinstance(content, str):
        message["content"] = content + tag
    elif content:
        message["content"] = [*content[:-1], {**content[-1], "text": content[-1]["text"] + tag}]
    else:
        raise UserError("the last message has no content that could be continued")


def _cut(text: Traced, tag: str) -> Traced:
    place = text.rfind(tag.strip())
    if place < 0:
        raise UserError("the chat template does not write the last message as it is, so it cannot be continued")
    # A template that trims messages has trimmed the blank behind the tag, and would have trimmed those before it.
    return text[:place] if text.startswith(tag, place) else text[:place].rstrip()
