"""Measuring what passes cost on this machine, and remembering it for the next start."""

import contextlib
import hashlib
import json
import os
import tempfile
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from itertools import accumulate
from pathlib import Path
from typing import Any, TypeVar

from foredraft.planner.cost import Calibration

PASS_TOKENS = (1, 2, 4, 8, 9, 16)
"""What a pass takes rises by more from 8 to 9 tokens than to 8: kernels take 8 at once at the most."""
DRAFT_TOKENS = (1, 2, 4, 8, 64)
"""The same of a draft model: steps, and a chunk of its prefill."""
CONTEXT = 1024
NUM_REPEATS = 3
SLOWER = 1.3
"""What was saved may be so many times as slow as what is seen."""

MOST_PLACES = 1000
"""Places at the most at which a drafter was compared with the target."""

_Saved = TypeVar("_Saved")

TimePass = Callable[[int, int], float]
"""From a number of batched tokens and of cached positions to the seconds that a pass took."""


def calibrate(
    time_pass: TimePass, *, num_tokens: tuple[int, ...] = PASS_TOKENS, context: int = CONTEXT, budget_s: float = 0.7
) -> Calibration:
    """Time passes, the numbers of tokens in turn so that a disturbance does not hit one alone.

    context: cached positions for the cost of attention; 0: not measured. budget_s: no further turn is begun after
    so many seconds; a first one is always made, of at least two numbers of tokens.
    """
    started = time.perf_counter()
    time_pass(num_tokens[0], 0)  # the first pass also makes memory come into being
    seconds: dict[int, list[float]] = {}
    behind: dict[int, list[float]] = {}
    for turn in range(NUM_REPEATS):
        for index, count in enumerate(num_tokens):
            late = time.perf_counter() - started > (budget_s if turn else 2 * budget_s)
            if late and (turn or index > 1):
                break
            seconds.setdefault(count, []).append(time_pass(count, 0))
            if context and count in (num_tokens[0], 8) and not late:
                behind.setdefault(count, []).append(time_pass(count, context))
    least = {count: _typical(times) for count, times in seconds.items()}
    per_position, per_token = _attention(least, {count: _typical(times) for count, times in behind.items()}, context)
    measured = tuple(sorted(least))
    # A thousand positions never cost more than the weights; where they seem to, something else had the machine.
    most = least[num_tokens[0]] / 1000
    return Calibration(
        measured, _rising([least[count] for count in measured]), min(per_position, most), min(per_token, most)
    )


def holds(saved: Calibration, time_pass: TimePass, *, context: int) -> bool:
    """Whether passes do not take much less than was saved.

    Where they do, something else had the machine when it was saved, and it would mislead for ever. Where they take
    more, something else may have it now; the rounds will say.
    """
    time_pass(1, 0)  # the first pass also makes memory come into being
    known = dict(zip(saved.num_tokens, saved.seconds, strict=True))
    if any(SLOWER * time_pass(count, 0) < known[count] for count in (1, 8) if count in known):
        return False
    behind = saved.seconds[0] + context * (saved.per_position + saved.per_position_token)
    return not context or SLOWER * time_pass(1, context) >= behind


def _typical(times: list[float]) -> float:
    """The lower median: what disturbs a pass makes it longer, never shorter."""
    return sorted(times)[(len(times) - 1) // 2]


def _rising(seconds: list[float]) -> tuple[float, ...]:
    return tuple(accumulate(seconds, max))


def _attention(seconds: Mapping[int, float], behind: Mapping[int, float], context: int) -> tuple[float, float]:
    extra = {count: max(0.0, behind[count] - seconds[count]) / context for count in behind}
    if 1 not in extra:
        return 0.0, 0.0
    if 8 not in extra:
        return extra[1], 0.0
    per_token = max(0.0, (extra[8] - extra[1]) / 7)
    return max(0.0, extra[1] - per_token), per_token


def _agreement(values: Any) -> tuple[int, int]:
    right, total = (int(value) for value in values)
    if not 0 <= right <= total <= MOST_PLACES:
        raise ValueError("at most as many can be right as there are")
    return right, total


class CalibrationStore:
    """Calibrations in a folder, one small file each. A file that cannot be read or written is as good as none."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder

    def load(self, key: Mapping[str, object]) -> Calibration | None:
        """What was saved under this key, or None."""
        return self._loaded(key, "calibration", Calibration.from_json)

    def save(self, key: Mapping[str, object], calibration: Calibration) -> None:
        """Keep a calibration; what is there is replaced as a whole or not at all."""
        self._keep(key, "calibration", asdict(calibration))

    def load_agreement(self, key: Mapping[str, object]) -> tuple[int, int] | None:
        """How often a drafter was right, of how many times, as saved under this key; or None."""
        return self._loaded({**key, "of": "agreement"}, "agreement", _agreement)

    def save_agreement(self, key: Mapping[str, object], right_and_total: tuple[int, int]) -> None:
        """Keep how often a drafter was right."""
        self._keep({**key, "of": "agreement"}, "agreement", right_and_total)

    def _loaded(self, key: Mapping[str, object], kind: str, parse: Callable[[Any], _Saved]) -> _Saved | None:
        try:
            saved = json.loads(self._path(key).read_text(encoding="utf-8"))
            return parse(saved[kind]) if saved["key"] == json.loads(json.dumps(key)) else None
        except (OSError, ValueError, KeyError, TypeError, AttributeError, OverflowError, RecursionError):
            return None

    def _keep(self, key: Mapping[str, object], kind: str, values: object) -> None:
        with contextlib.suppress(OSError):
            self._folder.mkdir(parents=True, exist_ok=True)
            handle, name = tempfile.mkstemp(dir=self._folder, suffix=".part")
            try:
                with os.fdopen(handle, "w", encoding="utf-8") as file:
                    json.dump({"key": key, kind: values}, file)
                os.replace(name, self._path(key))
            except BaseException:
                Path(name).unlink(missing_ok=True)
                raise

    def _path(self, key: Mapping[str, object]) -> Path:
        digest = hashlib.sha256(json.dumps(key, sort_keys=True).encode()).hexdigest()
        return self._folder / f"{digest[:32]}.json"
