"""The log of requests with their texts, for those who want it: to train drafters on what is really asked."""

import json
import os
import threading
import time
from collections.abc import Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foredraft.engine import Completion
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams


class RequestLog:
    """A file of JSON Lines, which only its owner may read. Raises OptionError where it cannot be written."""

    def __init__(self, path: Path) -> None:
        try:
            descriptor = os.open(path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        except OSError as error:
            raise OptionError(f"cannot write the request log {path}: {error.strerror}") from error
        # Half of a surrogate pair, in a field of a message that templates never see, becomes what JSON has for it.
        self._file = os.fdopen(descriptor, "a", encoding="utf-8", errors="backslashreplace")
        self._writing = threading.Lock()

    def write(
        self, model: str, said: dict[str, Any], params: SamplingParams, completions: Sequence[Completion]
    ) -> None:
        """Append a request: when, to which model, what was said, the parameters that are not usual, the answers."""
        usual = asdict(SamplingParams())
        entry = {
            "time": time.time(),
            "model": model,
            **said,
            "params": {name: value for name, value in asdict(params).items() if value != usual[name]},
            "completions": [
                {"text": choice.text, "token_ids": list(choice.token_ids), "finish_reason": choice.finish_reason}
                for completion in completions
                for choice in completion.choices
            ],
        }
        line = json.dumps(entry, ensure_ascii=False) + "\n"
        with self._writing:
            self._file.write(line)
            self._file.flush()

    def close(self) -> None:
        """Nothing is written any more."""
        self._file.close()
