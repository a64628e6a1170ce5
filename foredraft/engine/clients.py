"""How clients wait for what the loop delivers: for completions, piece by piece, or in asyncio."""

import asyncio
import contextlib
from collections.abc import AsyncGenerator, Iterator, Sequence
from queue import SimpleQueue

from foredraft.engine.completion import Chunk, Completion
from foredraft.engine.engine import Engine
from foredraft.engine.loop import EngineLoop
from foredraft.engine.submission import Event, Submission


def completions(loop: EngineLoop, engine: Engine, submissions: Sequence[Submission]) -> list[Completion]:
    """Run submissions to their ends. Raises what ends the first that fails; all others are cancelled then."""
    arrived: SimpleQueue[tuple[int, Event]] = SimpleQueue()

    def deliver(place: int, event: Event) -> None:
        arrived.put((place, event))

    found: dict[int, Completion] = {}
    loop.check_may_wait()
    try:
        loop.submit(
            engine,
            {one: lambda event, place=place: deliver(place, event) for place, one in enumerate(submissions)},  # type: ignore[misc]
        )
        while len(found) < len(submissions):
            place, event = arrived.get()
            if isinstance(event, Exception):
                raise event
            if event.completion is not None:
                found[place] = event.completion
    finally:
        for submission in submissions:
            loop.cancel(engine, submission)
    return [found[place] for place in range(len(submissions))]


def pieces(loop: EngineLoop, engine: Engine, submission: Submission) -> Iterator[Chunk]:
    """The pieces of a submission as they come. Closing the iterator cancels it. Raises what ends it."""
    # Submitted only here: an iterator that is dropped before its first piece never comes to its end either.
    arrived: SimpleQueue[Event] = SimpleQueue()
    try:
        loop.submit(engine, {submission: arrived.put})
        while True:
            if arrived.empty():
                loop.check_may_wait()
            event = arrived.get()
            if isinstance(event, Exception):
                raise event
            yield event
            if event.completion is not None:
                return
    finally:
        loop.cancel(engine, submission)


async def arriving(loop: EngineLoop, engine: Engine, submission: Submission) -> AsyncGenerator[Chunk]:
    """As `pieces`, without keeping the event loop waiting."""
    events = asyncio.get_running_loop()
    arrived: asyncio.Queue[Event] = asyncio.Queue()
    try:
        loop.submit(engine, {submission: lambda event: _put(events, arrived, event)})
        while True:
            event = await arrived.get()
            if isinstance(event, Exception):
                raise event
            yield event
            if event.completion is not None:
                return
    finally:
        loop.cancel(engine, submission)


async def completed(loop: EngineLoop, engine: Engine, submission: Submission) -> Completion:
    """Run a submission that does not stream to its end, in asyncio. Raises what ends it."""
    async with contextlib.aclosing(arriving(loop, engine, submission)) as chunks:
        async for chunk in chunks:
            if chunk.completion is not None:
                return chunk.completion
    raise RuntimeError("the submission ended without its completion")


def _put(events: asyncio.AbstractEventLoop, arrived: "asyncio.Queue[Event]", event: Event) -> None:
    events.call_soon_threadsafe(arrived.put_nowait, event)
