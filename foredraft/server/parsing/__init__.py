"""The text of an answer, split as it streams into plain text, reasoning and calls of tools."""

from foredraft.server.parsing.answer import AnswerParser
from foredraft.server.parsing.formats import AnswerForm, Tool, ToolChoice, form_of
from foredraft.server.parsing.parts import Arguments, Part, Reasoning, Text, ToolCall
from foredraft.server.parsing.schema import schema_for

__all__ = [
    "AnswerForm",
    "AnswerParser",
    "Arguments",
    "Part",
    "Reasoning",
    "Text",
    "Tool",
    "ToolCall",
    "ToolChoice",
    "form_of",
    "schema_for",
]
