"""Answers over a connection whose other end may go away: streams of server-sent events, and whole answers."""

import asyncio
import contextlib
import json
from collections.abc import AsyncGenerator, AsyncIterator, Awaitable, Callable, Coroutine
from typing import Any, TypeVar

from starlette.requests import Request
from starlette.responses import Response
from starlette.types import Message, Receive, Scope, Send

Event = tuple[str | None, dict[str, Any] | str]
"""Its name, where the API gives events names, and its data."""
_PING = b": keep-alive\n\n"


T = TypeVar("T")


class ClientGoneError(Exception):
    """Nobody waits for the answer any more."""


async def unless_gone(request: Request, answering: Coroutine[Any, Any, T]) -> T:
    """The result of answering, which is cancelled when the client goes away. Raises ClientGoneError then."""
    task = asyncio.create_task(answering)
    gone = asyncio.create_task(_gone(request.receive))
    try:
        await asyncio.wait({task, gone}, return_when=asyncio.FIRST_COMPLETED)
        if task.done():
            return await task
        raise ClientGoneError
    finally:
        await _cancelled(task, gone)


async def _gone(receive: Receive) -> None:
    while (await receive())["type"] != "http.disconnect":
        pass


async def _cancelled(*tasks: "asyncio.Task[Any]") -> None:
    for task in tasks:
        task.cancel()
    await asyncio.gather(*tasks, return_exceptions=True)


class EventStream(Response):
    """A stream of server-sent events. Silence is filled with comments, lest somebody on the way closes the connection.

    events: what is sent; closed at the end or when the client goes away. failed: what is sent of an exception in it.
    close: is awaited at the end, whatever happens.
    """

    media_type = "text/event-stream"

    def __init__(
        self,
        events: AsyncGenerator[Event],
        *,
        failed: Callable[[Exception], list[Event]],
        close: Callable[[], Awaitable[None]],
        ping_s: float,
    ) -> None:
        super().__init__(headers={"Cache-Control": "no-cache", "X-Accel-Buffering": "no"})
        del self.headers["content-length"]
        self._events = events
        self._failed = failed
        self._close = close
        self._ping_s = ping_s

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See `Response`."""
        sending = asyncio.create_task(self._send_all(send))
        gone = asyncio.create_task(_gone(receive))
        try:
            await asyncio.wait({sending, gone}, return_when=asyncio.FIRST_COMPLETED)
            if sending.done():
                await sending
        finally:
            await _cancelled(sending, gone)
            await self._close()

    async def _send_all(self, send: Send) -> None:
        await send({"type": "http.response.start", "status": self.status_code, "headers": self.raw_headers})
        async with contextlib.aclosing(self._events) as events:
            try:
                async with contextlib.aclosing(_with_pings(events, self._ping_s)) as pieces:
                    async for data in pieces:
                        await send(_body(data))
            except Exception as error:
                for event in self._failed(error):
                    await send(_body(_written(event)))
        await send({"type": "http.response.body", "body": b"", "more_body": False})


async def _with_pings(events: AsyncIterator[Event], ping_s: float) -> AsyncGenerator[bytes]:
    upcoming: asyncio.Task[Event] | None = None
    try:
        while True:
            upcoming = upcoming or asyncio.create_task(_next(events))
            done, _ = await asyncio.wait({upcoming}, timeout=ping_s)
            if not done:
                yield _PING
                continue
            task, upcoming = upcoming, None
            try:
                yield _written(await task)
            except StopAsyncIteration:
                return
    finally:
        if upcoming is not None:
            await _cancelled(upcoming)


async def _next(events: AsyncIterator[Event]) -> Event:
    return await anext(events)


def _written(event: Event) -> bytes:
    name, data = event
    # The texts of answers go out as they are; only what ends a line in JSON is escaped, which json does.
    text = data if isinstance(data, str) else json.dumps(data, ensure_ascii=False, separators=(",", ":"))
    head = f"event: {name}\n" if name else ""
    return f"{head}data: {text}\n\n".encode("utf-8", "replace")


def _body(data: bytes) -> Message:
    return {"type": "http.response.body", "body": data, "more_body": True}
