"""POST /v1/completions, /tokenize and /detokenize: plain texts, ids, several prompts, the middle of a text."""

from typing import Any

import httpx
import openai
import pytest
from helpers.serving import Running
from openai import OpenAI

from foredraft.errors import UserError
from foredraft.llm import LLM, SamplingParams
from foredraft.server import infill
from foredraft.server.infill import infill_prompt

TOOLS = [{"type": "function", "function": {"name": "f", "parameters": {"type": "object"}}}]
TEXT = "The three largest cities of France are"


@pytest.fixture(scope="module")
def client(server: Running) -> OpenAI:
    return OpenAI(base_url=f"{server.url}/v1", api_key="none", max_retries=0)


def post(server: Running, path: str, body: dict[str, Any]) -> httpx.Response:
    return httpx.post(f"{server.url}{path}", json=body, timeout=60)


def test_texts_and_ids_are_continued(server: Running, served_llm: LLM, client: OpenAI) -> None:
    params = SamplingParams(max_tokens=12)
    ids = served_llm.tokenizer.encode(TEXT)
    other = served_llm.tokenizer.encode("Once upon a time")
    [one], [two] = (served_llm.generate(prompt, params) for prompt in (ids, other))
    cases: list[tuple[Any, list[str]]] = [
        (TEXT, [one.text]),
        ([TEXT, "Once upon a time"], [one.text, two.text]),
        (ids, [one.text]),
        ([ids, other], [one.text, two.text]),
    ]
    for prompt, expected in cases:
        whole = client.completions.create(model=server.model, prompt=prompt, max_tokens=12, temperature=0)
        assert [choice.text for choice in whole.choices] == expected
        texts = [""] * len(expected)
        reasons = []
        for chunk in client.completions.create(
            model=server.model, prompt=prompt, max_tokens=12, temperature=0, stream=True
        ):
            texts[chunk.choices[0].index] += chunk.choices[0].text
            reasons += [chunk.choices[0].finish_reason] if chunk.choices[0].finish_reason else []
        assert texts == expected
        assert reasons == ["length"] * len(expected)


def test_the_default_is_16_tokens(server: Running, client: OpenAI) -> None:
    whole = client.completions.create(model=server.model, prompt=TEXT, temperature=0)
    assert whole.usage is not None
    assert whole.usage.completion_tokens == 16


def test_special_tokens_in_a_text_are_read(server: Running, served_llm: LLM, client: OpenAI) -> None:
    """Kind: a client that writes its own chat format gets it spelled out in pieces."""
    text = "<|im_start|>user\nHi<|im_end|>\n<|im_start|>assistant\n"
    whole = client.completions.create(model=server.model, prompt=text, max_tokens=2)
    assert whole.usage is not None
    assert whole.usage.prompt_tokens == len(served_llm.tokenizer.encode(text, parse_special=True)) < 12


@pytest.mark.parametrize("stream", [False, True])
def test_echo_log_probabilities_and_the_best_of_several(
    server: Running, served_llm: LLM, client: OpenAI, *, stream: bool
) -> None:
    request: dict[str, Any] = {"model": server.model, "prompt": TEXT, "max_tokens": 6, "temperature": 0, "logprobs": 2}
    [expected] = served_llm.generate(TEXT, SamplingParams(max_tokens=6, logprobs=2, echo=True))
    if stream:
        chunks = list(client.completions.create(**request, echo=True, stream=True))
        parts = [chunk.choices[0] for chunk in chunks if chunk.choices]
    else:
        parts = client.completions.create(**request, echo=True).choices
    assert "".join(part.text for part in parts) == expected.text
    told = [part.logprobs for part in parts if part.logprobs]
    assert [x for one in told for x in one.token_logprobs or ()] == [f.logprob for f in expected.logprobs or ()]
    tokens = [token for one in told for token in one.tokens or ()]
    offsets = [offset for one in told for offset in one.text_offset or ()]
    assert offsets == [len(TEXT) + len("".join(tokens[:place])) for place in range(len(tokens))]


def test_the_best_of_several(server: Running, served_llm: LLM, client: OpenAI) -> None:
    options: dict[str, Any] = {"max_tokens": 6, "temperature": 1.0, "seed": 5, "best_of": 4}
    whole = client.completions.create(model=server.model, prompt=TEXT, **options)
    [expected] = served_llm.generate(TEXT, SamplingParams(**options))
    assert [choice.text for choice in whole.choices] == [expected.text]
    with pytest.raises(openai.BadRequestError, match="cannot be streamed"):
        client.completions.create(model=server.model, prompt=TEXT, stream=True, **options)


def test_the_middle_of_a_text(
    served_llm: LLM, server: Running, client: OpenAI, monkeypatch: pytest.MonkeyPatch
) -> None:
    tokenizer = served_llm.tokenizer
    with pytest.raises(UserError, match="filling in the middle"):
        infill_prompt(tokenizer, "a", "b")
    # The vocabulary has no such tokens; others of its control tokens stand for them.
    marks = infill._Marks("<file_sep>", "<filename>", "<gh_stars>")
    monkeypatch.setattr(infill, "_KNOWN", (*infill._KNOWN, marks))
    found = infill_prompt(tokenizer, "def add(a, b):\n    ", "\n    return c")
    assert isinstance(found, dict)
    ids = found["prompt_token_ids"]
    text = tokenizer.decode(ids, skip_special=False)
    assert text == "<file_sep>def add(a, b):\n    <filename>\n    return c<gh_stars>"
    assert [tokenizer.token_text(token) for token in ids if token in tokenizer.special_ids] == list(marks)
    whole = client.completions.create(
        model=server.model, prompt="def add(a, b):\n    ", suffix="\n    return c", max_tokens=4, temperature=0
    )
    assert whole.choices[0].text == served_llm.generate(found, SamplingParams(max_tokens=4))[0].text


@pytest.mark.parametrize(
    ("wrong", "message"),
    [
        ({"prompt": ""}, "prompt is empty"),
        ({"prompt": []}, "prompt is empty"),
        ({"prompt": [[]]}, "prompt is empty"),
        ({"prompt": [49152]}, "outside the vocabulary"),
        ({"prompt": [-1]}, "greater than or equal to 0"),
        ({"prompt": {"a": 1}}, "valid string"),
        ({"prompt": ["a"] * 65}, "at most 64"),
        ({"prompt": ["a", "b"], "suffix": "c"}, "single prompt"),
        ({"prompt": "a", "suffix": "c", "echo": True}, "cannot be combined"),
        ({"prompt": "a", "best_of": 1, "n": 2, "temperature": 1}, "best_of 1 is less than n 2"),
    ],
)
def test_what_is_wrong_is_said(server: Running, wrong: dict[str, Any], message: str) -> None:
    answer = post(server, "/v1/completions", {"model": server.model, "max_tokens": 1, **wrong})
    assert answer.status_code == 400
    assert message in answer.json()["error"]["message"]


def test_there_and_back(server: Running, served_llm: LLM) -> None:
    tokenizer = served_llm.tokenizer
    text = "Grüße 👋 <|im_end|> 日本"
    found = post(server, "/tokenize", {"model": server.model, "prompt": text, "return_token_strs": True}).json()
    assert found["tokens"] == tokenizer.encode(text, parse_special=True)
    assert found["count"] == len(found["tokens"]) == len(found["token_strs"])
    assert found["max_model_len"] == served_llm.context_length
    back = post(server, "/detokenize", {"model": server.model, "tokens": found["tokens"]}).json()
    assert back == {"prompt": text, "content": text}
    messages = [{"role": "user", "content": "Hi"}]
    chat = post(server, "/tokenize", {"model": server.model, "messages": messages}).json()
    assert chat["tokens"] == tokenizer.encode_chat(messages)
    call = {"id": "1", "type": "function", "function": {"name": "f", "arguments": '{"a": 1}'}}
    spoken = [
        {"role": "developer", "content": "Be brief."},
        {"role": "user", "content": "Hi"},
        {"role": "assistant", "content": None, "tool_calls": [call]},
    ]
    body = {"model": server.tools_model, "messages": spoken, "tools": TOOLS}
    as_tokens = post(server, "/tokenize", body).json()
    asked = {"model": server.tools_model, "messages": spoken, "tools": TOOLS, "max_tokens": 1}
    answered = post(server, "/v1/chat/completions", asked).json()
    assert as_tokens["count"] == answered["usage"]["prompt_tokens"]
    plain = post(server, "/tokenize", {"model": server.model, "content": "<|im_end|>", "parse_special": False}).json()
    assert plain["tokens"] == tokenizer.encode("<|im_end|>")
    for wrong in ({"prompt": "a", "messages": messages}, {}, {"prompt": "a", "model": "other"}):
        assert post(server, "/tokenize", {"model": server.model, **wrong}).status_code in (400, 404)
    assert post(server, "/tokenize", {"prompt": "a"}).status_code == 400  # there are two models
    assert post(server, "/detokenize", {"model": server.model, "tokens": [49152]}).status_code == 400
