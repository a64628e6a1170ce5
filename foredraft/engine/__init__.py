"""Requests and when they run."""

from foredraft.engine.answering import Chunk, requests_for, run_to_the_end, stream_of
from foredraft.engine.answers import completion_of
from foredraft.engine.completion import Choice, Completion, Speculation, Timings, Usage
from foredraft.engine.request import Request
from foredraft.engine.scheduler import Engine

__all__ = [
    "Choice",
    "Chunk",
    "Completion",
    "Engine",
    "Request",
    "Speculation",
    "Timings",
    "Usage",
    "completion_of",
    "requests_for",
    "run_to_the_end",
    "stream_of",
]
