"""Clients that mean harm, or know no better: each keeps the server busy with itself at most, and leaves nothing."""

import asyncio
import contextlib
import itertools
import json
import socket
import threading
import time
from collections.abc import AsyncGenerator, Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.serving import Running, serving, spec
from pydantic import ValidationError
from starlette.types import Message

from foredraft.config import DraftConfig
from foredraft.errors import OptionError
from foredraft.llm import LLM, SamplingParams
from foredraft.server import ModelPool, ServedModel, ServerOptions, run
from foredraft.server.anthropic_fields import MessagesRequest
from foredraft.server.connection import Event, EventStream
from foredraft.server.errors import ApiError
from foredraft.server.fields import Body
from foredraft.server.generation import Server, Wanted
from foredraft.server.openai_chat import ChatRequest
from foredraft.server.openai_completions import CompletionRequest
from foredraft.server.pool import MAX_WAYS, Drafting
from foredraft.server.request_log import RequestLog
from foredraft.server.responses_fields import ResponsesRequest

MANY = 2000
HALF = "\ud800"


@pytest.mark.parametrize(
    ("kind", "wrong"),
    [
        (CompletionRequest, {"prompt": [*[1] * MANY, "x"]}),
        (CompletionRequest, {"prompt": [[1]] * MANY + ["x"]}),
        (CompletionRequest, {"stop": [1] * MANY}),
        (CompletionRequest, {"logit_bias": {str(token): "x" for token in range(MANY)}}),
        (CompletionRequest, {f"field{number}": 1 for number in range(MANY)}),
        (ChatRequest, {"messages": [1] * MANY}),
        (ChatRequest, {"tools": [{}] * MANY}),
        (MessagesRequest, {"messages": [{"role": "user", "content": [{"type": "text"}] * MANY}] * 2}),
        (MessagesRequest, {"stop_sequences": [""] * MANY}),
        (ResponsesRequest, {"input": [{"type": "message"}] * MANY}),
        (ResponsesRequest, {"metadata": {str(number): number for number in range(MANY)}}),
    ],
)
def test_of_many_mistakes_few_are_reported(kind: type[Body], wrong: dict[str, Any]) -> None:
    """Kind: a body of 4 MB that is wrong everywhere stops all answers for a minute, while the report is written."""
    with pytest.raises(ValidationError) as caught:
        kind.model_validate(wrong)
    assert caught.value.error_count() < 15


def test_encoding_a_long_text_lets_others_go_on(served_llm: LLM) -> None:
    """Kind: a prompt of 10 MB, which is refused in the end, stops all answers for ten seconds."""
    ticks: list[float] = []
    done = threading.Event()

    def tick() -> None:
        while not done.is_set():
            ticks.append(time.perf_counter())
            time.sleep(0.002)

    thread = threading.Thread(target=tick)
    thread.start()
    started = time.perf_counter()
    served_llm.tokenizer.encode("hello world " * 200_000)
    took = time.perf_counter() - started
    done.set()
    thread.join()
    assert max(after - before for before, after in itertools.pairwise(ticks)) < took / 2


def test_half_of_a_surrogate_pair_can_be_logged(tmp_path: Path) -> None:
    """Kind: an answer is lost because of a field of a message that no template shows."""
    log = RequestLog(tmp_path / "log")
    said = {"messages": [{"role": "user", "content": "é", "name": HALF}]}
    log.write("m", said, SamplingParams(), [])
    log.close()
    assert json.loads((tmp_path / "log").read_text(encoding="utf-8"))["messages"] == said["messages"]


def test_numbers_of_thousands_of_digits_are_refused(server: Running) -> None:
    body = {"model": server.model, "prompt": "a", "logit_bias": {"1" * 5000: 1}}
    answer = httpx.post(f"{server.url}/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "logit_bias"


def test_nesting_is_not_told_in_the_log(server: Running, caplog: pytest.LogCaptureFixture) -> None:
    """Kind: a client fills the log with tracebacks of thousands of lines."""
    inner = "[" * 600 + "]" * 600
    content = f'{{"model": "tools", "messages": [{{"role": "user", "content": "a", "x": {inner}}}], "max_tokens": 1}}'
    answer = httpx.post(
        f"{server.url}/v1/chat/completions", content=content, headers={"Content-Type": "application/json"}
    )
    assert answer.status_code == 400
    httpx.get(f"{server.url}/health")  # what there is to log of the first comes behind its answer
    assert not any(record.exc_info for record in caplog.records)


def test_a_client_that_leaves_during_a_ping_leaves_no_task() -> None:
    """Kind: the answer runs on, as it was not being sent at the moment, and its generator cannot be closed."""
    order: list[str] = []

    async def events() -> AsyncGenerator[Event]:
        try:
            await asyncio.sleep(60)
            yield None, "never"
        finally:
            order.append("events end")

    async def close() -> None:
        order.append("close")

    async def answer() -> None:
        pinging = asyncio.Event()

        async def send(message: Message) -> None:
            if message.get("body"):
                pinging.set()
                await asyncio.sleep(60)

        async def receive() -> Message:
            await pinging.wait()
            return {"type": "http.disconnect"}

        stream = EventStream(events(), failed=lambda _: [], close=close, ping_s=0.01)
        await asyncio.wait_for(stream({"type": "http"}, receive, send), 10)
        assert asyncio.all_tasks() == {asyncio.current_task()}

    asyncio.run(answer())
    assert order == ["events end", "close"]


def test_clients_that_leave_while_they_wait_leave_no_threads(served_llm: LLM) -> None:
    """Kind: preparing goes on without its client, and each further one gets another thread."""
    server = Server(ModelPool([spec("m", served_llm)]), ServerOptions())
    end = threading.Event()

    def prompts(_: ServedModel) -> list[Any]:
        end.wait(30)
        return ["a"]

    async def begin() -> None:
        async with server.begin(Wanted(model="m", prompts=prompts, sampling={}, said={}), streams=False):
            pass

    async def leave() -> int:
        for _ in range(100):
            task = asyncio.create_task(begin())
            await asyncio.sleep(0.005)
            task.cancel()
            await asyncio.gather(task, return_exceptions=True)
        number = threading.active_count()
        end.set()
        return number

    before = threading.active_count()
    assert asyncio.run(leave()) - before < 50
    assert server._num_open == 0


@pytest.fixture
def stalling(served_llm: LLM, monkeypatch: pytest.MonkeyPatch) -> Iterator[Running]:
    """A server that soon gives up on those who take nothing, and whose system keeps little for them."""
    bind = run.bind

    def small(host: str, port: int) -> socket.socket:
        listening = bind(host, port)
        listening.setsockopt(socket.SOL_SOCKET, socket.SO_SNDBUF, 4096)
        return listening

    monkeypatch.setattr(run, "bind", small)
    monkeypatch.setattr(run, "STALLED_S", 0.3)
    pool = ModelPool([spec("m", served_llm)])
    pool.load_first()
    with serving(pool) as running:
        yield running


@pytest.mark.parametrize("stream", [True, False])
def test_an_answer_that_nobody_takes_ends(stalling: Running, *, stream: bool) -> None:
    """Kind: a client opens streams and reads nothing, until the server has no place left for others."""
    asked: dict[str, Any] = {
        "model": "m",
        "prompt": "Once",
        "max_tokens": 60,
        "n": 4,
        "logprobs": 20,
        "ignore_eos": True,
        "temperature": 1,
    }
    if stream:
        asked |= {"stream": True, "stream_options": {"include_usage": True}}
    body = json.dumps(asked).encode()
    with socket.socket() as connection:
        connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, 4096)
        connection.connect(stalling.address)
        connection.sendall(posted(body))
        wait_for(lambda: stalling.state._num_open == 1)
        wait_for(lambda: stalling.state._num_open == 0)
        time.sleep(1)
        found = b""
        while piece := connection.recv(65536):
            found += piece
    assert found.startswith(b"HTTP/1.1 200")
    assert b'"completion_tokens":' not in found


def posted(body: bytes) -> bytes:
    head = "POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    return f"{head}Content-Length: {len(body)}\r\n\r\n".encode() + body


def wait_for(what: Any) -> None:
    for _ in range(1200):
        if what():
            return
        time.sleep(0.02)
    raise AssertionError("it did not come to that")


class Fake:
    """A model that makes ways of drafting."""

    draft_config = DraftConfig()

    def with_drafts(self, config: DraftConfig) -> "Fake":
        made = Fake()
        made.draft_config = config
        return made


def test_as_many_ways_of_drafting_as_one_can_wait_for() -> None:
    """Kind: each way takes its own steps, and a client that asks for hundreds makes all others wait for hundreds."""
    model = ServedModel(name="m", llm=Fake())  # type: ignore[arg-type]
    ways = [Drafting(draft="lookup", num_speculative_tokens=number) for number in range(1, MAX_WAYS + 2)]
    kept = [model.reserved(way) for way in ways[:MAX_WAYS]]
    for one in kept:
        one.__enter__()
    made = [model.drafting(way) for way in ways[:MAX_WAYS]]
    with model.reserved(ways[0]), model.reserved(Drafting()):
        pass
    with pytest.raises(ApiError, match="come again"), model.reserved(ways[-1]):
        pass
    kept[0].__exit__(None, None, None)
    with model.reserved(ways[-1]):
        model.drafting(ways[-1])
        assert [model.drafting(way) for way in ways[1:MAX_WAYS]] == made[1:]
        assert model.drafting(ways[-1]) not in made
    assert len(model._ways) == MAX_WAYS


def test_a_request_has_no_model_made() -> None:
    """Kind: `skip` measures the model first, in which nobody's answer goes on, and keeps a cache for each way."""
    with pytest.raises(OptionError, match="'skip' is not offered"):
        Drafting(draft="skip").of(DraftConfig())
    assert Drafting(draft="skip").of(DraftConfig(drafters=("skip",))).drafters == ("skip",)
    assert Drafting(draft=("lookup",) * 1000).of(DraftConfig()) == Drafting(draft="lookup").of(DraftConfig())


def test_a_prediction_is_not_encoded_while_all_others_wait(server: Running) -> None:
    """Kind: a prediction of 10 MB is encoded within a step, and nobody's answer goes on meanwhile."""
    body = {"model": server.model, "prompt": "a", "prediction": "hello " * 9000}
    answer = httpx.post(f"{server.url}/v1/completions", json=body)
    assert answer.status_code == 400
    assert answer.json()["error"]["param"] == "prediction"


@pytest.mark.parametrize("ahead", [b"GET", b"GET /health HTTP/1.1\r\nHost: localhost\r\n\r\n"])
def test_a_client_that_leaves_is_seen_behind_what_it_asked_next(server: Running, ahead: bytes) -> None:
    """Kind: nothing is read behind a pipelined request, so an answer that nobody waits for runs to its end."""
    body = json.dumps({"model": server.model, "prompt": "a", "max_tokens": 5000, "ignore_eos": True}).encode()
    with socket.create_connection(server.address) as connection:
        connection.sendall(posted(body))
        wait_for(lambda: server.state._num_open == 1)
        connection.sendall(ahead)
        time.sleep(0.2)
    started = time.monotonic()
    wait_for(lambda: server.state._num_open == 0)
    assert time.monotonic() - started < 5


def test_what_is_asked_next_is_answered_in_turn(server: Running) -> None:
    body = json.dumps({"model": server.model, "prompt": "a", "max_tokens": 3, "stream": True}).encode()
    last = b"GET /health HTTP/1.1\r\nHost: localhost\r\nConnection: close\r\n\r\n"
    found = b""
    with socket.create_connection(server.address, timeout=60) as connection:
        connection.sendall(posted(body))
        for piece in (last[:10], last[10:]):
            time.sleep(0.01)
            connection.sendall(piece)
        while piece := connection.recv(65536):
            found += piece
    assert found.count(b"HTTP/1.1 200") == 2
    assert found.endswith(b'{"status":"ok"}')


def test_more_that_is_asked_next_than_is_kept_is_left_where_it_is(server: Running) -> None:
    """Kind: a client sends on while it is answered, and all of it is kept."""
    body = json.dumps({"model": server.model, "prompt": "a", "max_tokens": 200, "ignore_eos": True}).encode()
    num_sent = 0
    with socket.create_connection(server.address) as connection, contextlib.suppress(BlockingIOError):
        connection.sendall(posted(body))
        wait_for(lambda: server.state._num_open == 1)
        connection.setblocking(False)
        while num_sent < 20 << 20:
            num_sent += connection.send(bytes(65536))
            time.sleep(0.002)
    assert num_sent < 15 << 20  # what systems keep between them
    wait_for(lambda: server.state._num_open == 0)
