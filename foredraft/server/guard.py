"""Who may use the server, and how much may come in: what is refused before a request is even read."""

import asyncio
import ipaddress
import secrets
from collections.abc import Sequence
from urllib.parse import urlsplit

from starlette.datastructures import Headers
from starlette.responses import JSONResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from foredraft.server.errors import ApiError
from foredraft.server.options import ServerOptions

_OPEN_PATHS = ("/health", "/", "/favicon.ico")
"""What needs no key, besides the files of the page."""


class Guard:
    """Keys, hosts, origins, sizes and times, for every request to an app.

    local_only: whether the server listens on this machine alone. Then requests must name it as such: a web page
    elsewhere could otherwise reach it under a name of its own (DNS rebinding).
    """

    def __init__(self, app: ASGIApp, options: ServerOptions, *, local_only: bool) -> None:
        self._app = app
        self._options = options
        self._local_only = local_only

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        """See ASGI."""
        if scope["type"] != "http":
            await self._app(scope, receive, send)
            return
        headers = Headers(scope=scope)
        try:
            self._check(scope, headers)
        except ApiError as error:
            # Of a connection whose request was not read, nothing more can be understood.
            answer = JSONResponse(
                error.body(scope["path"]), error.status, headers={**error.headers, "Connection": "close"}
            )
            await answer(scope, receive, send)
            return
        limited = _Limited(receive, self._options.max_body_mb * 2**20, self._options.body_timeout_s)
        await self._app(scope, limited.receive, send)

    def _check(self, scope: Scope, headers: Headers) -> None:
        self._check_host(headers.get("host", ""))
        self._check_origin(headers)
        self._check_key(scope["path"], headers)
        length = headers.get("content-length", "0")
        if length.isdigit() and int(length) > self._options.max_body_mb * 2**20:
            raise too_large(self._options.max_body_mb)

    def _check_host(self, host: str) -> None:
        allowed = self._options.allowed_hosts
        if self._local_only and "*" not in allowed and not _is_local(host) and _name(host) not in allowed:
            raise ApiError(
                f"this server is for its own machine; to reach it as {host!r}, start it with --allowed-host",
                status=403,
                code="host_not_allowed",
            )

    def _check_origin(self, headers: Headers) -> None:
        """Pages of other hosts may not use the server behind their reader's back, unless they were allowed."""
        origin, allowed = headers.get("origin"), self._options.allowed_origins
        if origin is None or "*" in allowed or origin in allowed or _host_of(origin) == headers.get("host"):
            return
        raise ApiError(
            f"pages of {origin} may not use this server; to allow it, start it with --allowed-origin",
            status=403,
            code="origin_not_allowed",
        )

    def _check_key(self, path: str, headers: Headers) -> None:
        if not self._options.api_keys or path in _OPEN_PATHS or path.startswith("/page/"):
            return
        scheme, _, bearer = headers.get("authorization", "").partition(" ")
        given = bearer.strip() if scheme.lower() == "bearer" else headers.get("x-api-key", "")
        if not _is_among(given, self._options.api_keys):
            raise ApiError(
                "no or a wrong API key: send it as Authorization: Bearer KEY, or as x-api-key",
                status=401,
                code="invalid_api_key",
                headers={"WWW-Authenticate": "Bearer"},
            )


def too_large(max_body_mb: int) -> ApiError:
    """The error for a request that is."""
    return ApiError(f"the request is larger than {max_body_mb} MiB", status=413, code="request_too_large")


class _Limited:
    """The receiving end of a request: no more than it may be, and not slower."""

    def __init__(self, receive: Receive, most: int, timeout_s: float) -> None:
        self._receive = receive
        self._left = self._most = most
        self._ends = asyncio.get_running_loop().time() + timeout_s
        self._whole = False

    async def receive(self) -> Message:
        if self._whole:
            return await self._receive()
        try:
            async with asyncio.timeout_at(self._ends):
                message = await self._receive()
        except TimeoutError:
            raise ApiError("the request did not arrive in time", status=408, code="request_timeout") from None
        self._left -= len(message.get("body", b""))
        if self._left < 0:
            raise too_large(self._most // 2**20)
        self._whole = not message.get("more_body", False)
        return message


def _is_among(given: str, keys: Sequence[str]) -> bool:
    """Compared in the same time whatever is given."""
    return sum(secrets.compare_digest(given.encode(), key.encode()) for key in keys) > 0


def _host_of(origin: str) -> str | None:
    try:
        return urlsplit(origin).netloc
    except ValueError:  # brackets that do not close
        return None


def _name(host: str) -> str:
    return host.rpartition(":")[0] if host.rpartition(":")[2].isdigit() else host


def _is_local(host: str) -> bool:
    name = _name(host).strip("[]").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        return ipaddress.ip_address(name).is_loopback
    except ValueError:
        return False
