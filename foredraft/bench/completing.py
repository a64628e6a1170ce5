"""Prompts completed under a way of drafting, step by step, so that several ways can take turns on the same machine."""

import time
from collections.abc import Generator
from dataclasses import dataclass

from foredraft.bench.measuring import in_lockstep
from foredraft.engine import Completion
from foredraft.llm import LLM, SamplingParams


@dataclass(frozen=True)
class Measured:
    """A completion, and what it took.

    seconds: of its own steps, prefill included, whatever was done between them. ends: after each round, tokens so far,
    and seconds until then.
    """

    completion: Completion
    seconds: float
    ends: tuple[tuple[int, float], ...]

    @property
    def num_tokens(self) -> int:
        """Tokens produced."""
        return len(self.completion.token_ids)

    @property
    def decode_s(self) -> float:
        """Seconds without those of the prefill."""
        return self.seconds - self.completion.timings.prefill_s

    @property
    def tokens_per_s(self) -> float:
        """Speed of decoding."""
        return self.num_tokens / self.decode_s

    def seconds_to(self, num_tokens: int) -> float | None:
        """Seconds from the prompt to so many tokens; None where the completion ended before."""
        return next((seconds for reached, seconds in self.ends if reached >= num_tokens), None)


def steps(llm: LLM, prompt: str, params: SamplingParams, *, raw: bool = False) -> Generator[int, None, Measured]:
    """Complete a prompt, nothing of which is cached. Yields the number of tokens after each step.

    The prompt goes through the chat template, if the model has one; raw: the text is continued as it stands.
    """
    llm.reset_prefix_cache()
    text = prompt if raw or not llm.has_chat_template else [{"role": "user", "content": prompt}]
    seconds, num_tokens, ends, completion = 0.0, 0, list[tuple[int, float]](), None
    pieces = llm.stepwise(text, params)
    while completion is None:
        started = time.perf_counter()
        piece = next(pieces)
        seconds += time.perf_counter() - started
        if piece.token_ids:
            num_tokens += len(piece.token_ids)
            ends.append((num_tokens, seconds))
        completion = piece.completion
        yield num_tokens
    return Measured(completion, seconds, tuple(ends))


def complete(llm: LLM, prompt: str, params: SamplingParams, *, raw: bool = False) -> Measured:
    """The same, alone and to the end."""
    return in_lockstep({"": steps(llm, prompt, params, raw=raw)})[""]
