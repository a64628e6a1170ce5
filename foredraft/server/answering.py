"""From a request to its answer, whole or as a stream, whichever API it came by."""

import contextlib
import logging
from collections.abc import AsyncGenerator, Awaitable, Callable
from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foredraft.server.connection import Event, EventStream, unless_gone
from foredraft.server.errors import api_error
from foredraft.server.generation import Generation, Server, Wanted

_LOG = logging.getLogger("uvicorn.error")
"""Where faults of ours go, those that no status tells of included."""


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
    failed: Callable[[Exception], list[Event]] | None = None,
) -> Response:
    """Answer as it comes. What can be known to be wrong is raised before the stream begins.

    failed: what the stream ends with when something goes wrong behind its beginning; None: an error in OpenAI's shape.
    """
    server = Server.of(request)

    def told(error: Exception) -> list[Event]:
        found = api_error(error)
        if found.status >= 500:
            _LOG.error("a stream failed", exc_info=error)
        return failed(error) if failed else [(None, found.body(request.url.path))]

    async with contextlib.AsyncExitStack() as stack:
        generation = await unless_gone(request, stack.enter_async_context(server.begin(wanted, streams=True)))
        events = write(generation)
        close = stack.pop_all().aclose
    return EventStream(events, failed=told, close=close, ping_s=server.options.ping_s)
