"""A long prompt arrives while others stream: how long do they pause, and how soon is one that is cancelled gone?"""

import threading
import time
from collections.abc import Iterator
from dataclasses import asdict, dataclass
from statistics import median
from typing import Any

from foredraft.engine import MAX_BATCHED_TOKENS, Chunk
from foredraft.llm import LLM
from foredraft.sampling import SamplingParams

NUM_STREAMS = 4
PROMPT_TOKENS = 8000
WORDS = "the river runs down from the mountains to the sea and people have always lived on its banks "


@dataclass(frozen=True)
class Interference:
    """What was seen. Seconds.

    budget_pass_s: one forward pass of the token budget, behind all of the long prompt but this. longest_pause_s:
    between two pieces of any stream while the prompt was computed, and usual_pause_s the median. alone_pause_s: the
    median before.
    prompt_s: from the arrival of the prompt to its first token. cancel_s: of each of the five in turn, from the wish to
    when its blocks were free.
    """

    num_streams: int
    prompt_tokens: int
    max_batched_tokens: int
    budget_pass_s: float
    alone_pause_s: float
    usual_pause_s: float
    longest_pause_s: float
    prompt_s: float
    cancel_s: tuple[float, ...]

    @property
    def longest_to_budget_pass(self) -> float:
        """The longest pause over a pass of the budget."""
        return self.longest_pause_s / self.budget_pass_s

    def to_json(self) -> dict[str, Any]:
        """Plain values."""
        return asdict(self) | {"longest_to_budget_pass": self.longest_to_budget_pass}


class _Stream:
    """A stream that is read in a thread of its own, and when its pieces came."""

    def __init__(self, chunks: Iterator[Chunk]) -> None:
        self._chunks = chunks
        self.came: list[float] = []
        self._leave = threading.Event()
        self._thread = threading.Thread(target=self._read)
        self._thread.start()

    def _read(self) -> None:
        for _ in self._chunks:
            self.came.append(time.perf_counter())
            if self._leave.is_set():
                break
        self._chunks.close()  # type: ignore[attr-defined]

    def wait_for(self, num_pieces: int) -> None:
        while len(self.came) < num_pieces and self._thread.is_alive():
            time.sleep(0.002)

    def pauses(self, begin: float, end: float) -> list[float]:
        """Of those that overlap with a span of time."""
        pairs = zip(self.came, self.came[1:], strict=False)
        return [after - before for before, after in pairs if after > begin and before < end]

    def leave(self) -> None:
        self._leave.set()
        self._thread.join()


def measure(
    llm: LLM, *, prompt_tokens: int = PROMPT_TOKENS, max_batched_tokens: int = MAX_BATCHED_TOKENS
) -> Interference:
    """Start the streams, let the prompt arrive, then cancel all of them one by one.

    Raises ValueError for a prompt that is no longer than a pass.
    """
    if prompt_tokens <= max_batched_tokens:
        raise ValueError(f"--prompt-tokens must be above {max_batched_tokens}, the tokens of one pass")
    params = SamplingParams(max_tokens=None, ignore_eos=True)
    words = llm.tokenizer.encode(WORDS * (prompt_tokens // 12 + 8))
    prompt = words[:prompt_tokens]
    with llm.exclusive():
        budget_pass_s = median(
            llm.decoder.time_forward(
                num_tokens=max_batched_tokens, context=prompt_tokens - max_batched_tokens, wanted="none"
            )
            for _ in range(3)
        )
    streams = [_Stream(llm.stream(words[start : start + 40], params)) for start in range(NUM_STREAMS)]
    for stream in streams:
        stream.wait_for(20)
    arrived = time.perf_counter()
    alone = [pause for stream in streams for pause in stream.pauses(stream.came[10], arrived)]
    long = _Stream(llm.stream(prompt, params))
    long.wait_for(1)
    first = long.came[0]
    for stream in streams:
        stream.wait_for(len(stream.came) + 2)
    during = [pause for stream in streams for pause in stream.pauses(arrived, first)]
    cancel_s = tuple(_cancel(llm, stream) for stream in (*streams, long))
    return Interference(
        num_streams=NUM_STREAMS,
        prompt_tokens=prompt_tokens,
        max_batched_tokens=max_batched_tokens,
        budget_pass_s=budget_pass_s,
        alone_pause_s=median(alone),
        usual_pause_s=median(during),
        longest_pause_s=max(during),
        prompt_s=first - arrived,
        cancel_s=cancel_s,
    )


def _cancel(llm: LLM, stream: _Stream) -> float:
    """Seconds until blocks that only this stream held are free."""
    pool = llm.decoder.cache.pool
    before, started = pool.num_used, time.perf_counter()
    stream.leave()
    while pool.num_used >= before:
        if time.perf_counter() > started + 60:
            raise RuntimeError("a cancelled sequence still has its blocks after a minute")
        time.sleep(0.001)
    return time.perf_counter() - started
