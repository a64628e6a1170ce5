"""What a server says of itself: health, models, metrics, its own description; and the log of requests."""

import json
import stat
from pathlib import Path

import httpx
import pytest
from helpers.serving import Running, serving, spec

from foredraft.errors import OptionError
from foredraft.llm import LLM
from foredraft.server import ModelPool, ServerOptions


def values(server: Running) -> dict[str, float]:
    lines = httpx.get(f"{server.url}/metrics").text.splitlines()
    return {line.rpartition(" ")[0]: float(line.rpartition(" ")[2]) for line in lines if not line.startswith("#")}


def test_metrics_count_what_was_done(server: Running) -> None:
    label = '{model_name="smollm2-135m"}'
    before = values(server)
    body = {"model": server.model, "prompt": "One two three one two three one two", "temperature": 0, "max_tokens": 12}
    fixed = {"draft": "lookup", "num_speculative_tokens": 4}
    answer = httpx.post(f"{server.url}/v1/completions", json=body | fixed, timeout=60).json()
    after = values(server)

    def grown(name: str, labels: str = label) -> float:
        return after[f"foredraft:{name}{labels}"] - before.get(f"foredraft:{name}{labels}", 0)

    spec_ = answer["speculation"]
    assert grown("prompt_tokens_total") == answer["usage"]["prompt_tokens"]
    assert grown("generation_tokens_total") == 12
    assert grown("spec_decode_num_drafts_total") == spec_["num_rounds"]
    assert grown("spec_decode_num_draft_tokens_total") == spec_["num_draft_tokens"] > 0
    assert grown("spec_decode_num_accepted_tokens_total") == spec_["num_accepted_tokens"]
    by_place = '{model_name="smollm2-135m",position="0"}'
    assert grown("spec_decode_num_accepted_tokens_per_pos_total", by_place) == spec_["accepted_per_position"][0]
    assert grown("request_success_total", '{finished_reason="length",model_name="smollm2-135m"}') == 1
    for name in ("time_to_first_token", "e2e_request_latency", "request_queue_time", "request_time_per_output_token"):
        assert grown(f"{name}_seconds_count") == 1
    assert after[f"foredraft:num_requests_running{label}"] == 0
    assert after[f"foredraft:kv_cache_usage_perc{label}"] == 0


def test_a_prompt_in_the_cache_is_counted_as_such(server: Running) -> None:
    body = {"model": server.model, "prompt": "A rather long beginning, " * 20, "max_tokens": 1, "temperature": 0}
    first, second = (httpx.post(f"{server.url}/v1/completions", json=body, timeout=60).json() for _ in range(2))
    assert first["usage"]["prompt_tokens_details"]["cached_tokens"] == 0
    num_cached = second["usage"]["prompt_tokens_details"]["cached_tokens"]
    assert first["usage"]["prompt_tokens"] - 20 < num_cached < first["usage"]["prompt_tokens"]
    assert second["timings"]["cache_n"] == num_cached
    assert second["timings"]["prompt_n"] < 20


def test_models_are_listed(server: Running, served_llm: LLM) -> None:
    listed = httpx.get(f"{server.url}/v1/models").json()
    assert [entry["id"] for entry in listed["data"]] == ["smollm2-135m", "tools"]
    assert listed["data"][0]["max_model_len"] == served_llm.context_length
    assert "suffix" in listed["data"][0]["drafters"]
    assert httpx.get(f"{server.url}/v1/models/tools").json()["id"] == "tools"
    assert httpx.get(f"{server.url}/health").json() == {"status": "ok"}


def test_the_description_has_every_path(server: Running) -> None:
    paths = httpx.get(f"{server.url}/openapi.json").json()["paths"]
    for path in (
        "/v1/chat/completions",
        "/v1/completions",
        "/v1/responses",
        "/v1/messages",
        "/v1/models",
        "/tokenize",
        "/detokenize",
        "/health",
        "/metrics",
    ):
        assert path in paths


def test_the_log_of_requests(served_llm: LLM, tmp_path: Path) -> None:
    file = tmp_path / "requests.jsonl"
    pool = ModelPool([spec("m", served_llm)])
    messages = [{"role": "user", "content": "Grüße"}]
    with serving(pool, ServerOptions(request_log=file)) as server:
        ask = {"model": "m", "messages": messages, "max_tokens": 4, "temperature": 0}
        chat = httpx.post(f"{server.url}/v1/chat/completions", json=ask, timeout=60).json()
        text = {"model": "m", "prompt": ["a", "b"], "max_tokens": 2, "temperature": 0.5, "seed": 1}
        done = httpx.post(f"{server.url}/v1/completions", json=text, timeout=60).json()
        httpx.post(f"{server.url}/v1/completions", json={"model": "m"}, timeout=60)
    one, two = (json.loads(line) for line in file.read_text(encoding="utf-8").splitlines())
    assert one["messages"] == messages
    assert one["completions"][0]["text"] == chat["choices"][0]["message"]["content"]
    assert len(one["completions"][0]["token_ids"]) == 4
    assert one["params"] == {"max_tokens": 4}
    assert two["prompt"] == ["a", "b"]
    assert [entry["text"] for entry in two["completions"]] == [choice["text"] for choice in done["choices"]]
    assert stat.S_IMODE(file.stat().st_mode) == 0o600
    with (
        pytest.raises(OptionError, match="cannot write the request log"),
        serving(ModelPool([spec("m", served_llm)]), ServerOptions(request_log=tmp_path)),
    ):
        pass


def test_a_prompt_that_begins_like_another_starts_at_once(server: Running) -> None:
    """The second one takes at most a tenth of the first one's time to its first token."""
    shared = "A long story that everybody has to read before he asks a question about it. " * 130

    def first_token_ms(question: str) -> float:
        body = {"model": server.model, "prompt": shared + question, "max_tokens": 1, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/completions", json=body, timeout=120).json()
        assert answer["usage"]["prompt_tokens"] > 2000
        return float(answer["timings"]["first_token_ms"])

    assert first_token_ms("Who?") * 0.1 >= min(first_token_ms("Why?"), first_token_ms("When?"))


def test_the_next_turn_of_a_conversation_reads_only_what_is_new(server: Running) -> None:
    messages = [{"role": "user", "content": "Tell me about the sea. " * 40}]
    before = 0
    for _ in range(3):
        body = {"model": server.model, "messages": messages, "max_tokens": 24, "temperature": 0}
        answer = httpx.post(f"{server.url}/v1/chat/completions", json=body, timeout=60).json()
        if before:
            new = answer["usage"]["prompt_tokens"] - before
            assert answer["timings"]["prompt_n"] < new + 40  # of blocks, the last one is not whole
        before = answer["usage"]["prompt_tokens"] + answer["usage"]["completion_tokens"]
        messages += [answer["choices"][0]["message"], {"role": "user", "content": "And then?"}]
