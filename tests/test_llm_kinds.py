"""Values of another kind than an option takes, names that no file can have, texts that are none: one clear line."""

from typing import Any

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import UserError

WRONG: list[tuple[dict[str, Any], str]] = [
    ({"model": 5}, "the model must be"),
    ({"model": None}, "the model must be"),
    ({"model": b"model.gguf"}, "the model must be"),
    ({"trace": 5}, "--trace must be"),
    ({"trace": "a\0b"}, "no file can have this name"),
    ({"profile": {}}, "--profile must be"),
    ({"speculative_config": 5}, "--speculative-config must be"),
    ({"speculative_config": ["ngram"]}, "--speculative-config must be"),
    ({"num_draft_branches": "2"}, "--draft-branches must be"),
    ({"num_draft_branches": 1.5}, "--draft-branches must be"),
    ({"num_draft_branches": None}, "--draft-branches must be"),
    ({"draft_vocab_size": "5"}, "--draft-vocab must be"),
    ({"draft_vocab_size": 1.5}, "--draft-vocab must be"),
    ({"draft_vocab_size": True}, "--draft-vocab must be"),
    ({"draft_memory": "a\0b"}, "no file can have this name"),
]


@pytest.mark.parametrize(("options", "part"), WRONG, ids=lambda value: None if isinstance(value, str) else str(value))
def test_values_of_another_kind_are_refused(options: dict[str, Any], part: str) -> None:
    """Kind: a TypeError from somewhere inside instead of a line that names the option."""
    with pytest.raises(UserError, match=part) as caught:
        LLM(**{"model": tiny_file(), "kernels": "reference", **options})
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["stop", "bad_words", "dry_sequence_breakers", "prediction", "regex", "grammar"])
def test_half_a_character_is_no_text(name: str) -> None:
    """Kind: a text that cannot be written down passes until the middle of a completion."""
    with pytest.raises(UserError, match="must be valid Unicode"):
        SamplingParams(**{name: "\ud800"})


def test_schemas_nested_too_deeply() -> None:
    """Kind: how deep a schema may be nested is found out by a crash."""
    schema: dict[str, Any] = {"type": "integer"}
    for _ in range(200):
        schema = {"type": "array", "items": schema}
    llm = LLM(tiny_file(), kernels="reference", draft="none")
    with pytest.raises(UserError, match="--json-schema cannot be used"):
        llm.generate("text", SamplingParams(json_schema=schema))
    for _ in range(5000):
        schema = {"type": "array", "items": schema}
    with pytest.raises(UserError, match="--json-schema must be a JSON schema"):
        SamplingParams(json_schema=schema)


def test_empty_params_of_another_kind_are_refused() -> None:
    llm = LLM(tiny_file(), kernels="reference", draft="none")
    for wrong in ({}, 0, ""):
        with pytest.raises(UserError, match="give one SamplingParams"):
            llm.generate("text", wrong)  # type: ignore[arg-type]
        with pytest.raises(UserError, match="must be SamplingParams"):
            llm.stream("text", wrong)  # type: ignore[arg-type]
