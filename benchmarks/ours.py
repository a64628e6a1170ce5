"""The engine as the speculation benchmark asks it."""

from pathlib import Path
from typing import Any

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
