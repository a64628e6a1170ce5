"""The page in Chromium, and an API with a script to answer it. Run by `make browser-tests`."""

import json
import mimetypes
import re
import shutil
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import pytest
from playwright.sync_api import Browser, BrowserContext, Page, sync_playwright

import foredraft

FILES = Path(foredraft.__file__).parent / "server" / "page"
POLICY = (
    "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'"
)
OPTIONS = [
    "--no-sandbox",
    "--disable-gpu",
    "--disable-quic",
    "--disable-background-networking",
    "--disable-component-update",
    "--disable-sync",
    "--disable-dev-shm-usage",
]
Json = dict[str, Any]


@dataclass
class Script:
    """How a question is answered.

    plain: what is said without drafts, where that is another text. pause_s: before each chunk. status: of HTTP, with
    text as its error. breaks, fails: whether the stream breaks off, or tells of an error, behind the text.
    """

    text: str = ""
    reasoning: str = ""
    plain: str | None = None
    pause_s: float = 0.0
    status: int = 200
    finish: str = "stop"
    breaks: bool = False
    fails: bool = False


@dataclass
class Api:
    """The state of the fake server: what it does, and what it was asked."""

    scripts: dict[str, Script] = field(default_factory=dict)
    models: list[str] = field(default_factory=lambda: ["small"])
    key: str = ""
    url: str = ""
    requests: list[Json] = field(default_factory=list)
    num_gone: int = 0
    """Clients that went away before their answer was complete."""

    def script(self, question: str) -> Script:
        return self.scripts.get(question, Script(f"You said: {question}"))


def rounds_of(text: str, *, drafted: bool) -> Iterator[tuple[list[Json], int]]:
    """The text as tokens, round by round, and how many were drafted. The last token of a round is the target's."""
    pieces = re.findall(r"\s*\S+|\s+", text)
    place = num_round = 0
    while place < len(pieces):
        length = (3, 2, 4)[num_round % 3] if drafted else 1
        source = ("suffix", "lookup", "recycle")[num_round % 3]
        round_ = pieces[place : place + length]
        tokens = [{"text": piece, "source": source} for piece in round_]
        if len(round_) == length:
            tokens[-1]["source"] = None
        num_accepted = sum(token["source"] is not None for token in tokens)
        # Every second round has drafted one token too many.
        yield tokens, num_accepted + (1 if drafted and num_round % 2 else 0)
        place += length
        num_round += 1


def chunks_of(script: Script, *, drafted: bool) -> Iterator[Json]:
    text = script.text if drafted or script.plain is None else script.plain
    num_tokens = num_drafted = num_accepted = num_rounds = 0
    yield {"choices": [{"index": 0, "delta": {"role": "assistant", "content": ""}, "finish_reason": None}]}
    for part, name in ((script.reasoning, "reasoning_content"), (text, "content")):
        for tokens, drafts in rounds_of(part, drafted=drafted):
            accepted = sum(token["source"] is not None for token in tokens)
            num_tokens, num_drafted = num_tokens + len(tokens), num_drafted + drafts
            num_accepted, num_rounds = num_accepted + accepted, num_rounds + 1
            told = {"tokens": tokens, "num_draft_tokens": drafts, "num_accepted_tokens": accepted}
            delta = {name: "".join(token["text"] for token in tokens)}
            yield {"choices": [{"index": 0, "delta": delta, "finish_reason": None, "drafts": told}], "usage": None}
    if script.fails:
        yield {"error": {"message": "out of memory <b>", "type": "server_error"}}
        return
    yield {"choices": [{"index": 0, "delta": {}, "finish_reason": script.finish}], "usage": None}
    speed = 90.0 if drafted else 50.0
    yield {
        "choices": [],
        "usage": {
            "prompt_tokens": 12,
            "completion_tokens": num_tokens,
            "prompt_tokens_details": {"cached_tokens": 4},
        },
        "timings": {
            "prompt_n": 8,
            "prompt_ms": 100.0,
            "predicted_n": num_tokens,
            "predicted_ms": num_tokens / speed * 1e3,
            "predicted_per_second": speed,
            "draft_n": num_drafted,
            "draft_n_accepted": num_accepted,
            "cache_n": 4,
        },
        "speculation": {
            "methods": ["suffix", "lookup", "recycle"] if drafted else [],
            "lossless": True,
            "num_rounds": num_rounds,
            "num_draft_tokens": num_drafted,
            "num_accepted_tokens": num_accepted,
            "acceptance_rate": num_accepted / num_drafted if num_drafted else None,
            "mean_acceptance_length": num_tokens / num_rounds if num_rounds else None,
            "reason": "the drafts are mostly right" if drafted else "asked for",
            "speedup": 1.83 if drafted else None,
            "by_method": {"suffix": {"num_draft_tokens": 9, "num_accepted_tokens": 6}} if drafted else {},
        },
    }


class Handler(BaseHTTPRequestHandler):
    api: Api
    protocol_version = "HTTP/1.1"
    timeout = 10

    def log_message(self, *_: object) -> None:
        pass

    def do_GET(self) -> None:
        path = urlsplit(self.path).path
        if path == "/v1/models":
            if self._has_key():
                entry = {"object": "model", "created": 0, "owned_by": "foredraft", "max_model_len": 2048}
                data = [{"id": name, **entry, "drafters": ["suffix", "lookup"]} for name in self.api.models]
                self._send(200, {"object": "list", "data": data})
            return
        file = FILES / ("index.html" if path == "/" else path.removeprefix("/page/"))
        if not file.is_file():
            self._send(404, {"error": {"message": "Not Found"}})
            return
        kind = mimetypes.guess_type(file.name)[0] or "application/octet-stream"
        self._send_bytes(200, kind, file.read_bytes())

    def do_POST(self) -> None:
        body = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
        if not self._has_key():
            return
        self.api.requests.append(body)
        script = self.api.script(body["messages"][-1]["content"])
        if script.status != 200:
            error = {"message": script.text, "type": "invalid_request_error", "code": None, "param": None}
            self._send(script.status, {"error": error})
            return
        self._begin(200, "text/event-stream", Connection="close")
        try:
            self._stream(script, drafted=body.get("draft") != "none")
        except (BrokenPipeError, ConnectionResetError):
            self.api.num_gone += 1

    def _stream(self, script: Script, *, drafted: bool) -> None:
        self.wfile.write(b": keep-alive\n\n")
        for chunk in chunks_of(script, drafted=drafted):
            if script.breaks and chunk["choices"] and chunk["choices"][0]["finish_reason"]:
                return
            time.sleep(script.pause_s)
            self.wfile.write(f"data: {json.dumps({'object': 'chat.completion.chunk', **chunk})}\n\n".encode())
            self.wfile.flush()
        if not script.fails:
            self.wfile.write(b"data: [DONE]\n\n")

    def _has_key(self) -> bool:
        if not self.api.key or self.headers.get("Authorization") == f"Bearer {self.api.key}":
            return True
        self._send(401, {"error": {"message": "no or a wrong API key", "code": "invalid_api_key"}})
        return False

    def _send(self, status: int, body: Json) -> None:
        self._send_bytes(status, "application/json", json.dumps(body).encode())

    def _send_bytes(self, status: int, kind: str, body: bytes) -> None:
        self._begin(status, kind, Content_Length=str(len(body)))
        self.wfile.write(body)

    def _begin(self, status: int, kind: str, **headers: str) -> None:
        self.send_response(status)
        self.send_header("Content-Type", kind)
        self.send_header("Content-Security-Policy", POLICY)
        for name, value in headers.items():
            self.send_header(name.replace("_", "-"), value)
        self.end_headers()


class Server(ThreadingHTTPServer):
    daemon_threads = True

    def handle_error(self, *_: object) -> None:
        """Tabs that are closed leave connections behind; nothing else goes wrong here unseen."""


@pytest.fixture
def api() -> Iterator[Api]:
    api = Api()
    server = Server(("127.0.0.1", 0), type("Bound", (Handler,), {"api": api}))
    api.url = f"http://127.0.0.1:{server.server_address[1]}/"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.02})
    thread.start()
    yield api
    server.shutdown()
    server.server_close()
    thread.join()


@pytest.fixture
def page_url(api: Api) -> str:
    """Where the page is, with an API behind it that answers as `api` says."""
    return api.url


@pytest.fixture(scope="package")
def browser() -> Iterator[Browser]:
    path = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert path, "these tests need Chromium: apt-get install chromium"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(executable_path=path, args=OPTIONS)
        yield browser
        browser.close()


@pytest.fixture
def context(browser: Browser, page_url: str) -> Iterator[BrowserContext]:
    context = browser.new_context(viewport={"width": 1000, "height": 800})
    context.set_default_timeout(8000)
    context.grant_permissions(["clipboard-read", "clipboard-write"], origin=page_url)
    yield context
    context.close()


@pytest.fixture
def page(context: BrowserContext) -> Iterator[Page]:
    """A tab. Errors of scripts, and what the policy forbids, fail the test at its end."""
    page = context.new_page()
    wrong: list[str] = []
    page.on("pageerror", lambda error: wrong.append(str(error)))
    page.on("console", lambda message: wrong.append(message.text) if message.type == "error" else None)
    yield page
    # What the server refuses, Chromium reports on its own.
    assert not [text for text in wrong if not text.startswith("Failed to load resource")]
