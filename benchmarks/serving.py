"""Servers under load: tokens per second with more and more clients, ours with and without drafts, and llama-server.

Each client sends one prompt after the other over HTTP, and reads the stream. All servers get the same prompts, in
turns, each prompt once, so that no cache helps.
"""

import json
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Sequence
from contextlib import ExitStack
from dataclasses import asdict, dataclass
from pathlib import Path
from queue import Empty, SimpleQueue
from statistics import median
from typing import Any, Self

from foredraft.bench.peer import LlamaCpp

from .server import Server

REQUEST_TIMEOUT_S = 1800.0


@dataclass(frozen=True)
class Load:
    """What one server did with so many clients.

    tokens_per_s: of all answers, over the time from the first request to the last token. first_token_s: median.
    texts: the answers, by prompt.
    """

    server: str
    num_clients: int
    num_requests: int
    num_tokens: int
    seconds: float
    first_token_s: float
    texts: tuple[str, ...]

    @property
    def tokens_per_s(self) -> float:
        """See above."""
        return self.num_tokens / self.seconds

    def to_json(self) -> dict[str, Any]:
        """Plain values, without the texts."""
        return {name: value for name, value in asdict(self).items() if name != "texts"} | {
            "tokens_per_s": self.tokens_per_s
        }


class Ours:
    """A `foredraft serve` in a process of its own, on a free port."""

    def __init__(self, model: Path, options: Sequence[str], *, threads: int, log: Path) -> None:
        command = [sys.executable, "-m", "foredraft.cli.main", "serve", "-m", str(model), "--served-model-name", "m"]
        self._log = log.open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [*command, "--port", "0", "--threads", str(threads), *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._wait()
        threading.Thread(target=self._drain, daemon=True).start()

    def _wait(self) -> str:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.write(line)
            if "chat at " in line:
                return line.partition("chat at ")[2].split("/ ")[0]
        raise RuntimeError(f"foredraft serve did not start; see {self._log.name}")

    def _drain(self) -> None:
        assert self._process.stderr is not None
        for line in self._process.stderr:
            self._log.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()


def answer(url: str, prompt: str, max_tokens: int) -> tuple[str, int, float]:
    """The text of an answer, its number of tokens, and the seconds to its first piece."""
    body = {
        "model": "m",
        "messages": [{"role": "user", "content": prompt}],
        "max_tokens": max_tokens,
        "temperature": 0,
        "stream": True,
        "stream_options": {"include_usage": True},
    }
    request = urllib.request.Request(
        f"{url}/v1/chat/completions", json.dumps(body).encode(), {"Content-Type": "application/json"}
    )
    started, first, pieces, num_tokens = time.perf_counter(), 0.0, [], 0
    with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
        for line in response:
            if not line.startswith(b"data: {"):
                continue
            event = json.loads(line[6:])
            text = "".join(choice["delta"].get("content") or "" for choice in event["choices"])
            if text:
                first = first or time.perf_counter() - started
                pieces.append(text)
            if event.get("usage"):
                num_tokens = event["usage"]["completion_tokens"]
    return "".join(pieces), num_tokens, first


def load(name: str, url: str, prompts: Sequence[str], *, num_clients: int, max_tokens: int) -> Load:
    """Have so many clients send all prompts."""
    todo: SimpleQueue[int] = SimpleQueue()
    for place in range(len(prompts)):
        todo.put(place)
    answers: dict[int, tuple[str, int, float]] = {}

    def client() -> None:
        while True:
            try:
                place = todo.get_nowait()
            except Empty:
                return
            answers[place] = answer(url, prompts[place], max_tokens)

    threads = [threading.Thread(target=client) for _ in range(num_clients)]
    started = time.perf_counter()
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    seconds = time.perf_counter() - started
    if len(answers) < len(prompts):
        raise RuntimeError(f"{name}: {len(prompts) - len(answers)} requests failed")
    return Load(
        server=name,
        num_clients=num_clients,
        num_requests=len(prompts),
        num_tokens=sum(number for _, number, _ in answers.values()),
        seconds=seconds,
        first_token_s=median(first for _, _, first in answers.values()),
        texts=tuple(answers[place][0] for place in range(len(prompts))),
    )


def measure(
    model: Path,
    prompts: Sequence[str],
    *,
    clients: Sequence[int],
    max_tokens: int,
    threads: int,
    peer: LlamaCpp | None,
    peer_modes: Sequence[str],
    options: Sequence[str],
    per_client: int,
    log: Path,
) -> list[Load]:
    """Each number of clients with prompts of its own, which all servers get one after the other.

    Raises ValueError where there are too few prompts.
    """
    needed = [max(count * per_client, 4) for count in clients]
    if sum(needed) > len(prompts):
        raise ValueError(
            f"{sum(needed)} prompts are needed, a fresh one for each request, and there are {len(prompts)}"
        )
    common = ["--draft-memory", "none", "--max-running", str(max(clients)), *options]
    left = list(prompts)
    with ExitStack() as stack:
        drafted = stack.enter_context(Ours(model, common, threads=threads, log=log))
        plain = stack.enter_context(Ours(model, [*common, "--draft", "none"], threads=threads, log=log))
        urls = {"foredraft": drafted.url, "foredraft --draft none": plain.url}
        for mode in peer_modes if peer is not None else ():
            assert peer is not None
            server = Server(peer, mode, draft=None, context=4096 * max(clients), log=log, parallel=max(clients))
            urls[f"llama-server {mode}"] = stack.enter_context(server).url
        for url in urls.values():
            answer(url, "Good morning!", 8)
        found: list[Load] = []
        for turn, (count, number) in enumerate(zip(clients, needed, strict=True)):
            own, left = left[:number], left[number:]
            order = list(urls.items())
            for name, url in order[turn % len(order) :] + order[: turn % len(order)]:
                found.append(load(name, url, own, num_clients=count, max_tokens=max_tokens))
                print(f"{count:3d} clients  {name:24s} {found[-1].tokens_per_s:7.1f} tokens/s", file=sys.stderr)
    return found


def summary(found: Sequence[Load]) -> dict[str, Any]:
    """The figures, with ratios to plain decoding and to the best of llama-server, by number of clients."""
    rows = []
    for count in sorted({one.num_clients for one in found}):
        by_name = {one.server: one for one in found if one.num_clients == count}
        ours, plain = by_name["foredraft"], by_name["foredraft --draft none"]
        peers = [one for name, one in by_name.items() if name.startswith("llama-server")]
        best = max(peers, key=lambda one: one.tokens_per_s, default=None)
        rows.append(
            {
                "num_clients": count,
                "servers": {name: one.to_json() for name, one in by_name.items()},
                "to_plain": ours.tokens_per_s / plain.tokens_per_s,
                "to_peer": None if best is None else ours.tokens_per_s / best.tokens_per_s,
                "equal": ours.texts == plain.texts,
            }
        )
    return {"clients": rows}


def report(result: dict[str, Any]) -> str:
    """A table of it."""
    lines = ["clients  server                     tokens/s  first token s"]
    for row in result["clients"]:
        for name, one in row["servers"].items():
            lines.append(
                f"{row['num_clients']:7d}  {name:25s} {one['tokens_per_s']:9.1f}  {one['first_token_s']:13.2f}"
            )
        peer = "" if row["to_peer"] is None else f", {row['to_peer']:.2f} of llama-server's best"
        same = "the same texts" if row["equal"] else "OTHER TEXTS"
        lines.append(f"         drafts: {row['to_plain']:.2f} of plain decoding, {same}{peer}")
    return "\n".join(lines)
