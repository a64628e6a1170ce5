"""Prompts from JSON Lines files in the format of Spec-Bench."""

import json
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path


@dataclass(frozen=True)
class Prompt:
    """One prompt: the first turn of a question, and the family whose figures it counts for."""

    question_id: str
    family: str
    text: str

    @property
    def key(self) -> str:
        return f"{self.family}/{self.question_id}"


def read_prompts(paths: Iterable[Path]) -> list[Prompt]:
    """All prompts of the files, in order. Raises ValueError naming a line that is no prompt, or a twin."""
    prompts: dict[str, Prompt] = {}
    for path in paths:
        for number, line in enumerate(path.read_text(encoding="utf-8").split("\n"), start=1):
            if not line.strip():
                continue
            try:
                entry = json.loads(line)
                prompt = Prompt(str(entry["question_id"]), str(entry["family"]), str(entry["turns"][0]))
            except (ValueError, KeyError, IndexError, TypeError) as error:
                raise ValueError(
                    f"{path}:{number}: expected an object with question_id, family and turns ({error!r})"
                ) from error
            if prompt.key in prompts:
                raise ValueError(f"{path}:{number}: {prompt.key} occurs twice")
            prompts[prompt.key] = prompt
    if not prompts:
        raise ValueError("the prompt files hold no prompts")
    return list(prompts.values())
