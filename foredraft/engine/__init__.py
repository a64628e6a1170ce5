"""Requests and when they run."""

from foredraft.engine.completion import Completion, Speculation, Timings, Usage
from foredraft.engine.request import Request
from foredraft.engine.scheduler import Engine

__all__ = ["Completion", "Engine", "Request", "Speculation", "Timings", "Usage"]
