"""The prompts of several files."""

from collections.abc import Iterable
from pathlib import Path

from foredraft.errors import OptionError
from foredraft.prompts import Prompt, read_prompts


def read_all(paths: Iterable[Path]) -> list[Prompt]:
    """All prompts of the files, in order. Raises OptionError as `read_prompts` does, and for two of the same name."""
    prompts: dict[str, Prompt] = {}
    for path in paths:
        for prompt in read_prompts(path):
            if prompt.key in prompts:
                raise OptionError(f"{path}: {prompt.key} occurs twice; give each prompt a question_id of its own")
            prompts[prompt.key] = prompt
    return list(prompts.values())
