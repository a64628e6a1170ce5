"""How models write reasoning and calls of tools, told by their chat templates."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

Tool = Mapping[str, Any]
"""A tool as OpenAI has it: `{"type": "function", "function": {"name", "description", "parameters", "strict"}}`."""

ToolChoice = str
"""Which tools are to be called: "none", "auto", "required" (one at least), or the one function of this name."""


@dataclass(frozen=True)
class Tags:
    """What stands before and behind the reasoning at the start of an answer."""

    opening: str
    closing: str


@dataclass(frozen=True)
class CallFormat:
    """How calls are written.

    Behind an opening marker, a call is an object with name and arguments, an array of such, a name with the object of
    the arguments, or a function in tags; which of them, the text says. A closing marker may follow.

    marks: texts in chat templates that tell the format. bare: a call needs no marker where the answer starts, or behind
    another; such a marker is a special token mostly, which the text of an answer does not show.
    """

    marks: tuple[str, ...]
    opening: tuple[str, ...]
    closing: tuple[str, ...]
    bare: bool


_TAGS = (
    Tags("<think>", "</think>"),  # DeepSeek-R1, Qwen3, QwQ, GLM, SmolLM3, Phi-4 and most others
    Tags("[THINK]", "[/THINK]"),  # Magistral
    Tags("<seed:think>", "</seed:think>"),  # Seed-OSS
    Tags("<thought>", "</thought>"),  # EXAONE Deep
    Tags("<reasoning>", "</reasoning>"),
    Tags("<|START_THINKING|>", "<|END_THINKING|>"),  # Command R7B, Command A
)

FUNCTION = "<function="
_HERMES = CallFormat(("<tool_call>",), ("<tool_call>",), ("</tool_call>",), bare=False)
_FORMATS = (
    # Qwen3-Coder; it forgets the outer tag at times. Llama 3.1 has `<function=name>{...}</function>`.
    CallFormat((FUNCTION,), ("<tool_call>", FUNCTION), ("</tool_call>",), bare=False),
    CallFormat(("[TOOL_CALLS]",), ("[TOOL_CALLS]",), (), bare=True),  # Mistral
    # Granite; Phi-4-mini, which closes them too.
    CallFormat(("<|tool_call|>",), ("<|tool_call|>", "<tool_call>"), ("<|/tool_call|>", "</tool_call>"), bare=True),
    CallFormat(("functools",), ("functools",), (), bare=False),  # Phi-4-mini
    CallFormat(("<TOOLCALL>",), ("<TOOLCALL>",), ("</TOOLCALL>",), bare=False),  # Nemotron
    CallFormat(("<|START_ACTION|>",), ("<|START_ACTION|>",), ("<|END_ACTION|>",), bare=True),  # Command R7B, Command A
    CallFormat(("Action:",), ("Action: ```json", "Action:```json"), ("```",), bare=False),  # Command R
    _HERMES,  # Hermes, Qwen2.5, Qwen3, Granite 4 and many others
    CallFormat(("<|python_tag|>", "dictionary of argument name"), ("<|python_tag|>",), (), bare=True),  # Llama 3
)
_UNKNOWN = CallFormat((), _HERMES.opening, _HERMES.closing, bare=True)
_FORCED = CallFormat((), (), (), bare=True)
"""What `schema_for` makes of "required": an array of objects, and nothing else."""


@dataclass(frozen=True)
class AnswerForm:
    """What to look for in an answer.

    tags: of its reasoning, None where there is none to be found. inside: the prompt ends with the opening one.
    calls: None where none are to be found. called: the function whose arguments the whole answer is.
    tools: the schema of the parameters, by the names of the functions.
    """

    tags: Tags | None = None
    inside: bool = False
    calls: CallFormat | None = None
    called: str | None = None
    tools: Mapping[str, Mapping[str, Any]] = field(default_factory=dict)


def form_of(
    template: str | None,
    prompt_end: str,
    *,
    tools: Sequence[Tool] | None,
    choice: ToolChoice,
    reasoning: bool = True,
) -> AnswerForm:
    """What to look for in the answer to a prompt.

    template: source of the chat template. prompt_end: the text of the last tokens of the prompt, which may itself begin
    the reasoning. reasoning: False where the answer cannot hold any, because it is forced into a form.
    """
    known = {tool["function"]["name"]: tool["function"].get("parameters") or {} for tool in tools or ()}
    if not known or choice == "none":
        return _with_reasoning(template, prompt_end, AnswerForm()) if reasoning else AnswerForm()
    if choice == "required":
        return AnswerForm(calls=_FORCED, tools=known)
    if choice != "auto":
        return AnswerForm(called=choice, tools=known)
    form = AnswerForm(calls=_format_of(template or ""), tools=known)
    return _with_reasoning(template, prompt_end, form) if reasoning else form


def _format_of(template: str) -> CallFormat:
    return next((one for one in _FORMATS if any(mark in template for mark in one.marks)), _UNKNOWN)


def _with_reasoning(template: str | None, prompt_end: str, form: AnswerForm) -> AnswerForm:
    begun = next((tags for tags in _TAGS if prompt_end.rstrip().endswith(tags.opening)), None)
    # Templates of models that always reason may name the closing tag alone, to cut old reasoning out.
    named = next((tags for tags in _TAGS if tags.closing in (template or "")), None)
    return replace(form, tags=begun or named, inside=begun is not None)
