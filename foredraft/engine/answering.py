"""Requests to their ends: all answers to some prompts at once, or the answers to one as they come."""

import contextlib
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

from foredraft.engine.completion import Completion
from foredraft.engine.request import Request
from foredraft.engine.scheduler import Engine
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams, TokenLogprob


@dataclass(frozen=True)
class Chunk:
    """A piece of a streamed answer. The last one of all carries the completion; its text may be empty.

    index: which of several answers it belongs to. logprobs: of its tokens, where asked for.
    """

    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()


def requests_for(engine: Engine, prompt: Sequence[int], params: SamplingParams) -> list[Request]:
    """A request for each answer to a prompt; they share their seed. Raises as `Engine.prepare` does."""
    if not isinstance(params, SamplingParams):
        raise OptionError(f"sampling parameters must be SamplingParams, got {params!r}")
    seeded = params.with_seed()
    return [engine.prepare(prompt, seeded, choice=choice) for choice in range(params.num_choices)]


def run_to_the_end(engine: Engine, requests: Sequence[Request]) -> None:
    """Run all of them together. Raises what ends the first of them that fails; all are given back either way."""
    with _in_queue(engine, requests):
        for request in requests:
            while not engine.advance(request):
                pass


@contextlib.contextmanager
def _in_queue(engine: Engine, requests: Sequence[Request]) -> Iterator[None]:
    """Queue the requests, and give all of them back at the end, even where the end of one fails."""
    with contextlib.ExitStack() as ends:
        for request in requests:
            ends.callback(engine.release, request)
        for request in requests:
            engine.submit(request)
        yield


def stream_of(engine: Engine, requests: Sequence[Request], complete: Callable[[], Completion]) -> Iterator[Chunk]:
    """The answers to one prompt piece by piece. complete: what they come to, asked for when all have ended.

    Closing the iterator ends all of them. Raises what ends the first that fails.
    """
    # Queued only here: an iterator that is dropped before its first piece never comes to its end either.
    with _in_queue(engine, requests):
        running = list(enumerate(requests))
        while running:
            engine.advance(running[0][1])
            with engine.paused():  # another thread's round may be under way else
                chunks, failed = _new_chunks(running, complete)
            yield from chunks
            if failed is not None:
                engine.advance(failed)  # says why


def _new_chunks(
    running: list[tuple[int, Request]], complete: Callable[[], Completion]
) -> tuple[list[Chunk], Request | None]:
    """What there is to say, up to a request that failed, and that one. Those that have ended are taken out."""
    chunks: list[Chunk] = []
    for index, request in list(running):
        if request.failed:
            return chunks, request
        if request.finished:
            running.remove((index, request))
        text, token_ids = request.take_new()
        completion = None if running else complete()
        if completion or text or token_ids:
            chunks.append(Chunk(text, token_ids, completion, index, request.logprobs_of_last(len(token_ids))))
    return chunks, None
