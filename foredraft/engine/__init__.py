"""Sequences and when they run: scheduling, the step, the thread that owns it, and what clients get."""

from foredraft.engine.completion import Choice, Chunk, Completion, Speculation, Timings, Usage
from foredraft.engine.completions import completion_of
from foredraft.engine.engine import MAX_BATCHED_TOKENS, MAX_RUNNING, Engine
from foredraft.engine.loop import EngineLoop
from foredraft.engine.output import Output
from foredraft.engine.submission import Submission, outputs_for

__all__ = [
    "MAX_BATCHED_TOKENS",
    "MAX_RUNNING",
    "Choice",
    "Chunk",
    "Completion",
    "Engine",
    "EngineLoop",
    "Output",
    "Speculation",
    "Submission",
    "Timings",
    "Usage",
    "completion_of",
    "outputs_for",
]
