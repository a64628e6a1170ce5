"""Many clients at once: every answer is what it would be alone, whatever else runs, waits, leaves or is preempted."""

import asyncio
import random
import resource
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import httpx
import pytest
from helpers.serving import Running, serving, spec

from foredraft.engine.scheduler import Scheduler
from foredraft.llm import LLM, SamplingParams
from foredraft.sequence import Sequence
from foredraft.server import ModelPool

NUM_REQUESTS, NUM_CONNECTIONS = 200, 16
WORDS = [
    "the",
    "cat",
    "sat",
    "on",
    "a",
    "mat",
    "while",
    "two",
    "dogs",
    "ran",
    "after",
    "one",
    "red",
    "ball",
    "and",
    "then",
    "all",
    "of",
    "them",
    "slept",
    "in",
    "the",
    "sun",
]


@pytest.fixture(scope="module")
def small_llm(smollm2_path: Path) -> Iterator[LLM]:
    """A cache for about five of the sequences that come, so that some are preempted."""
    with LLM(smollm2_path, draft_memory="none", max_running=16, kv_memory="12M") as llm:
        yield llm


@pytest.fixture(scope="module")
def loaded(small_llm: LLM) -> Iterator[Running]:
    pool = ModelPool([spec("m", small_llm)])
    pool.load_first()
    with serving(pool) as running:
        yield running


def request_of(random_: random.Random) -> dict[str, Any]:
    """A request of mixed options, lengths and seeds."""
    prompt = " ".join(random_.choices(" ".join(WORDS).split(), k=random_.choice([3, 10, 40, 120])))
    body: dict[str, Any] = {"model": "m", "prompt": prompt, "max_tokens": random_.choice([1, 5, 12, 30])}
    body["temperature"] = random_.choice([0, 0.7, 1.0])
    body["seed"] = random_.randrange(1000)
    options: list[dict[str, Any]] = [
        {},
        {"top_p": 0.9, "top_k": 40},
        {"stop": ["the", "."]},
        {"frequency_penalty": 0.5},
        {"logit_bias": {"260": -50.0}},
        {"regex": "[a-z ]{10,40}"},
        {"logprobs": 1},
        {"echo": True},
        {"draft": "none"},
        {"draft": "lookup", "num_speculative_tokens": 5},
    ]
    body |= random_.choice(options)
    if body["temperature"] and random_.random() < 0.2:
        body["n"] = 2
    return body


def solo(llm: LLM, body: dict[str, Any]) -> list[str]:
    names = {"model", "prompt", "draft", "num_speculative_tokens", "logit_bias"}
    given = {name: value for name, value in body.items() if name not in names}
    if "logit_bias" in body:
        given["logit_bias"] = {int(token): bias for token, bias in body["logit_bias"].items()}
    [completion] = llm.generate(body["prompt"], SamplingParams(**given), parse_special=True)
    return [choice.text for choice in completion.choices]


async def answered(client: httpx.AsyncClient, body: dict[str, Any], *, stream: bool, leaves: bool) -> list[str] | None:
    """The texts of an answer; None of one that was left in the middle."""
    if not stream:
        sent = client.post("/v1/completions", json=body)
        if not leaves:
            return [choice["text"] for choice in (await sent).json()["choices"]]
        with pytest.raises((asyncio.TimeoutError, TimeoutError)):
            await asyncio.wait_for(sent, 0.02)
        return None
    texts: dict[int, str] = {}
    async with client.stream("POST", "/v1/completions", json={**body, "stream": True}) as response:
        assert response.status_code == 200
        async for line in response.aiter_lines():
            if leaves and texts:
                return None
            if line.startswith("data: {"):
                [choice] = httpx.Response(200, content=line[6:]).json()["choices"]
                texts[choice["index"]] = texts.get(choice["index"], "") + choice["text"]
    return [texts[index] for index in sorted(texts)]


async def storm(server: Running, bodies: list[dict[str, Any]], random_: random.Random) -> list[list[str] | None]:
    """All requests over so many connections; a fifth of them leave."""
    todo = list(enumerate(bodies))
    found: list[list[str] | None] = [None] * len(bodies)
    limits = httpx.Limits(max_connections=NUM_CONNECTIONS)
    async with httpx.AsyncClient(base_url=server.url, timeout=300, limits=limits) as client:

        async def connection() -> None:
            while todo:
                place, body = todo.pop(0)
                found[place] = await answered(
                    client, body, stream=random_.random() < 0.5, leaves=random_.random() < 0.2
                )

        await asyncio.gather(*(connection() for _ in range(NUM_CONNECTIONS)))
    return found


def test_every_answer_is_what_it_is_alone(
    loaded: Running, small_llm: LLM, served_llm: LLM, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: tokens of one request in another, wrong texts after a preemption, blocks lost when clients leave."""
    random_ = random.Random(1)
    bodies = [request_of(random_) for _ in range(NUM_REQUESTS)]
    preempted = preemptions(monkeypatch)
    found = asyncio.run(storm(loaded, bodies, random_))
    assert preempted, "the cache was large enough for all: this test shows nothing"
    stayed = [place for place, texts in enumerate(found) if texts is not None]
    assert NUM_REQUESTS * 0.65 < len(stayed) < NUM_REQUESTS * 0.95
    for place in stayed:
        assert found[place] == solo(served_llm, bodies[place]), bodies[place]
    wait_until_idle(small_llm, loaded)
    pool = small_llm.decoder.cache.pool
    pool.check_integrity()
    assert pool.num_used == 0


def test_memory_does_not_grow(loaded: Running, small_llm: LLM) -> None:
    """Kind: every request leaves something behind."""
    random_ = random.Random(2)

    def round_of_requests() -> float:
        asyncio.run(storm(loaded, [{**request_of(random_), "max_tokens": 3} for _ in range(60)], random_))
        wait_until_idle(small_llm, loaded)
        return resident_mb()

    for _ in range(2):
        before = round_of_requests()
    sizes = [round_of_requests() for _ in range(4)]
    assert min(sizes[-2:]) < before + 20, (before, sizes)


def test_fifty_that_leave_leave_nothing(loaded: Running, small_llm: LLM) -> None:
    """Kind: a client leaves in the middle of a stream, and its slot is never free again."""
    body = {"model": "m", "prompt": "Once upon a time", "max_tokens": 400, "temperature": 0, "ignore_eos": True}

    async def leave() -> None:
        async with httpx.AsyncClient(base_url=loaded.url, timeout=60) as client:
            await asyncio.gather(*(answered(client, body, stream=True, leaves=True) for _ in range(50)))

    neighbour = {"model": "m", "prompt": "My name is", "max_tokens": 20, "temperature": 0}
    expected = solo(small_llm, neighbour)
    asyncio.run(leave())
    wait_until_idle(small_llm, loaded)
    assert small_llm.decoder.cache.pool.num_used == 0
    assert [c["text"] for c in httpx.post(f"{loaded.url}/v1/completions", json=neighbour).json()["choices"]] == expected


def preemptions(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """A list that grows with each preemption."""
    seen: list[int] = []
    original = Scheduler._preempt

    def preempt(self: Scheduler, sequence: Sequence) -> None:
        seen.append(sequence.id)
        original(self, sequence)

    monkeypatch.setattr(Scheduler, "_preempt", preempt)
    return seen


def wait_until_idle(llm: LLM, server: Running) -> None:
    async def wait() -> None:
        for _ in range(600):
            if llm.load.num_running == llm.load.num_waiting == server.state._num_open == 0:
                return
            await asyncio.sleep(0.05)
        raise AssertionError(f"still busy: {llm.load}, {server.state._num_open} requests")

    asyncio.run(wait())


def resident_mb() -> float:
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * resource.getpagesize() / 1e6
