"""From a request to its answer, whole or as a stream, whichever API it came by."""

import contextlib
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foredraft.server.connection import Event, EventStream, unless_gone
from foredraft.server.generation import Generation, Server, Wanted


async def answer_whole(
    request: Request, wanted: Wanted, write: Callable[[Generation], Awaitable[dict[str, Any]]]
) -> Response:
    """Answer when all is there. Raises what the engine does, and ClientGoneError where nobody waits any more."""

    async def run() -> dict[str, Any]:
        async with Server.of(request).begin(wanted, streams=False) as generation:
            return await write(generation)

    return JSONResponse(await unless_gone(request, run()))


async def answer_stream(
    request: Request,
    wanted: Wanted,
    write: Callable[[Generation], AsyncGenerator[Event]],
    *,
    failed: Callable[[Exception], list[Event]],
) -> Response:
    """Answer as it comes. What can be known to be wrong is raised before the stream begins."""
    server = Server.of(request)
    async with contextlib.AsyncExitStack() as stack:
        generation = await unless_gone(request, stack.enter_async_context(server.begin(wanted, streams=True)))
        events = write(generation)
        close = stack.pop_all().aclose
    return EventStream(events, failed=failed, close=close, ping_s=server.options.ping_s)
