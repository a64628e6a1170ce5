"""What a request asks of sampling, checked once where it enters."""

import math
import numbers
import secrets
from collections.abc import Iterable
from dataclasses import dataclass, replace
from typing import Self

from foredraft.errors import OptionError

_NUM_SEED_BITS = 64


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen, and where its text ends.

    max_tokens: most tokens to produce; None: until the context is full.
    temperature: 0 takes the most likely token; above 0 the logits are divided by it before sampling.
    top_k: sample among the `top_k` most likely tokens; 0 (or -1): among all.
    top_p: sample among the fewest most likely tokens whose probabilities sum to at least `top_p`; 1: among
    all.
    min_p: sample among the tokens at least `min_p` times as likely as the most likely one; 0: among all.
    seed: any 64-bit integer, signed or unsigned; -1 is a seed like any other. None: see `with_seed`.
    stop: the text ends before the first of these strings; one string may be given as it is.
    stop_token_ids: the text ends at the first of these tokens, besides the model's own end tokens.
    ignore_eos: go on past the model's end tokens.

    The filters apply after the temperature, in the order top_k, top_p, min_p (see `pick`). At temperature 0
    they change nothing, because none of them ever removes the most likely token.

    Raises OptionError with one line that names the option as the command line spells it.
    """

    max_tokens: int | None = 128
    temperature: float = 0.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    ignore_eos: bool = False

    def __post_init__(self) -> None:
        checked: dict[str, object] = {
            "max_tokens": None if self.max_tokens is None else _max_tokens(self.max_tokens),
            "temperature": _temperature(self.temperature),
            "top_k": _top_k(self.top_k),
            "top_p": _top_p(self.top_p),
            "min_p": _min_p(self.min_p),
            "seed": None if self.seed is None else _seed(self.seed),
            "stop": _stop(self.stop),
            "stop_token_ids": _stop_token_ids(self.stop_token_ids),
        }
        if not isinstance(self.ignore_eos, bool):
            raise _wrong("--ignore-eos", "true or false", self.ignore_eos)
        for name, value in checked.items():
            object.__setattr__(self, name, value)

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken, so that no noise is needed."""
        return self.temperature == 0.0

    def with_seed(self) -> Self:
        """These parameters with a seed: their own, or else a fresh one from the system's randomness.

        The engine calls it once for each request, so unseeded requests are independent of each other and of
        what ran before, and the seed can be reported to repeat the request.
        """
        return self if self.seed is not None else replace(self, seed=secrets.randbits(_NUM_SEED_BITS))


def _wrong(option: str, rule: str, value: object) -> OptionError:
    return OptionError(f"{option} must be {rule}, got {_shown(value)}")


def _shown(value: object) -> str:
    """The value on one short line; text in quotes, so that '5' is told from 5."""
    text = str(value) if isinstance(value, numbers.Number) else repr(value)
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def _integer(option: str, rule: str, value: object) -> int:
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise _wrong(option, rule, value)
    return int(value)


def _number(option: str, rule: str, value: object) -> float:
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise _wrong(option, rule, value)
    try:
        number = float(value)
    except OverflowError:
        number = math.inf
    if not math.isfinite(number):
        raise _wrong(option, rule, value)
    return number


def _max_tokens(value: object) -> int:
    option, rule = "--max-tokens", "an integer of at least 1"
    count = _integer(option, rule, value)
    if count < 1:
        raise _wrong(option, rule, value)
    return count


def _temperature(value: object) -> float:
    option, rule = "--temperature", "a finite number of at least 0"
    number = _number(option, rule, value)
    if number < 0:
        raise _wrong(option, rule, value)
    return number + 0.0  # -0.0 becomes 0.0


def _top_k(value: object) -> int:
    option, rule = "--top-k", "an integer of at least 0 (0 or -1: off)"
    count = _integer(option, rule, value)
    if count < -1:
        raise _wrong(option, rule, value)
    return max(count, 0)


def _top_p(value: object) -> float:
    option, rule = "--top-p", "above 0 and at most 1"
    number = _number(option, rule, value)
    if not 0 < number <= 1:
        raise _wrong(option, rule, value)
    return number


def _min_p(value: object) -> float:
    option, rule = "--min-p", "between 0 and 1"
    number = _number(option, rule, value)
    if not 0 <= number <= 1:
        raise _wrong(option, rule, value)
    return number + 0.0


def _seed(value: object) -> int:
    option, rule = "--seed", "an integer of at most 64 bits"
    seed = _integer(option, rule, value)
    if not -(1 << (_NUM_SEED_BITS - 1)) <= seed < 1 << _NUM_SEED_BITS:
        raise _wrong(option, rule, value)
    return seed


def _stop(value: object) -> tuple[str, ...]:
    option, rule = "--stop", "a text, or a list of texts, none of them empty"
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable):
        raise _wrong(option, rule, value)
    stops = tuple(value)
    for stop in stops:
        if not isinstance(stop, str) or not stop:
            raise _wrong(option, rule, stop)
    return stops


def _stop_token_ids(value: object) -> tuple[int, ...]:
    option, rule = "--stop-token-ids", "a list of token ids, each an integer of at least 0"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise _wrong(option, rule, value)
    token_ids = tuple(_integer(option, rule, token_id) for token_id in value)
    for token_id in token_ids:
        if token_id < 0:
            raise _wrong(option, rule, token_id)
    return token_ids
