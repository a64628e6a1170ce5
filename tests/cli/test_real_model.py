"""The commands on real weights, as a user runs them."""

import json
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pexpect
import pytest
from helpers.command_line import REAL, Run, assert_refused, environment

from foredraft.trace import Trace

PROMPT = "Write one sentence about the sea, then write the same sentence again, three times."


@pytest.fixture
def generate(real: Run, smollm2_path: Path) -> Run:
    def run(*arguments: str, **options: Any) -> Any:
        return real("generate", "-m", str(smollm2_path), *arguments, **options)

    return run


def _object(generate: Run, *arguments: str) -> dict[str, Any]:
    result = generate("--json", *arguments)
    assert (result.returncode, result.stderr) == (0, b"")
    completion: dict[str, Any] = json.loads(result.stdout)
    return completion


def test_text_streams_and_the_summary_follows(generate: Run) -> None:
    result = generate("--max-tokens", "32", PROMPT)
    assert result.returncode == 0
    assert len(result.stdout.decode().split()) > 5
    pattern = r"(\d+) tokens, [\d.]+ tokens/s(, [\d.]+ times plain decoding)?\n"
    summary = re.fullmatch(pattern, result.stderr.decode())
    assert summary, result.stderr
    assert 1 <= int(summary[1]) <= 32


def test_the_json_object_is_the_documented_one(generate: Run) -> None:
    completion = _object(generate, "--max-tokens", "24", "--ignore-eos", "--draft", "lookup", PROMPT)
    assert list(completion) == ["text", "token_ids", "finish_reason", "usage", "timings", "speculation"]
    assert set(completion["usage"]) == {"prompt_tokens", "completion_tokens", "total_tokens"}
    assert set(completion["timings"]) == {
        "load_s",
        "prefill_s",
        "decode_s",
        "draft_s",
        "verify_s",
        "accept_s",
        "prompt_tokens_per_s",
        "tokens_per_s",
    }
    assert set(completion["speculation"]) == {
        "methods",
        "lossless",
        "num_rounds",
        "num_draft_tokens",
        "num_accepted_tokens",
        "acceptance_rate",
        "mean_acceptance_length",
        "accepted_per_position",
        "reason",
        "acceptance",
        "equality",
        "cost",
        "by_method",
        "expected_tokens",
        "expected_s",
        "speedup",
    }
    usage = completion["usage"]
    assert len(completion["token_ids"]) == usage["completion_tokens"] == 24
    assert usage["total_tokens"] == usage["prompt_tokens"] + 24
    assert completion["finish_reason"] == "length"
    assert completion["speculation"]["methods"] == ["lookup"]
    assert completion["speculation"]["lossless"] is True


def test_what_streams_is_the_text_of_the_object(generate: Run) -> None:
    arguments = ("--max-tokens", "48", "List three animals, with an emoji and a Chinese word for each.")
    streamed = generate("-q", *arguments)
    assert streamed.stdout.decode() == _object(generate, *arguments)["text"] + "\n"
    assert streamed.stderr == b""


@pytest.mark.parametrize("sampling", [[], ["--temperature", "0.8", "--seed", "7"]], ids=["greedy", "sampled"])
def test_the_text_is_the_same_whatever_drafts(generate: Run, sampling: list[str]) -> None:
    arguments = [*sampling, "--max-tokens", "64", PROMPT]
    plain = _object(generate, "--draft", "none", *arguments)
    for draft in ("lookup", "auto"):
        assert _object(generate, "--draft", draft, *arguments)["token_ids"] == plain["token_ids"]


def test_the_seed_decides(generate: Run) -> None:
    arguments = ["--temperature", "1.5", "--max-tokens", "16", PROMPT]
    first = _object(generate, "--seed", "1", *arguments)["token_ids"]
    assert _object(generate, "--seed", "1", *arguments)["token_ids"] == first
    assert _object(generate, "--seed", "2", *arguments)["token_ids"] != first


def test_a_stop_string_ends_the_text_before_it(generate: Run) -> None:
    whole = _object(generate, "--max-tokens", "40", PROMPT)["text"]
    stop = whole.split()[4]
    completion = _object(generate, "--max-tokens", "40", "--stop", stop, PROMPT)
    assert completion["text"] == whole[: whole.index(stop)]
    assert completion["finish_reason"] == "stop"


def test_raw_continues_the_text(generate: Run) -> None:
    result = generate("-q", "--raw", "--max-tokens", "8", "The capital of France is")
    assert "Paris" in result.stdout.decode()


def test_a_prompt_longer_than_the_context_is_refused_with_both_numbers(generate: Run) -> None:
    result = generate("--context-length", "64", "word " * 200)
    assert_refused(result, "64")
    assert len(re.findall(r"\d+", result.stderr.decode())) >= 2


def test_an_unknown_draft_is_refused(generate: Run) -> None:
    assert_refused(generate("--draft", "nope", "x"), "nope", "lookup")


@pytest.mark.parametrize("content", [b"", b"GGUF", b"\x8f\x13" * 5000, b"GGUF\x03\0\0\0" + b"\xff" * 64])
def test_a_file_that_is_no_model_is_refused(real: Run, tmp_path: Path, content: bytes) -> None:
    (tmp_path / "bad.gguf").write_bytes(content)
    assert_refused(real("generate", "-m", "bad.gguf", "x"), "bad.gguf")


def test_a_truncated_model_is_refused(real: Run, tmp_path: Path, smollm2_path: Path) -> None:
    with smollm2_path.open("rb") as file:
        (tmp_path / "short.gguf").write_bytes(file.read(5_000_000))
    assert_refused(real("generate", "-m", "short.gguf", "x"), "short.gguf")


def test_a_folder_that_is_no_model_is_refused(real: Run, tmp_path: Path) -> None:
    (tmp_path / "folder").mkdir()
    assert_refused(real("generate", "-m", "./folder", "x"), "empty folder")
    (tmp_path / "folder/notes.txt").write_text("no model")
    assert_refused(real("generate", "-m", "./folder", "x"), "config.json")


@pytest.fixture
def chat(smollm2_path: Path) -> Iterator["pexpect.spawn[str]"]:
    child = pexpect.spawn(
        REAL[0],
        [*REAL[1:], "chat", "-m", str(smollm2_path)],
        env=environment(),
        encoding="utf-8",
        timeout=60,
        dimensions=(40, 200),
    )
    child.expect_exact("> ")
    yield child
    child.close(force=True)


def test_a_chat_goes_on_after_ctrl_c(chat: "pexpect.spawn[str]") -> None:
    chat.sendline("Write a very long story about a very long river.")
    chat.expect_exact("long river.\r\n")  # the echo of the question
    chat.expect(r"\w+ \w+ ")  # in the middle of the answer
    chat.sendintr()
    chat.expect_exact("(stopped)")
    chat.expect_exact("> ")
    chat.sendline("What is the capital of France? Answer in one short sentence.")
    chat.expect_exact("Paris")
    chat.expect(r"\[\d+ tokens, .* tokens/s.*\]")
    chat.expect_exact("> ")
    chat.sendline("/stats")
    chat.expect_exact("1 stopped")
    chat.sendline("/reset")
    chat.expect_exact("(new conversation)")
    chat.sendline("/exit")
    chat.expect(pexpect.EOF)
    chat.close()
    assert chat.exitstatus == 0


def test_a_chat_through_a_pipe(real: Run, smollm2_path: Path) -> None:
    arguments = ["chat", "-q", "-m", str(smollm2_path), "--max-tokens", "24"]
    result = real(*arguments, stdin=b"Say hello.\n/reset\nSay hello.\n/exit\n")
    assert result.returncode == 0
    half = len(result.stdout) // 2
    assert result.stdout[:half] == result.stdout[half:] != b"\n", "a reset conversation starts afresh"


def test_a_chat_whose_context_fills_up_goes_on(real: Run, smollm2_path: Path) -> None:
    arguments = ["chat", "-m", str(smollm2_path), "--context-length", "128"]
    long = b"word " * 200
    result = real(*arguments, stdin=long + b"\n/reset\nSay hello.\n")
    assert result.returncode == 0
    assert b"/reset starts a new conversation" in result.stderr
    assert len(result.stdout) > 5


def test_a_trace_is_written(generate: Run, tmp_path: Path) -> None:
    completion = _object(generate, "--max-tokens", "24", "--draft", "lookup", "--trace", "t.jsonl", PROMPT)
    trace = Trace.read(tmp_path / "t.jsonl")
    [sequence] = trace.sequences.values()
    assert [token for record in sequence.rounds for token in record.emitted] == completion["token_ids"]
    assert len(sequence.rounds) == completion["speculation"]["num_rounds"]


def test_a_trace_that_cannot_be_written_is_refused(generate: Run) -> None:
    assert_refused(generate("--trace", "missing/t.jsonl", PROMPT), "missing/t.jsonl", "No such file")
