"""The HTTP application: which path leads where, and what becomes of every error."""

import contextlib
import itertools
import json
import re
from collections.abc import AsyncIterator, Callable
from pathlib import Path
from typing import Any

from fastapi import FastAPI
from fastapi.exceptions import RequestValidationError
from pydantic import BaseModel
from starlette.exceptions import HTTPException
from starlette.middleware.cors import CORSMiddleware
from starlette.requests import Request
from starlette.responses import FileResponse, JSONResponse, PlainTextResponse, Response
from starlette.staticfiles import StaticFiles

from foredraft import __version__
from foredraft.errors import UserError
from foredraft.server import anthropic_messages, openai_chat, openai_completions, openai_responses, status, tokens
from foredraft.server.connection import ClientGoneError
from foredraft.server.errors import ApiError, api_error
from foredraft.server.generation import Server
from foredraft.server.guard import Guard
from foredraft.server.options import ServerOptions
from foredraft.server.pool import ModelPool

PAGE = Path(__file__).parent / "page"
_PAGE_HEADERS = {
    "Content-Security-Policy": "default-src 'self'; style-src 'self'; img-src 'self' data:; frame-ancestors 'none'; "
    "base-uri 'none'; form-action 'none'",
    "X-Content-Type-Options": "nosniff",
    "Referrer-Policy": "no-referrer",
    "Cache-Control": "no-cache",
}


class ErrorDetails(BaseModel):
    """What went wrong, as OpenAI says it."""

    message: str
    type: str
    param: str | None = None
    code: str | None = None


class ErrorBody(BaseModel):
    """The body of an answer that is no success."""

    error: ErrorDetails


_ERRORS: dict[int | str, dict[str, Any]] = {
    code: {"model": ErrorBody} for code in (400, 401, 403, 404, 405, 408, 413, 415, 429, 500, 503)
}
_JSON_OR_STREAM: dict[int | str, dict[str, Any]] = {200: {"content": {"text/event-stream": {}}}}
_KNOWN_ERRORS = (ApiError, UserError, RequestValidationError, HTTPException, RecursionError, ClientGoneError)
"""Those that are answered without a word in the log."""
_FIELD = re.compile(r"[a-z_]+|[0-9]+")
_TYPES = ("str", "int", "float", "bool")
_POSTS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("/v1/chat/completions", openai_chat.chat_completions),
    ("/v1/completions", openai_completions.completions),
    ("/v1/responses", openai_responses.responses),
    ("/v1/messages", anthropic_messages.messages),
    ("/v1/messages/count_tokens", anthropic_messages.count_tokens),
    ("/tokenize", tokens.tokenize),
    ("/detokenize", tokens.detokenize),
)
_GETS: tuple[tuple[str, Callable[..., Any]], ...] = (
    ("/v1/models", status.models),
    ("/v1/models/{name:path}", status.model),
    ("/health", status.health),
    ("/metrics", status.metrics),
)


def create_app(pool: ModelPool, options: ServerOptions | None = None, *, local_only: bool = False) -> FastAPI:
    """The application that serves these models. Its end closes them. local_only: see `Guard`.

    Raises OptionError where the request log cannot be written.
    """
    options = options or ServerOptions()
    server = Server(pool, options)

    @contextlib.asynccontextmanager
    async def lifespan(_: FastAPI) -> AsyncIterator[None]:
        yield
        await server.close()

    app = FastAPI(
        title="foredraft", version=__version__, lifespan=lifespan, docs_url=None, redoc_url=None, responses=_ERRORS
    )
    app.state.server = server
    for path, endpoint in _POSTS:
        app.add_api_route(path, endpoint, methods=["POST"], response_model=None, responses=_JSON_OR_STREAM)
    for path, endpoint in _GETS:
        kind = PlainTextResponse if path == "/metrics" else JSONResponse
        app.add_api_route(path, endpoint, methods=["GET"], response_model=None, response_class=kind)
    _add_page(app)
    for error in (*_KNOWN_ERRORS, Exception):
        app.add_exception_handler(error, _answer_error)
    app.add_middleware(Guard, options=options, local_only=local_only)
    if options.allowed_origins:
        app.add_middleware(
            CORSMiddleware, allow_origins=list(options.allowed_origins), allow_methods=["*"], allow_headers=["*"]
        )
    return app


def _add_page(app: FastAPI) -> None:
    async def page() -> Response:
        return FileResponse(PAGE / "index.html", headers=_PAGE_HEADERS)

    app.add_api_route("/", page, methods=["GET"], include_in_schema=False)
    app.mount("/page", _Assets(directory=PAGE))


class _Assets(StaticFiles):
    def file_response(self, *args: Any, **kwargs: Any) -> Response:
        """See `StaticFiles`."""
        response = super().file_response(*args, **kwargs)
        response.headers.update(_PAGE_HEADERS)
        return response


async def _answer_error(request: Request, error: Exception) -> Response:
    if isinstance(error, ClientGoneError):
        return Response(status_code=499)  # nobody sees it but the log
    found = _as_api_error(error)
    return JSONResponse(found.body(request.url.path), found.status, headers=found.headers)


def _as_api_error(error: Exception) -> ApiError:
    if isinstance(error, RequestValidationError):
        return _invalid(error)
    if isinstance(error, HTTPException):
        # What FastAPI makes of whatever was raised while the body was read.
        if isinstance(error.__cause__, ApiError | RecursionError):
            return api_error(error.__cause__)
        return ApiError(str(error.detail), status=error.status_code, headers=error.headers)
    return api_error(error)


def _first(error: RequestValidationError) -> dict[str, Any]:
    """The first thing that is wrong. Where a value may be of several types, one in which it has the right type."""
    errors = error.errors()
    field = errors[0]["loc"][:2]
    of_field = [one for one in errors if one["loc"][:2] == field]
    found: dict[str, Any] = next((one for one in of_field if not one["type"].endswith("_type")), of_field[0])
    return found


def _place(loc: tuple[int | str, ...]) -> list[str]:
    """Where it is, without the names that pydantic gives to types that a value may have."""
    fields = [str(part) for part in loc if part != "body"]
    return list(itertools.takewhile(lambda part: _FIELD.fullmatch(part) and part not in _TYPES, fields))


def _invalid(error: RequestValidationError) -> ApiError:
    """The first of the things that are wrong with a body, in a line."""
    first = _first(error)
    place = _place(first["loc"])
    if first["type"] == "json_invalid":
        reason = first.get("ctx", {}).get("error", "")
        return ApiError(f"the body is not valid JSON: {reason}", code="invalid_json")
    param = ".".join(place) or None
    if first["type"] == "extra_forbidden":
        return ApiError(f"Unrecognized request argument supplied: {param}", code="unknown_parameter", param=param)
    if first["type"] == "missing":
        what = f"the field {param}" if param else "the body"
        return ApiError(f"{what} is missing", code="missing_required_parameter", param=param)
    value = json.dumps(first.get("input"), default=str)
    got = f", got {value}" if len(value) <= 60 else ""
    return ApiError(f"{param or 'body'}: {first['msg']}{got}", code="invalid_value", param=param)
