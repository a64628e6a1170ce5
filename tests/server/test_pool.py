"""Several models under one memory limit: loaded when they are wanted, put away when nobody uses them."""

import asyncio
import threading
from dataclasses import dataclass, field
from typing import Any

import httpx
import pytest
from helpers.engines import tiny_file
from helpers.serving import serving, spec

from foredraft.errors import ModelFileError, OptionError
from foredraft.llm import LLM
from foredraft.server import ModelPool, ModelSpec, ServedModel
from foredraft.server.errors import ApiError
from foredraft.server.loading import LEAST_CACHE, Served, default_name, model_pool
from foredraft.server.options import ServerOptions


@dataclass
class Fake:
    """Models that only say when they are loaded and closed."""

    events: list[str] = field(default_factory=list)

    def spec(self, name: str, num_bytes: int) -> ModelSpec:
        def load() -> ServedModel:
            self.events.append(f"load {name}")
            return ServedModel(name=name, llm=self)  # type: ignore[arg-type]

        return ModelSpec(name=name, num_bytes=num_bytes, load=load)

    def close(self) -> None:
        self.events.append("close")


def test_models_are_loaded_once_and_when_they_are_wanted() -> None:
    fake = Fake()
    pool = ModelPool([fake.spec("a", 1), fake.spec("b", 1)])

    async def use(name: str) -> str:
        async with pool.use(name) as model:
            await asyncio.sleep(0)
            return model.name

    async def run() -> list[str]:
        return await asyncio.gather(*(use("b") for _ in range(5)))

    assert asyncio.run(run()) == ["b"] * 5
    assert fake.events == ["load b"]


def test_the_one_used_last_stays() -> None:
    fake = Fake()
    pool = ModelPool([fake.spec("a", 4), fake.spec("b", 4), fake.spec("c", 4)], memory=8)

    async def run() -> None:
        for name in ("a", "b", "a", "c"):
            async with pool.use(name):
                pass

    asyncio.run(run())
    assert [model.name for model in pool.loaded] == ["a", "c"]
    assert fake.events == ["load a", "load b", "close", "load c"]


def test_a_model_in_use_is_waited_for_and_nobody_is_overtaken() -> None:
    fake = Fake()
    pool = ModelPool([fake.spec("a", 4), fake.spec("b", 4)], memory=4)
    order: list[str] = []

    async def use(name: str, label: str, *, seconds: float = 0.0) -> None:
        async with pool.use(name):
            order.append(label)
            await asyncio.sleep(seconds)
            order.append(f"{label} ends")

    async def run() -> None:
        async with asyncio.TaskGroup() as tasks:
            tasks.create_task(use("a", "first", seconds=0.1))
            await asyncio.sleep(0.01)
            tasks.create_task(use("b", "second"))
            await asyncio.sleep(0.01)
            tasks.create_task(use("a", "third"))

    asyncio.run(asyncio.wait_for(run(), 10))
    assert order == ["first", "first ends", "second", "second ends", "third", "third ends"]


def test_who_leaves_while_a_model_is_loaded_stops_nobody() -> None:
    fake = Fake()
    pool = ModelPool([fake.spec("a", 4), fake.spec("b", 4)], memory=4)

    async def run() -> None:
        async with pool.use("a"):
            waiting = asyncio.create_task(pool.use("b").__aenter__())
            await asyncio.sleep(0.01)
            waiting.cancel()
            await asyncio.gather(waiting, return_exceptions=True)
        async with pool.use("b") as model:
            assert model.name == "b"

    asyncio.run(asyncio.wait_for(run(), 10))


@pytest.mark.parametrize("fails", [False, True])
def test_who_leaves_while_a_model_is_loaded_leaves_room_for_another(*, fails: bool) -> None:
    """Kind: what was loading counts, nobody tells its end, and who waits for room waits for ever, as do all others."""
    fake, go_on = Fake(), threading.Event()

    def load() -> ServedModel:
        go_on.wait(10)
        if fails:
            raise ModelFileError("is damaged")
        return fake.spec("a", 4).load()

    pool = ModelPool([ModelSpec(name="a", num_bytes=4, load=load), fake.spec("b", 4)], memory=4)

    async def use(name: str) -> None:
        async with pool.use(name):
            pass

    async def run() -> None:
        leaving = asyncio.create_task(use("a"))
        await asyncio.sleep(0.01)
        leaving.cancel()
        waiting = asyncio.create_task(use("b"))
        await asyncio.sleep(0.01)
        go_on.set()
        await waiting

    asyncio.run(asyncio.wait_for(run(), 10))
    assert fake.events == (["load b"] if fails else ["load a", "close", "load b"])


def test_a_model_that_is_put_away_takes_memory_until_it_is() -> None:
    """Kind: the client for whom room is made leaves, and the next model is loaded beside the one that is closing."""
    fake, go_on = Fake(), threading.Event()

    class Slow(Fake):
        def close(self) -> None:
            go_on.wait(10)
            fake.close()

    pool = ModelPool([Slow(fake.events).spec("a", 4), fake.spec("b", 4)], memory=4)

    async def use(name: str) -> None:
        async with pool.use(name):
            pass

    async def run() -> None:
        await use("a")
        leaving = asyncio.create_task(use("b"))
        await asyncio.sleep(0.01)
        leaving.cancel()
        waiting = asyncio.create_task(use("b"))
        await asyncio.sleep(0.05)
        assert fake.events == ["load a"]
        go_on.set()
        await waiting

    asyncio.run(asyncio.wait_for(run(), 10))
    assert fake.events == ["load a", "close", "load b"]


def test_what_cannot_be() -> None:
    fake = Fake()
    with pytest.raises(OptionError, match="same name"):
        ModelPool([fake.spec("a", 1), fake.spec("a", 1)])
    with pytest.raises(OptionError, match="cannot hold a"):
        ModelPool([fake.spec("a", 9)], memory=8)
    pool = ModelPool([fake.spec("a", 1)])

    async def use() -> None:
        async with pool.use("b"):
            pass

    with pytest.raises(ApiError, match="this server has a"):
        asyncio.run(use())


def test_a_model_that_cannot_be_loaded_is_the_servers_fault() -> None:
    def fail() -> ServedModel:
        raise ModelFileError("x.gguf: is damaged")

    pool = ModelPool([ModelSpec(name="a", num_bytes=1, load=fail)])

    async def use() -> None:
        async with pool.use("a"):
            pass

    for _ in range(2):  # and is tried again
        with pytest.raises(ApiError, match=r"cannot be loaded: x\.gguf") as caught:
            asyncio.run(use())
        assert caught.value.status == 503


def test_caches_share_the_memory() -> None:
    caches: dict[str, Any] = {}

    def served(name: str) -> Served:
        def load(cache: int | None) -> LLM:
            caches[name] = cache
            raise ModelFileError("enough")

        return Served(name=name, path=tiny_file(), load=load)

    def sizes(memory: str | None, kv_memory: str | None = None) -> list[int | None]:
        caches.clear()
        pool = model_pool([served("a"), served("b")], ServerOptions(), memory=memory, kv_memory=kv_memory)
        for own in pool._specs.values():
            with pytest.raises(ModelFileError):
                own.load()
        return [caches["a"], caches["b"]]

    weights = tiny_file().stat().st_size
    assert sizes(None) == [None, None]
    assert sizes(None, "64M") == [64_000_000] * 2
    [one, two] = sizes("2G")
    assert one == two
    assert one is not None
    assert abs(2 * one + 2 * weights - 2_000_000_000) < 100_000
    [one, two] = sizes("300M")  # too little for both: one at a time
    assert one is not None
    assert one == two > LEAST_CACHE
    with pytest.raises(OptionError, match="too little for a"):
        sizes("100M")
    with pytest.raises(OptionError, match="--memory must be a size"):
        sizes("many")


def test_names_of_models() -> None:
    assert default_name(str(tiny_file())) == tiny_file().stem
    assert default_name("smollm2-135m") == "smollm2-135m"
    assert default_name("org/name:Q4_K_M") == "org/name:Q4_K_M"


def test_two_models_answer_in_turn(served_llm: LLM) -> None:
    """With room for one of them only."""
    pool = ModelPool([spec("a", served_llm, num_bytes=4), spec("b", _same(served_llm), num_bytes=4)], memory=7)
    with serving(pool) as server:
        listed = httpx.get(f"{server.url}/v1/models").json()["data"]
        assert [(entry["id"], entry["loaded"]) for entry in listed] == [("a", False), ("b", False)]
        for name in ("a", "b", "a"):
            body = {"model": name, "prompt": "One two", "max_tokens": 2, "temperature": 0}
            answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=60)
            assert answer.status_code == 200, answer.text
            assert [model.name for model in pool.loaded] == [name]


def _same(llm: LLM) -> LLM:
    return llm.with_drafts("none")
