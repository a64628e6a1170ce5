"""The process that serves: its socket, TLS, what it prints, and how it ends."""

import asyncio
import contextlib
import ipaddress
import logging
import signal
import socket
import threading
from collections.abc import Callable, Iterator
from pathlib import Path
from types import FrameType
from typing import Any

import h11
import uvicorn
from fastapi import FastAPI
from uvicorn.protocols.http.h11_impl import H11Protocol

from foredraft.errors import OptionError

HEADERS_TIMEOUT_S = 20.0
"""A connection that has not sent a whole head of a request by then is closed."""


STALLED_S = 60.0
"""A connection whose other end has taken nothing for so long, of what waits for it, is closed."""


MOST_AHEAD = 65536
"""So many bytes of further requests are read while one is answered."""


def bind(host: str, port: int) -> socket.socket:
    """A socket that listens. Raises OptionError where the address is taken or none of this machine."""
    try:
        family, kind, protocol, _, address = socket.getaddrinfo(
            host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE
        )[0]
        found = socket.socket(family, kind, protocol)
        found.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            found.bind(address)
            found.listen(1024)
        except OSError:
            found.close()
            raise
    except (OSError, OverflowError) as error:
        reason = getattr(error, "strerror", None) or str(error)
        raise OptionError(f"cannot listen on {host}:{port}: {reason}; give another --port or --host") from error
    found.setblocking(False)
    return found


def is_local(host: str) -> bool:
    """Whether this machine alone reaches a server that listens there."""
    if host == "localhost":
        return True
    with contextlib.suppress(ValueError):
        return ipaddress.ip_address(host).is_loopback
    return False


def serve(
    app: FastAPI,
    listening: socket.socket,
    *,
    started: Callable[[], None],
    log_requests: bool = True,
    ssl_certfile: Path | None = None,
    ssl_keyfile: Path | None = None,
    shutdown_timeout_s: int = 30,
    running: Callable[[uvicorn.Server], None] = lambda _: None,
) -> None:
    """Serve until a signal ends it. What runs may come to its end for a while; a second signal ends it at once.

    started: is called once requests are answered. running: gets the server, whose `should_exit` ends it without a
    signal. Raises OptionError for TLS files that cannot be used.
    """
    config = uvicorn.Config(
        app,
        http=_Protocol,
        ws="none",
        lifespan="on",
        log_config=_log_config(),
        access_log=log_requests,
        server_header=False,
        timeout_graceful_shutdown=shutdown_timeout_s,
        ssl_certfile=ssl_certfile,
        ssl_keyfile=ssl_keyfile,
    )
    try:
        config.load()
    except OSError as error:  # ssl.SSLError is one
        raise OptionError(f"cannot use the TLS files {ssl_certfile} and {ssl_keyfile}: {error.strerror}") from error
    server = _Server(config, started)
    running(server)
    server.run(sockets=[listening])


class _Server(uvicorn.Server):
    def __init__(self, config: uvicorn.Config, started: Callable[[], None]) -> None:
        super().__init__(config)
        self._tell = started

    async def startup(self, sockets: list[socket.socket] | None = None) -> None:
        await super().startup(sockets)
        if self.started:
            self._tell()

    @contextlib.contextmanager
    def capture_signals(self) -> Iterator[None]:
        """As the base class does, but a signal that ended it in good order is not raised anew behind it."""
        in_main_thread = threading.current_thread() is threading.main_thread()
        handled = (signal.SIGINT, signal.SIGTERM) if in_main_thread else ()
        before = {number: signal.signal(number, self._end) for number in handled}
        try:
            yield
        finally:
            for number, handler in before.items():
                signal.signal(number, handler)

    def _end(self, number: int, frame: FrameType | None) -> None:
        self.force_exit = self.should_exit
        self.should_exit = True


class _Protocol(H11Protocol):
    """HTTP/1.1 that does not wait for ever for the head of a request, nor for somebody to take an answer."""

    _deadline: asyncio.TimerHandle | None = None
    _stalled: asyncio.TimerHandle | None = None

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """See `asyncio.Protocol`."""
        super().connection_made(transport)
        self._wait_for_head()

    def data_received(self, data: bytes) -> None:
        """See `asyncio.Protocol`."""
        before = self.cycle
        super().data_received(data)
        if self.cycle is not before:
            self._head_came()
        if self.conn.their_state is h11.DONE and len(self.conn.trailing_data[0]) < MOST_AHEAD:
            self.flow.resume_reading()  # uvicorn would read no further, and not see when the client leaves

    def on_response_complete(self) -> None:
        """See `H11Protocol`. From here on its own limit for idle connections holds, until more is sent."""
        super().on_response_complete()
        if self.cycle is None or self.cycle.response_complete:
            self._wait_for_head()

    def connection_lost(self, exc: Exception | None) -> None:
        """See `asyncio.Protocol`."""
        self._head_came()
        self._goes_on()
        super().connection_lost(exc)

    def pause_writing(self) -> None:
        """See `asyncio.Protocol`."""
        super().pause_writing()
        self._watch(self.transport.get_write_buffer_size())

    def resume_writing(self) -> None:
        """See `asyncio.Protocol`."""
        self._goes_on()
        super().resume_writing()

    def _watch(self, num_waiting: int) -> None:
        self._stalled = self.loop.call_later(STALLED_S, self._look, num_waiting)

    def _look(self, num_before: int) -> None:
        num_waiting = self.transport.get_write_buffer_size()
        if num_waiting < num_before:
            self._watch(num_waiting)
        else:
            self.transport.abort()  # closing would wait for what is not taken

    def _goes_on(self) -> None:
        if self._stalled is not None:
            self._stalled.cancel()
            self._stalled = None

    def _wait_for_head(self) -> None:
        self._head_came()
        self._deadline = self.loop.call_later(HEADERS_TIMEOUT_S, self.transport.close)

    def _head_came(self) -> None:
        if self._deadline is not None:
            self._deadline.cancel()
            self._deadline = None


def _is_no_cancellation(record: logging.LogRecord) -> bool:
    """What a second signal breaks off is no fault. Of the end of the app, there is only a text."""
    error = record.exc_info[1] if record.exc_info else None
    return not isinstance(error, asyncio.CancelledError) and not record.getMessage().rstrip().endswith("CancelledError")


def _log_config() -> dict[str, Any]:
    """Lines on stderr: what uvicorn has to say, and a line for each request, without anything of its text."""
    plain = {"format": "%(asctime)s %(message)s", "datefmt": "%H:%M:%S"}
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"plain": plain},
        "filters": {"faults": {"()": lambda: _is_no_cancellation}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "plain", "filters": ["faults"]}},
        "loggers": {
            "uvicorn": {"handlers": ["stderr"], "level": "WARNING", "propagate": False},
            "uvicorn.error": {"level": "WARNING"},
            "uvicorn.access": {"handlers": ["stderr"], "level": "INFO", "propagate": False},
        },
    }
