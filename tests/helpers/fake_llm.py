"""`foredraft` with an LLM that has no weights: what it answers depends on the last message alone.

    fake_llm.py ARGUMENT ...            as the command `foredraft ARGUMENT ...`

Some messages get a special answer: `repeat N WORD`, `count` (slowly, for ever), `messages` (what the model
was given, as JSON), `arguments` (how it was made and asked, as JSON), `overflow` (does not fit into the
context), `full` (fills the context), `cut` (reaches max_tokens), `boom` (a fault of ours), `silence` (no
text), `stuck` (takes ten minutes for a token). Any other is said back.
"""

import json
import sys
import time
import types
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from pathlib import Path
from typing import Any

from foredraft.cli.main import main
from foredraft.config import DraftConfig
from foredraft.errors import ContextLengthError, OptionError
from foredraft.sampling import SamplingParams

MAX_COUNT = 10_000


def _compute(seconds: float) -> None:
    """Take some time, and tell when an exception comes in the middle of it."""
    try:
        time.sleep(seconds)
    except KeyboardInterrupt:
        print("torn", file=sys.stderr)
        raise


@dataclass(frozen=True)
class Usage:
    prompt_tokens: int
    completion_tokens: int
    total_tokens: int


@dataclass(frozen=True)
class Timings:
    load_s: float = 0.5
    prefill_s: float = 0.25
    decode_s: float = 0.5
    prompt_tokens_per_s: float = 100.0
    tokens_per_s: float = 187.25


@dataclass(frozen=True)
class Speculation:
    methods: tuple[str, ...] = ("lookup",)
    lossless: bool = True
    num_rounds: int = 4
    num_draft_tokens: int = 8
    num_accepted_tokens: int = 3
    acceptance_rate: float | None = 0.375
    mean_acceptance_length: float | None = 1.75
    accepted_per_position: tuple[int, ...] = (3, 1)
    reason: str = "it pays"
    acceptance: str = "coupled"
    equality: str = "path"
    cost: None = None
    speedup: float | None = 1.5


@dataclass(frozen=True)
class Completion:
    text: str
    token_ids: tuple[int, ...]
    finish_reason: str
    usage: Usage
    timings: Timings
    speculation: Speculation
    choices: tuple[Any, ...] = ()

    def to_json_dict(self) -> dict[str, Any]:
        return {name: value for name, value in asdict(self).items() if name != "choices"}


@dataclass(frozen=True)
class Chunk:
    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None


class LLM:
    def __init__(
        self,
        model: str,
        *,
        draft: DraftConfig,
        context_length: int | None = None,
        threads: int | None = None,
        kv_memory: str | None = None,
        max_running: int | None = None,
        max_batched_tokens: int | None = None,
        trace: Path | None = None,
        profile: Path | None = None,
    ) -> None:
        for name in draft.drafters:
            if name not in ("auto", "none", "lookup") and not name.endswith(".gguf"):
                raise OptionError(f"unknown draft {name!r}; known: auto, none, lookup")
        self.arguments = {
            "model": str(model),
            "draft": draft.to_json(),
            "context_length": context_length,
            "threads": threads,
            "kv_memory": kv_memory,
            "max_running": max_running,
            "max_batched_tokens": max_batched_tokens,
            "trace": trace and str(trace),
            "profile": profile and str(profile),
        }
        self.drafts = not draft.is_plain
        self.has_chat_template = "plain" not in str(model)

    def stream(self, prompt: str | Sequence[Mapping[str, str]], params: SamplingParams, **how: Any) -> Iterator[Chunk]:
        words = self._words(prompt, params)
        if words == ["overflow"]:
            raise ContextLengthError("the prompt has 9000 tokens, the context holds 2048")
        if words == ["boom"]:
            raise RuntimeError("a kernel\nwent wrong")
        said = []
        for number, word in enumerate(words):
            if len(words) == MAX_COUNT:
                _compute(0.02)
            if words == ["stuck"]:
                print("computing", file=sys.stderr, flush=True)
                _compute(600)
            said.append(word)
            yield Chunk(word, (number,))
        yield Chunk("", (), self._completion("".join(said), params, words))

    def chat(self, messages: Sequence[Mapping[str, str]], params: SamplingParams, **how: Any) -> Completion:
        """Every answer with its number."""
        *_, last = self.stream(messages, params)
        assert last.completion is not None
        texts = [f"{last.completion.text}{number}" for number in range(params.n)]
        choices = tuple(types.SimpleNamespace(index=index, text=text) for index, text in enumerate(texts))
        return replace(last.completion, text=texts[0], choices=choices)

    def _words(self, prompt: str | Sequence[Mapping[str, str]], params: SamplingParams) -> list[str]:
        last = prompt if isinstance(prompt, str) else prompt[-1]["content"]
        if last.startswith("repeat "):
            _, number, word = last.split(" ", 2)
            return [word] * int(number)
        if last == "count":
            return [f"{n} " for n in range(MAX_COUNT)]
        if last == "messages":
            return [json.dumps(prompt)]
        if last == "arguments":
            return [json.dumps({**self.arguments, "params": asdict(params)})]
        if last == "silence":
            return []
        return [last] if last in ("overflow", "boom", "full", "cut", "stuck") else [last[:3], last[3:]]

    def _completion(self, text: str, params: SamplingParams, words: list[str]) -> Completion:
        num_tokens = params.max_tokens if words == ["cut"] and params.max_tokens else len(words)
        return Completion(
            text=text,
            token_ids=tuple(range(len(words))),
            finish_reason="length" if words in (["cut"], ["full"]) else "stop",
            usage=Usage(5, num_tokens, 5 + num_tokens),
            timings=Timings(),
            speculation=Speculation() if self.drafts else replace(Speculation(), methods=(), num_draft_tokens=0),
        )


module = types.ModuleType("foredraft.llm")
module.LLM = LLM  # type: ignore[attr-defined]
sys.modules["foredraft.llm"] = module

if __name__ == "__main__":
    sys.exit(main())
