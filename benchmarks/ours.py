"""The engine as the speculation benchmark asks it."""

import time
from collections.abc import Generator
from pathlib import Path
from typing import Any

from foredraft.engine import Completion
from foredraft.llm import LLM
from foredraft.sampling import SamplingParams


class Engine:
    """A loaded model with one way of drafting; engines share the model.

    Modes: `none`; `lookup` or another drafter's name; `draft` for the draft model; several joined by `+`, such as
    `auto+draft`; each with `:K` behind it for K draft tokens a round, without it as many as the planner finds to pay.
    Nothing is drafted from earlier answers, which would favour modes that see a prompt twice.
    """

    def __init__(self, llm: LLM, mode: str, *, draft: str | None, raw: bool = False) -> None:
        names, _, number = mode.partition(":")
        if "draft" in names.split("+") and draft is None:
            raise ValueError("the mode draft needs --draft")
        options: dict[str, Any] = {"num_draft_tokens": int(number)} if number else {}
        drafts = [draft if name == "draft" and draft is not None else name for name in names.split("+")]
        self.mode = mode
        self._raw = raw
        self._llm = llm.with_drafts(drafts, draft_memory="none", **options)

    def answer(
        self, text: str, *, max_tokens: int, temperature: float, seed: int | None
    ) -> Generator[int, None, dict[str, Any]]:
        """One answer through the chat template (or the text continued as it stands, where `raw`), step by step.

        Its seconds are those of its own steps, whatever happens between them.
        """
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
        pieces = self._llm.stream(text if self._raw else [{"role": "user", "content": text}], params)
        seconds, num_tokens, completion = 0.0, 0, None
        while completion is None:
            started = time.perf_counter()
            piece = next(pieces)
            seconds += time.perf_counter() - started
            num_tokens += len(piece.token_ids)
            completion = piece.completion
            yield num_tokens
        decode_s = seconds - completion.timings.prefill_s
        return {
            "text": completion.text,
            "token_ids": list(completion.token_ids),
            "num_tokens": num_tokens,
            "tokens_per_s": num_tokens / decode_s,
            "decode_s": decode_s,
            "mean_acceptance_length": completion.speculation.mean_acceptance_length,
            "speculation": speculation_of(completion),
        }


def speculation_of(completion: Completion) -> dict[str, Any]:
    """Where the time of an answer went: rounds, tokens verified and kept, what was expected, milliseconds by part."""
    found, timings = completion.speculation, completion.timings
    parts = {"draft": timings.draft_s, "verify": timings.verify_s, "accept": timings.accept_s}
    return {
        "num_rounds": found.num_rounds,
        "num_draft_tokens": found.num_draft_tokens,
        "num_accepted_tokens": found.num_accepted_tokens,
        "expected_tokens": found.expected_tokens,
        "expected_s": found.expected_s,
        **{f"{name}_s": seconds for name, seconds in parts.items()},
    }


def built_in_path(name: str) -> Path:
    """The file or folder behind a model's name, pulled when it is missing."""
    from foredraft.models.store import resolve

    return resolve(name)
