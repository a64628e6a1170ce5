"""Requests made up from the server's own description: whatever comes, it is answered, and never with a 5xx."""

import os
from collections.abc import Iterator
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from helpers.serving import HERMES, Running, serving, spec
from hypothesis import HealthCheck
from schemathesis import GenerationMode
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

from foredraft.llm import LLM
from foredraft.server import ModelPool, ServerOptions

CHECKS = [not_a_server_error, status_code_conformance, content_type_conformance]
NUM_EXAMPLES = int(os.environ.get("FOREDRAFT_FUZZ_EXAMPLES", "10"))
"""Of each endpoint; more for a longer search."""


OPERATIONS = (
    "POST /v1/chat/completions",
    "POST /v1/completions",
    "POST /v1/responses",
    "POST /v1/messages",
    "POST /v1/messages/count_tokens",
    "POST /tokenize",
    "POST /detokenize",
    "GET /v1/models",
    "GET /v1/models/{name}",
    "GET /health",
    "GET /metrics",
)


@pytest.fixture(scope="module")
def fuzzed(served_llm: LLM) -> Iterator[Running]:
    """A server whose answers are short: a made-up request may ask for as many tokens as fit."""
    tools = served_llm.with_drafts("auto", draft_memory="none")
    pool = ModelPool([spec("smollm2-135m", served_llm), spec("tools", tools, chat_template=HERMES)])
    pool.load_first()
    with serving(pool, ServerOptions(max_tokens=4, max_sequences=4)) as running:
        yield running


@pytest.fixture(scope="module")
def operations(fuzzed: Running) -> dict[str, Any]:
    schema = schemathesis.openapi.from_url(f"{fuzzed.url}/openapi.json")
    found = [result.ok() for result in schema.get_all_operations()]
    return {operation.label: operation for operation in found}


def test_all_of_the_description_is_tried(operations: dict[str, Any]) -> None:
    assert sorted(operations) == sorted(OPERATIONS)


@pytest.mark.parametrize("label", OPERATIONS)
def test_no_request_breaks_the_server(label: str, operations: dict[str, Any], fuzzed: Running) -> None:
    for mode in list(GenerationMode) if label.startswith("POST") else [GenerationMode.POSITIVE]:
        operation = operations[label]
        if not (operation.body or operation.path_parameters):
            operation.Case().call_and_validate(base_url=fuzzed.url, checks=CHECKS)  # there is nothing to make up
            continue
        made = operation.as_strategy(generation_mode=mode)

        @hypothesis.given(case=made)
        @hypothesis.settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=list(HealthCheck))
        def run(case: Any) -> None:
            if isinstance(case.body, dict) and isinstance(case.body.get("model"), str):
                case.body["model"] = fuzzed.tools_model  # a made-up name finds no model, and shows nothing
            case.call_and_validate(base_url=fuzzed.url, checks=CHECKS, timeout=60)

        run()


def test_it_still_answers(fuzzed: Running) -> None:
    body = {"model": fuzzed.model, "prompt": "One two", "max_tokens": 2, "temperature": 0}
    assert httpx.post(f"{fuzzed.url}/v1/completions", json=body, timeout=60).status_code == 200
    assert httpx.get(f"{fuzzed.url}/health").json() == {"status": "ok"}
