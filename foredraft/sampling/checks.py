"""Checks of single options: each returns the value in its plain Python type, or raises OptionError in one line."""

import json
import math
import numbers
from collections.abc import Iterable, Mapping

from foredraft.errors import OptionError
from foredraft.files import without_mark

Biases = dict[int, float]
_MOST_DIGITS = 19
"""Of a token id in a text: far more than vocabularies need. Python refuses to read thousands of them."""


def wrong(option: str, rule: str, value: object) -> OptionError:
    """The error for a value that breaks a rule; the option is spelled as on the command line."""
    return OptionError(f"{option} must be {rule}, got {_shown(value)}")


def _shown(value: object) -> str:
    """The value on one short line; text in quotes, so that '5' is told from 5."""
    try:
        text = str(value) if isinstance(value, numbers.Number) else repr(value)
    except RecursionError:
        text = f"a deeply nested {type(value).__name__}"
    text = " ".join(text.split())
    return text if len(text) <= 60 else text[:57] + "..."


def integer(option: str, rule: str, value: object, *, least: int | None = None, most: int | None = None) -> int:
    """An integer in a range; a bool is none."""
    if isinstance(value, bool) or not isinstance(value, numbers.Integral):
        raise wrong(option, rule, value)
    found = int(value)
    if (least is not None and found < least) or (most is not None and found > most):
        raise wrong(option, rule, value)
    return found


def number(
    option: str,
    rule: str,
    value: object,
    *,
    above: float = -math.inf,
    least: float = -math.inf,
    most: float = math.inf,
) -> float:
    """A finite number in a range."""
    if isinstance(value, bool) or not isinstance(value, numbers.Real):
        raise wrong(option, rule, value)
    try:
        found = float(value)
    except OverflowError:
        found = math.inf
    if not math.isfinite(found) or not found > above or not least <= found <= most:
        raise wrong(option, rule, value)
    return found + 0.0  # -0.0 becomes 0.0


def flag(option: str, value: object) -> bool:
    """True or false, nothing that merely counts as such."""
    if not isinstance(value, bool):
        raise wrong(option, "true or false", value)
    return value


def texts(option: str, value: object) -> tuple[str, ...]:
    """Texts, none of them empty; a single one may be given as it is."""
    rule = "a text, or a list of texts, none of them empty"
    if isinstance(value, str):
        value = (value,)
    if not isinstance(value, Iterable):
        raise wrong(option, rule, value)
    found = tuple(value)
    for text in found:
        if not isinstance(text, str) or not text:
            raise wrong(option, rule, text)
        _check_unicode(option, text)
    return found


def token_ids(option: str, value: object) -> tuple[int, ...]:
    """Token ids; whether the vocabulary has them is not known here."""
    rule = "a list of token ids, each an integer of at least 0"
    if isinstance(value, str | bytes) or not isinstance(value, Iterable):
        raise wrong(option, rule, value)
    return tuple(integer(option, rule, token_id, least=0) for token_id in value)


def logit_bias(option: str, value: object) -> Biases:
    """Token ids to biases; the ids may be texts, as JSON has them."""
    rule = "a mapping from token ids to numbers from -100 to 100"
    if not isinstance(value, Mapping):
        raise wrong(option, rule, value)
    biases: Biases = {}
    for key, bias in value.items():
        is_id = isinstance(key, str) and key.isascii() and key.isdigit() and len(key) <= _MOST_DIGITS
        token_id = int(key) if is_id else key
        biases[integer(option, rule, token_id, least=0)] = number(option, rule, bias, least=-100, most=100)
    return biases


def json_schema(option: str, value: object) -> str:
    """A JSON schema as text; a mapping, or true or false, becomes JSON. Whether it means anything is not known."""
    rule = "a JSON schema, as an object or as JSON text"
    try:
        schema = json.loads(without_mark(value)) if isinstance(value, str) else value
        text = json.dumps(schema, allow_nan=False)
    except (TypeError, ValueError, RecursionError):
        raise wrong(option, rule, value) from None
    if not isinstance(schema, Mapping | bool):
        raise wrong(option, rule, value)
    return text


def text(option: str, value: object) -> str:
    """One text that is not empty, and that can be written down: half of a surrogate pair cannot."""
    if not isinstance(value, str) or not value:
        raise wrong(option, "a text that is not empty", value)
    _check_unicode(option, value)
    return value


def _check_unicode(option: str, value: str) -> None:
    if any("\ud800" <= character <= "\udfff" for character in value):
        raise wrong(option, "valid Unicode", value)
