"""Servers under load: tokens per second with more and more clients, ours with and without drafts, and llama-server.

Each client sends one prompt after the other over HTTP, and reads the stream. All servers get the same prompts, one
after the other in each round, since a machine that others use, too, is faster for some seconds and slower for the next.
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

from foredraft.bench.peer import LlamaCpp, PeerError

from .server import Server

REQUEST_TIMEOUT_S = 1800.0
OURS, PLAIN, THEIRS = "foredraft", "foredraft --draft none", "llama-server"


@dataclass(frozen=True)
class Load:
    """What one server did with so many clients.

    tokens_per_s: of all answers, over the time from the first request to the last token. first_token_s: median.
    texts: the answers, by prompt.
    """

    server: str
    turn: int
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
        command = [sys.executable, "-P", "-m", "foredraft.cli.main", "serve", "-m", str(model), "--port", "0"]
        self._log = log.open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [*command, "--served-model-name", "m", "--threads", str(threads), *options],
            stderr=subprocess.PIPE,
            text=True,
        )
        self.url = self._wait()
        self._drainer = threading.Thread(target=self._drain)
        self._drainer.start()

    def _wait(self) -> str:
        assert self._process.stderr is not None
        line = ""
        for line in self._process.stderr:
            self._log.write(line)
            if "chat at " in line:
                return line.partition("chat at ")[2].split("/ ")[0]
        self._process.stderr.close()
        self._log.close()
        raise PeerError(f"foredraft serve did not start: {line.strip()}")

    def _drain(self) -> None:
        assert self._process.stderr is not None
        with self._process.stderr as lines:
            for line in lines:
                self._log.write(line)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.terminate()
        self._process.wait()
        self._drainer.join()
        self._log.close()


def answer(url: str, prompt: str, max_tokens: int, *, turn: int) -> tuple[str, int, float]:
    """The text of an answer, its number of tokens, and the seconds to its first piece.

    turn: is told to the model, so that what it was asked in another turn is in no cache.
    """
    body = {
        "model": "m",
        "messages": [{"role": "system", "content": f"{turn}: be helpful."}, {"role": "user", "content": prompt}],
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


def load(name: str, url: str, prompts: Sequence[str], *, num_clients: int, max_tokens: int, turn: int) -> Load:
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
            answers[place] = answer(url, prompts[place], max_tokens, turn=turn)

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
        turn=turn,
        num_clients=num_clients,
        num_requests=len(prompts),
        num_tokens=sum(number for _, number, _ in answers.values()),
        seconds=seconds,
        first_token_s=median(first for _, _, first in answers.values()),
        texts=tuple(answers[place][0] for place in range(len(prompts))),
    )


@dataclass(frozen=True, kw_only=True)
class Plan:
    """What is measured: in each round and for each number of clients, all servers one after the other.

    peer: llama.cpp's programs, with the modes of its server. options: of ours. log: what the servers say.
    """

    model: Path
    prompts: Sequence[str]
    clients: Sequence[int]
    rounds: int
    per_client: int
    max_tokens: int
    threads: int
    peer: LlamaCpp | None
    peer_modes: Sequence[str]
    options: Sequence[str]
    log: Path

    def chosen(self, turn: int, number: int) -> list[str]:
        """So many prompts for one turn."""
        start = turn * 7
        return [self.prompts[(start + place) % len(self.prompts)] for place in range(number)]


def measure(plan: Plan) -> list[Load]:
    """All that was seen, in the order in which it was. Raises ValueError where there are no prompts."""
    if not plan.prompts:
        raise ValueError("no prompt is short enough")
    found: list[Load] = []
    with ExitStack() as stack:
        servers = list(_servers(plan, stack).items())
        for _, url in servers:
            answer(url, "Good morning!", 8, turn=-1)
        turns = [(turn, count) for turn, count in enumerate(plan.clients * plan.rounds)]
        for turn, count in turns:
            prompts = plan.chosen(turn, count * plan.per_client)
            first = turn % len(servers)
            for name, url in servers[first:] + servers[:first]:
                found.append(load(name, url, prompts, num_clients=count, max_tokens=plan.max_tokens, turn=turn))
                print(f"{count:3d} clients  {name:24s} {found[-1].tokens_per_s:7.1f} tokens/s", file=sys.stderr)
    return found


def _servers(plan: Plan, stack: ExitStack) -> dict[str, str]:
    """Their addresses, by name. They end with the stack."""
    most = max(plan.clients)
    common = ["--draft-memory", "none", "--max-running", str(most)]
    drafted = Ours(plan.model, [*common, *plan.options], threads=plan.threads, log=plan.log)
    plain = Ours(plan.model, [*common, "--draft", "none"], threads=plan.threads, log=plan.log)
    urls = {OURS: stack.enter_context(drafted).url, PLAIN: stack.enter_context(plain).url}
    for mode in plan.peer_modes if plan.peer is not None else ():
        assert plan.peer is not None
        server = Server(plan.peer, mode, draft=None, context=2048 * most, log=plan.log, parallel=most)
        urls[f"{THEIRS} {mode}"] = stack.enter_context(server).url
    return urls


def summary(found: Sequence[Load]) -> dict[str, Any]:
    """The figures by number of clients; ratios are medians over the rounds."""
    rows = []
    for count in sorted({one.num_clients for one in found}):
        turns: dict[int, dict[str, Load]] = {}
        for one in found:
            if one.num_clients == count:
                turns.setdefault(one.turn, {})[one.server] = one
        rounds = list(turns.values())
        peers = [name for name in rounds[0] if name.startswith(THEIRS)]
        to_plain = [one[OURS].tokens_per_s / one[PLAIN].tokens_per_s for one in rounds]
        to_peer = [one[OURS].tokens_per_s / max(one[peer].tokens_per_s for peer in peers) for one in rounds if peers]
        rows.append(
            {
                "num_clients": count,
                "servers": {
                    name: {
                        "tokens_per_s": median(one[name].tokens_per_s for one in rounds),
                        "first_token_s": median(one[name].first_token_s for one in rounds),
                    }
                    for name in rounds[0]
                },
                "to_plain": median(to_plain),
                "to_peer": median(to_peer) if to_peer else None,
                "rounds": [[one.to_json() for one in each.values()] for each in rounds],
                "equal": all(one[OURS].texts == one[PLAIN].texts for one in rounds),
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
