"""Requests made up from the server's own description: whatever comes, it is answered, and never with a 5xx."""

import os
from typing import Any

import httpx
import hypothesis
import pytest
import schemathesis
from helpers.serving import Running
from schemathesis.checks import not_a_server_error
from schemathesis.specs.openapi.checks import content_type_conformance, status_code_conformance

NUM_EXAMPLES = int(os.environ.get("FOREDRAFT_FUZZ_EXAMPLES", "25"))
"""Of each endpoint; more for a longer search."""


@pytest.fixture(scope="session")
def api(server: Running) -> Any:
    return schemathesis.openapi.from_url(f"{server.url}/openapi.json")


schema = schemathesis.pytest.from_fixture("api")


@schema.parametrize()
@hypothesis.settings(max_examples=NUM_EXAMPLES, deadline=None, suppress_health_check=list(hypothesis.HealthCheck))
def test_no_request_breaks_the_server(case: Any, server: Running) -> None:
    body = case.body
    if isinstance(body, dict):
        # A made-up name finds no model, and a made-up length takes its time: neither would get far.
        if isinstance(body.get("model"), str):
            body["model"] = server.tools_model
        for name in ("max_tokens", "max_completion_tokens", "max_output_tokens"):
            if isinstance(body.get(name), int) and body[name] > 4:
                body[name] = 4
        if case.path != "/tokenize" and {"max_tokens", "max_completion_tokens", "max_output_tokens"}.isdisjoint(body):
            name = "max_output_tokens" if case.path == "/v1/responses" else "max_tokens"
            if "token" not in case.path:
                body[name] = 4
    case.call_and_validate(
        base_url=server.url, checks=[not_a_server_error, status_code_conformance, content_type_conformance], timeout=60
    )


def test_it_still_answers(server: Running) -> None:
    body = {"model": server.model, "prompt": "One two", "max_tokens": 2, "temperature": 0}
    assert httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).status_code == 200
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}
