"""The HTTP server: many users, one engine, the APIs of OpenAI and Anthropic, and a page to look at."""

from foredraft.server.app import create_app
from foredraft.server.options import ServerOptions
from foredraft.server.pool import ModelPool, ModelSpec, ServedModel
from foredraft.server.run import serve

__all__ = ["ModelPool", "ModelSpec", "ServedModel", "ServerOptions", "create_app", "serve"]
