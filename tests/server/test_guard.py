"""Who may use a server, and how much may come in; what hostile or broken clients get."""

import json
import socket
import time
from collections.abc import Iterator
from typing import Any

import httpx
import pytest
from helpers.serving import Running, serving, spec

from foredraft.llm import LLM
from foredraft.server import ModelPool, ServerOptions

ASK = {"model": "m", "prompt": "Once upon a time", "max_tokens": 4, "temperature": 0}


@pytest.fixture(scope="module")
def guarded(served_llm: LLM) -> Iterator[Running]:
    pool = ModelPool([spec("m", served_llm)])
    options = ServerOptions(
        api_keys=["secret", "other"],
        allowed_origins=["https://app.example"],
        allowed_hosts=["box.example"],
        max_body_mb=1,
        body_timeout_s=1.0,
        max_tokens=3,
        max_queue=2,
    )
    pool.load_first()
    with serving(pool, options) as running:
        yield running


def post(server: Running, *, key: str | None = "secret", **headers: str) -> httpx.Response:
    if key is not None:
        headers["Authorization"] = f"Bearer {key}"
    return httpx.post(f"{server.url}/v1/completions", json=ASK, headers=headers, timeout=60)


def raw(server: Running, data: bytes, *, timeout: float = 30) -> bytes:
    """What comes back for these bytes, until the server closes the connection."""
    with socket.create_connection(server.address, timeout=timeout) as connection:
        connection.sendall(data)
        found = b""
        while piece := connection.recv(65536):
            found += piece
        return found


def request(body: bytes, *headers: str, path: str = "/v1/completions", host: str = "localhost") -> bytes:
    lines = [f"POST {path} HTTP/1.1", f"Host: {host}", "Authorization: Bearer secret", "Connection: close"]
    lines += ["Content-Type: application/json", f"Content-Length: {len(body)}", *headers, "", ""]
    return "\r\n".join(lines).encode() + body


def test_a_key_is_needed(guarded: Running) -> None:
    assert post(guarded).status_code == 200
    assert post(guarded, key="other").status_code == 200
    assert post(guarded, key=None, **{"x-api-key": "other"}).status_code == 200
    for key in (None, "wrong", "secre", "secrets"):
        answer = post(guarded, key=key)
        assert answer.status_code == 401
        assert answer.json()["error"]["code"] == "invalid_api_key"
        assert answer.headers["www-authenticate"] == "Bearer"
    for path in ("/v1/models", "/metrics", "/tokenize", "/openapi.json", "/v1/messages"):
        assert httpx.get(f"{guarded.url}{path}").status_code == 401
    assert httpx.get(f"{guarded.url}/health").json() == {"status": "ok"}
    assert httpx.get(f"{guarded.url}/").status_code == 200


def test_pages_of_others_are_kept_out(guarded: Running) -> None:
    """Kind: any page that somebody reads uses the server on his machine."""
    assert post(guarded, Origin=guarded.url).status_code == 200
    allowed = post(guarded, Origin="https://app.example")
    assert allowed.status_code == 200
    assert allowed.headers["access-control-allow-origin"] == "https://app.example"
    preflight = httpx.options(
        f"{guarded.url}/v1/completions",
        headers={"Origin": "https://app.example", "Access-Control-Request-Method": "POST"},
    )
    assert preflight.status_code == 200
    for origin in ("https://evil.example", "null", "http://localhost:1", "http://["):
        answer = post(guarded, Origin=origin)
        assert answer.status_code == 403
        assert answer.json()["error"]["code"] == "origin_not_allowed"


def test_names_of_others_are_refused_on_loopback(guarded: Running) -> None:
    """Kind: DNS rebinding, a page whose own name leads to this machine."""
    for host in ("localhost", "127.0.0.1:8000", "[::1]:99", "box.example", "a.localhost"):
        assert post(guarded, Host=host).status_code == 200
    for host in ("evil.example", "evil.example:8000", "127.0.0.1.evil.example", ""):
        assert post(guarded, Host=host).status_code == 403


def test_bodies_have_a_limit(guarded: Running) -> None:
    large = json.dumps({**ASK, "prompt": "x" * (2 << 20)}).encode()
    assert raw(guarded, request(large)[:3000]).startswith(b"HTTP/1.1 413")  # told before it has come
    chunked = b"POST /v1/completions HTTP/1.1\r\nHost: localhost\r\nAuthorization: Bearer secret\r\n"
    chunked += b"Content-Type: application/json\r\nTransfer-Encoding: chunked\r\nConnection: close\r\n\r\n"
    chunked += b"".join(b"%x\r\n%s\r\n" % (65536, b" " * 65536) for _ in range(17)) + b"0\r\n\r\n"
    assert raw(guarded, chunked).startswith(b"HTTP/1.1 413")


def test_a_body_that_does_not_come_is_not_waited_for(guarded: Running) -> None:
    started = time.monotonic()
    answer = raw(guarded, request(b'{"model": "m"}')[:-5])
    assert answer.startswith(b"HTTP/1.1 408")
    assert time.monotonic() - started < 10


@pytest.mark.parametrize(
    ("body", "status"),
    [
        (b"", 400),
        (b"null", 400),
        (b"[]", 400),
        (b"{", 400),
        (b"\xff\xfe{}", 400),
        (b'{"model": "m"', 400),
        (b'{"model": "m", "prompt": NaN}', 400),
        (b'{"model": "m", "prompt": "a", "temperature": NaN}', 400),
        (b'{"model": "m", "prompt": "a", "temperature": 1e999}', 400),
        (b'{"model": "m", "prompt": "a", "seed": 1' + b"0" * 5000 + b"}", 400),
        (b'{"model": "m", "prompt": "\\ud800"}', 400),
        (b"[" * 100_000, 400),
        (b'{"model": "m", "prompt": ' + b"[" * 100_000 + b"]" * 100_000 + b"}", 400),
        (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, 400),
    ],
)
def test_bodies_that_are_none(guarded: Running, body: bytes, status: int) -> None:
    answer = raw(guarded, request(body))
    assert answer.split(b" ", 2)[1] == str(status).encode()
    error = json.loads(answer.partition(b"\r\n\r\n")[2])["error"]
    assert error["message"]
    assert "\n" not in error["message"]


def test_nested_schemas_and_grammars_end(guarded: Running) -> None:
    """Kind: a grammar or schema that is made to be slow stops the server for everybody."""
    deep: Any = {"type": "string"}
    for _ in range(400):
        deep = {"type": "array", "items": deep}
    forms = [
        {"response_format": {"type": "json_schema", "json_schema": {"name": "x", "schema": deep}}},
        {"regex": "(" * 3000 + "a" + ")" * 3000},
        {"regex": "((a{1,200}){1,200}){1,200}"},
        {"regex": "(a|aa|aaa)*b" * 50},
        {"grammar": "start: " + " | ".join(f'"{n}"' for n in range(20_000))},
        {"grammar": "start: start start | start"},
    ]
    for form in forms:
        started = time.monotonic()
        answer = httpx.post(
            f"{guarded.url}/v1/completions",
            json={**ASK, **form},
            headers={"Authorization": "Bearer secret"},
            timeout=60,
        )
        assert answer.status_code in (200, 400), answer.text
        assert time.monotonic() - started < 30
    assert post(guarded).status_code == 200


@pytest.mark.parametrize(
    "data",
    [
        b"GET / HTTP/9.9\r\n\r\n",
        b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03",
        b"GET /" + b"a" * 100_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\n" + b"X: y\r\n" * 400_000 + b"\r\n",
        b"GET /health HTTP/1.1\r\nHost: localhost\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\n",
    ],
)
def test_what_is_no_http_is_answered_and_closed(guarded: Running, data: bytes) -> None:
    try:
        answer = raw(guarded, data)
    except ConnectionResetError:
        answer = b""
    assert not answer or answer.startswith(b"HTTP/1.1 4")
    assert httpx.get(f"{guarded.url}/health").status_code == 200


def test_paths_that_are_not_there(guarded: Running) -> None:
    headers = {"Authorization": "Bearer secret"}
    for path in ("/v1/nothing", "/page/../app.py", "/page/%2e%2e/app.py", "/page/nothing.js", "/v1/models/x"):
        answer = httpx.get(f"{guarded.url}{path}", headers=headers)
        assert answer.status_code == 404
        assert "error" in answer.json()
    assert httpx.get(f"{guarded.url}/v1/completions", headers=headers).status_code == 405


def test_answers_are_no_longer_than_the_server_allows(guarded: Running) -> None:
    assert post(guarded).json()["usage"]["completion_tokens"] == 3


def test_more_requests_than_the_queue_holds_are_told_to_come_again(guarded: Running) -> None:
    guarded.state._num_open += 2
    try:
        answer = post(guarded)
    finally:
        guarded.state._num_open -= 2
    assert answer.status_code == 429
    assert int(answer.headers["retry-after"]) >= 1
    assert post(guarded).status_code == 200
