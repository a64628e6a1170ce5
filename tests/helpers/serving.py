"""Servers on loopback that tests talk to, in a thread of the test's own process."""

import contextlib
import http.client
import threading
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import uvicorn

from foredraft.llm import LLM
from foredraft.server import ModelPool, ModelSpec, ServedModel, ServerOptions, create_app
from foredraft.server import run as running
from foredraft.server.generation import Server

HERMES = """{%- if tools %}<|im_start|>system
You may call functions: {% for tool in tools %}{{ tool | tojson }}
{% endfor %}For each call write <tool_call>
{"name": <function-name>, "arguments": <args-json-object>}
</tool_call><|im_end|>
{% endif %}{%- for message in messages %}<|im_start|>{{ message.role }}
{% if message.content is string %}{{ message.content }}{% endif %}{%- for call in message.tool_calls or [] %}<tool_call>
{"name": "{{ call.function.name }}", "arguments": {{ call.function.arguments | tojson }}}
</tool_call>{% endfor %}<|im_end|>
{% endfor %}{%- if add_generation_prompt %}<|im_start|>assistant
{% endif %}"""
"""A chat template with tools, as Hermes and Qwen2.5 write them, for models whose own has none."""


@dataclass(frozen=True)
class Running:
    """A server that answers at `url`. state: what its requests share."""

    url: str
    state: Server
    model: str = "smollm2-135m"
    tools_model: str = "tools"

    @property
    def address(self) -> tuple[str, int]:
        """Host and port."""
        host, _, port = self.url.removeprefix("http://").partition(":")
        return host, int(port)

    def connection(self, timeout: float = 60) -> http.client.HTTPConnection:
        """A bare connection to it."""
        return http.client.HTTPConnection(*self.address, timeout=timeout)


class _Kept:
    """A model that outlives its server."""

    def __init__(self, llm: LLM) -> None:
        self._llm = llm

    def __getattr__(self, name: str) -> Any:
        return getattr(self._llm, name)

    def close(self) -> None:
        pass


def spec(name: str, llm: LLM, *, num_bytes: int = 1, **chat_options: Any) -> ModelSpec:
    """A model that is loaded already, and stays so, by a name."""
    kept: Any = _Kept(llm)
    served = ServedModel(name=name, llm=kept, defaults={"temperature": 1.0}, chat_options=chat_options)
    return ModelSpec(name=name, num_bytes=num_bytes, load=lambda: served)


@contextlib.contextmanager
def serving(pool: ModelPool, options: ServerOptions | None = None, *, local_only: bool = True) -> Iterator[Running]:
    """Serve these models until the end of the context."""
    app = create_app(pool, options, local_only=local_only)
    listening = running.bind("127.0.0.1", 0)
    started = threading.Event()
    server: list[uvicorn.Server] = []

    def run() -> None:
        running.serve(
            app, listening, started=started.set, log_requests=False, shutdown_timeout_s=5, running=server.append
        )

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert started.wait(30)
    try:
        yield Running(f"http://127.0.0.1:{listening.getsockname()[1]}", app.state.server)
    finally:
        server[0].should_exit = True
        thread.join(30)
        assert not thread.is_alive()
