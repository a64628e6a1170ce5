"""The engine as the speculation benchmark asks it."""

from pathlib import Path
from typing import Any

from foredraft.llm import LLM
from foredraft.sampling import SamplingParams


class Engine:
    """A model loaded in this process, with one way of drafting.

    Modes: `none`; `lookup` or another drafter's name; `draft` for the draft model; each with `:K` behind it
    for K draft tokens a round; `auto` for what the engine chooses.
    """

    def __init__(
        self, model: str, mode: str, *, draft: str | None, num_threads: int, context: int, raw: bool = False
    ) -> None:
        name, _, number = mode.partition(":")
        if name == "draft" and draft is None:
            raise ValueError("the mode draft needs --draft")
        options: dict[str, Any] = {"num_draft_tokens": int(number)} if number else {}
        self.mode = mode
        self._raw = raw
        self._llm = LLM(
            model,
            draft=draft if name == "draft" else name,
            threads=num_threads,
            context_length=context,
            **options,
        )

    def answer(self, text: str, *, max_tokens: int, temperature: float, seed: int | None) -> dict[str, Any]:
        """One answer through the chat template (or the text continued as it stands, where `raw`)."""
        params = SamplingParams(max_tokens=max_tokens, temperature=temperature, seed=seed)
        if self._raw:
            completion = self._llm.generate(text, params)[0]
        else:
            completion = self._llm.chat([{"role": "user", "content": text}], params)
        record = completion.to_json_dict()
        return {
            "text": record["text"],
            "token_ids": list(record["token_ids"]),
            "num_tokens": record["usage"]["completion_tokens"],
            "tokens_per_s": record["timings"]["tokens_per_s"],
            "decode_s": record["timings"]["decode_s"],
            "mean_acceptance_length": record["speculation"]["mean_acceptance_length"],
        }


def built_in_path(name: str) -> Path:
    """The file or folder behind a model's name, pulled when it is missing."""
    from foredraft.models.store import resolve

    return resolve(name)
