"""GET /health, /metrics and /v1/models."""

from typing import Any

from starlette.requests import Request
from starlette.responses import JSONResponse, Response

from foredraft.server.fields import Object
from foredraft.server.generation import Server


async def health() -> Object:
    """Whether the server answers. Needs no key."""
    return {"status": "ok"}


async def metrics(request: Request) -> Response:
    """Counts, gauges and histograms in Prometheus' text format."""
    return Response(Server.of(request).metrics.exposition(), media_type="text/plain; version=0.0.4; charset=utf-8")


async def models(request: Request) -> Object:
    """All models that the server has."""
    server = Server.of(request)
    return {"object": "list", "data": [_entry(server, name) for name in server.pool.names]}


async def model(name: str, request: Request) -> Response:
    """One of them."""
    server = Server.of(request)
    server.pool.check(name)
    return JSONResponse(_entry(server, name))


def _entry(server: Server, name: str) -> dict[str, Any]:
    entry: dict[str, Any] = {"id": name, "object": "model", "created": server.started, "owned_by": "foredraft"}
    loaded = next((model for model in server.pool.loaded if model.name == name), None)
    entry["loaded"] = loaded is not None
    if loaded is not None:
        entry["max_model_len"] = loaded.llm.context_length
        entry["drafters"] = list(loaded.llm.methods)
    return entry
