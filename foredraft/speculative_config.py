"""Speculation as vLLM's `--speculative-config` writes it."""

import json
from collections.abc import Mapping
from dataclasses import replace

from foredraft.config import DraftConfig
from foredraft.errors import OptionError

_KEYS = ("method", "model", "num_speculative_tokens")
_METHODS = {"ngram": "lookup", "suffix": "suffix", "draft_model": ""}
"""vLLM's names to ours; a draft model has its own."""


def parse_speculative_config(config: str | Mapping[str, object], others: DraftConfig | None = None) -> DraftConfig:
    """Read a configuration, given as JSON or as a mapping. others: what it says nothing of; None: the defaults.

    Keys: "method" ("ngram", which is our lookup, "suffix" or "draft_model"; may be left out where "model" is given),
    "model" (the draft model), "num_speculative_tokens". Raises OptionError for any other key or value: nothing is
    ignored.
    """
    values = _values(config)
    if unknown := [key for key in values if key not in _KEYS]:
        raise _wrong(f"key {unknown[0]!r} is not supported; supported are {', '.join(_KEYS)}")
    model, method = values.get("model"), values.get("method", "draft_model" if "model" in values else None)
    if not isinstance(method, str) or method not in _METHODS:
        raise _wrong(f'"method" must be one of {", ".join(_METHODS)}, got {method!r}')
    if (method == "draft_model") != isinstance(model, str):
        raise _wrong('"model" must name the draft model of method draft_model, and belongs to no other method')
    number = values.get("num_speculative_tokens")
    if number is not None and (isinstance(number, bool) or not isinstance(number, int)):
        raise _wrong(f'"num_speculative_tokens" must be a whole number, got {number!r}')
    drafter = model if isinstance(model, str) else _METHODS[method]
    return replace(others or DraftConfig(), drafters=(drafter,), num_draft_tokens=number)


def _values(config: str | Mapping[str, object]) -> Mapping[str, object]:
    if not isinstance(config, str):
        return config
    try:
        values = json.loads(config)
    except (ValueError, RecursionError):
        raise _wrong(f"is not valid JSON: {config[:60]!r}") from None
    if not isinstance(values, dict):
        raise _wrong('must be a JSON object such as {"method": "ngram", "num_speculative_tokens": 4}')
    return values


def _wrong(problem: str) -> OptionError:
    return OptionError(f"--speculative-config: {problem}")
