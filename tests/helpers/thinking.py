"""A served model whose answers hold all there is: reasoning, text and calls of a tool."""

import contextlib
from collections.abc import Iterator
from pathlib import Path

from foredraft.llm import LLM
from foredraft.server import ModelPool, ModelSpec, ServedModel
from helpers.serving import HERMES, Running, serving

_THINKS = "{{ reasoning_effort }}{% if enable_thinking %}Think first. {% endif %}" + HERMES.replace(
    "<|im_start|>assistant\n{% endif %}", "<|im_start|>assistant\n<think>{% endif %}"
)
_CALL = (
    r'<tool_call>\n\{"name": "get_weather", "arguments": \{"city": "[A-Z][a-z]{2,5}", "days": [1-9]\}\}\n</tool_call>'
)


@contextlib.contextmanager
def thinking(path: Path) -> Iterator[Running]:
    """Serve a model as "thinks". It has to think, say something and call `get_weather` twice, whatever it is asked."""
    with LLM(path, draft_memory="none", kv_memory="64M", context_length=256) as llm:
        defaults = {"regex": rf"[a-z ]{{5,12}}</think>[a-z ]{{5,12}}\n{_CALL}\n{_CALL}"}
        served = ServedModel(name="thinks", llm=llm, defaults=defaults, chat_options={"chat_template": _THINKS})
        with serving(ModelPool([ModelSpec(name="thinks", num_bytes=1, load=lambda: served)])) as running:
            yield running
