"""What is answered: a few texts of our own, or a file."""

import json
from pathlib import Path

from foredraft.errors import OptionError

BUILT_IN = (
    'def fibonacci(n):\n    """Return the n-th Fibonacci number."""\n    if n < 2:\n        return n\n',
    "1. The cat sat on the mat.\n2. The dog sat on the mat.\n3. The cow sat on the mat.\n4. The",
    '[{"name": "Ada", "born": 1815}, {"name": "Alan", "born": 1912}, {"name": "Grace", "born":',
    "English: good morning. French: bonjour. German: guten Morgen. Chinese: 早上好. Spanish:",
)


def read_prompts(path: Path) -> tuple[str, ...]:
    """The prompts of a file: .jsonl, objects with "prompt"; else one a line. Empty lines do not count.

    Raises OptionError where it cannot be read, holds none, or a line is no prompt.
    """
    try:
        lines = path.read_text(encoding="utf-8").split("\n")
    except OSError as error:
        raise OptionError(f"cannot read the prompts {path}: {error.strerror}") from error
    except UnicodeDecodeError as error:
        raise OptionError(f"the prompts {path} are not UTF-8: byte {error.start}") from error
    numbered = [(number, line.rstrip("\r")) for number, line in enumerate(lines, start=1) if line.strip()]
    if path.suffix == ".jsonl":
        prompts = [_prompt(path, number, line) for number, line in numbered]
    else:
        prompts = [line for _, line in numbered]
    if not prompts:
        raise OptionError(f"{path} holds no prompts")
    return tuple(prompts)


def _prompt(path: Path, number: int, line: str) -> str:
    try:
        entry = json.loads(line)
    except (ValueError, RecursionError):
        entry = None
    text = entry.get("prompt") if isinstance(entry, dict) else None
    if not isinstance(text, str) or not text:
        raise OptionError(f'{path}, line {number}: expected an object with "prompt", a text that is not empty')
    return text
