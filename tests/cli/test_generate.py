"""`foredraft generate` with the fake LLM: what goes in, what comes out where, and what is refused."""

import json
import os
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest
from helpers.command_line import FAKE, Run, assert_refused, environment

from foredraft.cli.inspect import DEFAULT_MAX_TOKENS
from foredraft.sampling import SamplingParams

GENERATE = ("generate", "-m", "fake.gguf")
SUMMARY = "2 tokens, 187.2 tokens/s, 1.50 times plain decoding\n"


def _json(result: "subprocess.CompletedProcess[bytes]") -> Any:
    assert result.returncode == 0, result.stderr
    return json.loads(result.stdout)


def test_the_text_goes_to_stdout_and_the_summary_to_stderr(fake: Run) -> None:
    result = fake(*GENERATE, "Hello there")
    assert (result.returncode, result.stdout, result.stderr.decode()) == (0, b"Hello there\n", SUMMARY)


def test_quiet_leaves_the_summary_out(fake: Run) -> None:
    for flag in ("-q", "--quiet"):
        result = fake(*GENERATE, flag, "Hello there")
        assert (result.stdout, result.stderr) == (b"Hello there\n", b"")


def test_the_summary_without_a_drafter(fake: Run) -> None:
    told = fake(*GENERATE, "--draft", "none", "-v", "hello").stderr
    assert b"no drafter" in told.splitlines()[-1]
    assert b"plain decoding" not in told


def test_json_is_one_object_and_nothing_else(fake: Run) -> None:
    result = fake(*GENERATE, "--json", "Grüße, 世界 🌍")
    completion = _json(result)
    assert result.stdout.count(b"\n") == 1
    assert result.stderr == b""
    assert completion["text"] == "Grüße, 世界 🌍"
    assert list(completion) == ["text", "token_ids", "finish_reason", "usage", "timings", "speculation"]


def test_text_is_streamed(models: Path) -> None:
    command = [*FAKE, *GENERATE, "count"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, cwd=models, env=environment()) as process:
        assert process.stdout is not None
        assert os.read(process.stdout.fileno(), 1) == b"0"
        process.kill()


@pytest.mark.parametrize("locale", ["C", "C.UTF-8", "en_US.ISO-8859-1"])
def test_text_is_utf8_whatever_the_locale(fake: Run, locale: str) -> None:
    for more in ({}, {"PYTHONIOENCODING": "ascii"}):
        result = fake(*GENERATE, "-q", stdin="naïve 🌍".encode(), LC_ALL=locale, **more)
        assert result.stdout == "naïve 🌍\n".encode()


def test_the_chat_template_gets_messages(fake: Run) -> None:
    result = fake(*GENERATE, "-q", "--system", "Be brief.", "messages")
    assert json.loads(result.stdout) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "messages"},
    ]
    assert json.loads(fake(*GENERATE, "-q", "messages").stdout) == [{"role": "user", "content": "messages"}]


def test_raw_and_a_model_without_a_template_get_the_bare_text(fake: Run) -> None:
    assert json.loads(fake(*GENERATE, "-q", "--raw", "messages").stdout) == "messages"
    assert json.loads(fake("generate", "-m", "plain.gguf", "-q", "messages").stdout) == "messages"


def test_options_that_were_not_given_are_the_librarys_defaults(fake: Run) -> None:
    given = json.loads(fake(*GENERATE, "-q", "arguments").stdout)
    defaults = SamplingParams()
    assert given.pop("params") == {
        **{name: getattr(defaults, name) for name in SamplingParams.__dataclass_fields__},
        **{name: [] for name in ("stop", "stop_token_ids", "bad_words")},
        "dry_sequence_breakers": ["\n", ":", '"', "*"],
    }
    assert given == {
        "model": "fake.gguf",
        "draft": {"drafters": ["auto"]},
        "context_length": None,
        "threads": None,
        "kv_memory": None,
        "max_running": None,
        "max_batched_tokens": None,
        "trace": None,
        "profile": None,
    }


def test_the_help_names_the_librarys_default_of_max_tokens(real: Run) -> None:
    words = " ".join(real("generate", "--help").stdout.decode().split())
    assert f"(default: {SamplingParams().max_tokens}; chat: 1024, inspect: {DEFAULT_MAX_TOKENS})" in words


def test_every_option_reaches_the_library(fake: Run) -> None:
    options = (
        "--draft draft.gguf --draft lookup --num-draft-tokens 3 --max-tokens 7 --temperature 0.5 --top-k 9 "
        "--top-p 0.9 --min-p 0.1 --seed -2 --stop END --stop STOP --ignore-eos --threads 2 "
        "--acceptance typical:0.3,0.1 "
        "--kv-memory 1GiB --max-running 3 --max-batched-tokens 64 "
        "--context-length 512 --trace rounds.jsonl --draft-memory texts --min-tokens 2 --typical-p 0.8 "
        "--repetition-penalty 1.2 --frequency-penalty -0.5 --presence-penalty 0.25 --dry-multiplier 0.75 "
        "--dry-base 2 --dry-allowed-length 3 --dry-sequence-breakers . --dry-sequence-breakers ; --dry-range 64 "
        "--logit-bias 5=-100 --logit-bias 6=1.5 --bad-words no --bad-words never --stop-token-ids 8 "
        "--stop-token-ids 9 --include-stop --echo"
    )
    given = json.loads(fake(*GENERATE, "-q", *options.split(), "arguments").stdout)
    assert given["params"] == {
        "max_tokens": 7,
        "min_tokens": 2,
        "temperature": 0.5,
        "typical_p": 0.8,
        "top_k": 9,
        "top_p": 0.9,
        "min_p": 0.1,
        "seed": -2,
        "repetition_penalty": 1.2,
        "frequency_penalty": -0.5,
        "presence_penalty": 0.25,
        "dry_multiplier": 0.75,
        "dry_base": 2.0,
        "dry_allowed_length": 3,
        "dry_sequence_breakers": [".", ";"],
        "dry_range": 64,
        "logit_bias": {"5": -100.0, "6": 1.5},
        "bad_words": ["no", "never"],
        "stop": ["END", "STOP"],
        "stop_token_ids": [8, 9],
        "include_stop_str_in_output": True,
        "ignore_eos": True,
        "echo": True,
        **dict.fromkeys(("json_schema", "regex", "grammar", "prediction", "best_of")),
        "json_object": False,
        "n": 1,
        "logprobs": None,
        "prompt_logprobs": None,
    }
    assert given["draft"] == {
        "drafters": ["draft.gguf", "lookup"],
        "num_draft_tokens": 3,
        "memory": "texts",
        "acceptance": "typical:0.3,0.1",
    }
    assert (given["threads"], given["context_length"], given["trace"]) == (2, 512, "rounds.jsonl")
    assert (given["kv_memory"], given["max_running"], given["max_batched_tokens"]) == ("1GiB", 3, 64)


@pytest.mark.parametrize(
    ("options", "name", "value"),
    [
        (["--json-schema", '{"type": "object"}'], "json_schema", '{"type": "object"}'),
        (["--json-schema", "@schema.json"], "json_schema", '{"type": "array"}'),
        (["--json-object"], "json_object", True),
        (["--regex", "a+"], "regex", "a+"),
        (["--grammar", 'root ::= "a"'], "grammar", 'root ::= "a"'),
        (["--grammar", "@grammar.lark"], "grammar", 'start: "ä"\n'),
        (["--dry-multiplier", "1", "--dry-sequence-breakers", "none"], "dry_sequence_breakers", []),
    ],
)
def test_a_form_of_the_text(fake: Run, models: Path, options: list[str], name: str, value: object) -> None:
    (models / "schema.json").write_text('{"type": "array"}')
    (models / "grammar.lark").write_text('start: "ä"\n', encoding="utf-8")
    assert json.loads(fake(*GENERATE, "-q", *options, "arguments").stdout)["params"][name] == value


def test_several_answers(fake: Run) -> None:
    options = ("--n", "2", "--temperature", "1")
    result = fake(*GENERATE, "-q", *options, "hello")
    assert result.stdout == b"--- answer 1 of 2 ---\nhello0\n--- answer 2 of 2 ---\nhello1\n"
    best = fake(*GENERATE, "-q", "--best-of", "3", "--temperature", "1", "hello")
    assert best.stdout == b"hello0\n"


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        (["--logprobs", "2"], ["--logprobs", "--json"]),
        (["--prompt-logprobs", "2"], ["--prompt-logprobs", "--json"]),
        (["--n", "2"], ["--n above 1 needs a --temperature above 0"]),
        (["--best-of", "1", "--n", "2", "--temperature", "1"], ["--best-of 1 is less than --n 2"]),
        (["--logit-bias", "5"], ["--logit-bias must be a token id, = and a number", "'5'"]),
        (["--logit-bias", "5=101"], ["--logit-bias must be", "-100 to 100"]),
        (["--json-schema", "{"], ["--json-schema must be a JSON schema"]),
        (["--json-schema", "@missing.json"], ["cannot read the --json-schema file missing.json"]),
        (["--regex", "a", "--json-object"], ["--json-object and --regex cannot be combined"]),
        (["--regex", "a", "--ignore-eos"], ["--ignore-eos cannot be combined with --regex"]),
        (["--min-tokens", "9", "--max-tokens", "3"], ["--min-tokens 9 is more than --max-tokens 3"]),
        (["--dry-base", "2"], ["--dry-base needs a --dry-multiplier"]),
        (["--context-length", "0"], ["--context-length must be at least 2"]),
        (["--repetition-penalty", "0"], ["--repetition-penalty must be a finite number above 0"]),
    ],
)
def test_options_that_mean_nothing_are_refused(fake: Run, options: list[str], parts: list[str]) -> None:
    assert_refused(fake(*GENERATE, *options, "hello"), *parts)


@pytest.mark.parametrize("arguments", [[], ["-"]])
def test_the_prompt_from_standard_input(fake: Run, arguments: list[str]) -> None:
    assert fake(*GENERATE, "-q", *arguments, stdin=b"from a pipe\n").stdout == b"from a pipe\n"


def test_the_prompt_from_a_file(fake: Run, models: Path) -> None:
    (models / "prompt.txt").write_bytes("zwei\r\nZeilen ß\r\n".encode())
    result = fake(*GENERATE, "-q", "--prompt-file", "prompt.txt")
    assert result.stdout == "zwei\r\nZeilen ß\n".encode()


def test_raw_keeps_the_last_line_ending(fake: Run) -> None:
    assert fake(*GENERATE, "-q", "--raw", stdin=b"def f():\n").stdout == b"def f():\n\n"


def test_a_prompt_that_starts_with_a_dash(fake: Run) -> None:
    assert fake(*GENERATE, "-q", "--", "-5 + 3 =").stdout == b"-5 + 3 =\n"


@pytest.mark.parametrize(
    ("arguments", "stdin", "parts"),
    [
        (["--max-tokens", "-5", "x"], b"", ["--max-tokens must be", "got -5"]),
        (["--temperature", "-0.1", "x"], b"", ["--temperature must be"]),
        (["--temperature", "nan", "x"], b"", ["--temperature must be"]),
        (["--temperature", "inf", "x"], b"", ["--temperature must be"]),
        (["--top-p", "0", "x"], b"", ["--top-p must be"]),
        (["--top-p", "1.01", "x"], b"", ["--top-p must be"]),
        (["--min-p", "2", "x"], b"", ["--min-p must be"]),
        (["--top-k", "-2", "x"], b"", ["--top-k must be"]),
        (["--seed", str(1 << 64), "x"], b"", ["--seed must be"]),
        (["--stop", "", "x"], b"", ["--stop must be"]),
        (["--threads", "0", "x"], b"", ["--threads must be an integer from 1 to 1024, got 0"]),
        (["--max-running", "0", "x"], b"", ["--max-running must be an integer from 1 to", "got 0"]),
        (["--max-batched-tokens", "8", "x"], b"", ["--max-batched-tokens must be an integer from 16 to", "got 8"]),
        (["--kv-memory", "lots", "x"], b"", ["--kv-memory", "'lots'"]),
        (["--context-length", "-1", "x"], b"", ["--context-length must be at least 2"]),
        (["--num-draft-tokens", "0", "x"], b"", ["--num-draft-tokens must be at least 1", "--draft none"]),
        (
            ["--acceptance", "lossy", "x"],
            b"",
            ["unknown --acceptance 'lossy'", "coupled, rejection, block, tree, traversal"],
        ),
        (["--acceptance", "threshold:eps=2", "x"], b"", ["eps must be above 0 and at most 1", "'2'"]),
        (["--draft", "nope", "x"], b"", ["unknown draft 'nope'"]),
        (["--draft", "missing.gguf", "x"], b"", ["no such file or folder: 'missing.gguf'"]),
        ([""], b"", ["the prompt is empty"]),
        (["  \n"], b"", ["the prompt is empty"]),
        ([], b"", ["the prompt is empty"]),
        ([], b"\n", ["the prompt is empty"]),
        (["--raw", ""], b"", ["the prompt is empty"]),
        (["x", "--prompt-file", "fake.gguf"], b"", ["either PROMPT or --prompt-file"]),
        (["--prompt-file", "missing.txt"], b"", ["cannot read the prompt file missing.txt: No such file"]),
        (["--prompt-file", "."], b"", ["cannot read the prompt file .: Is a directory"]),
        (["--raw", "--system", "s", "x"], b"", ["--system needs the chat template", "--raw"]),
        (["-m", "plain.gguf", "--system", "s", "x"], b"", ["--system needs a chat template"]),
        (["-m", "missing.gguf", "x"], b"", ["no such file or folder: 'missing.gguf'"]),
        (["-m", "smolm2-135m", "x"], b"", ["did you mean the built-in model smollm2-135m"]),
        (["overflow"], b"", ["the prompt has 9000 tokens, the context holds 2048"]),
    ],
)
def test_bad_input_is_refused_in_one_line(fake: Run, arguments: list[str], stdin: bytes, parts: list[str]) -> None:
    assert_refused(fake(*GENERATE, *arguments, stdin=stdin), *parts)


def test_text_that_is_not_utf8_is_refused_with_its_place(fake: Run, models: Path) -> None:
    bad = "grüß".encode() + b" \xff rest"
    place = "is not valid UTF-8: byte 0xff at offset 7"
    (models / "bad.txt").write_bytes(bad)
    assert_refused(fake(*GENERATE, stdin=bad), f"standard input {place}")
    assert_refused(fake(*GENERATE, "--prompt-file", "bad.txt"), f"prompt file bad.txt {place}")
    assert_refused(fake(*GENERATE, bad), f"PROMPT {place}")
    assert_refused(fake(*GENERATE, "--system", bad, "x"), f"--system {place}")
    assert_refused(fake(*GENERATE, "--stop", bad, "x"), f"--stop {place}")
    assert_refused(fake(*GENERATE, stdin=b"cut short \xe4\xb8"), "byte 0xe4 at offset 10")


def test_ctrl_c_ends_quietly(models: Path) -> None:
    command = [*FAKE, *GENERATE, "count"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=models, env=environment()) as process:
        assert process.stdout is not None
        process.stdout.read(4)
        process.send_signal(signal.SIGINT)
        _, error = process.communicate(timeout=30)
    # The fake tells when it was stopped in the middle of something: fine for a process that ends.
    assert (process.returncode, error.replace(b"torn\n", b"")) == (130, b"")


def test_a_reader_that_goes_away_is_no_fault(models: Path) -> None:
    command = [*FAKE, *GENERATE, "count"]
    pipe = subprocess.PIPE
    with subprocess.Popen(command, stdout=pipe, stderr=pipe, cwd=models, env=environment()) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.read(4)
        process.stdout.close()
        error = process.stderr.read()
    assert (process.returncode, error) == (141, b"")


def test_output_to_a_full_disk_is_one_line(models: Path) -> None:
    with open("/dev/full", "wb") as full:
        for arguments in (["hello"], ["--json", "hello"]):
            result = subprocess.run(
                [*FAKE, *GENERATE, *arguments],
                stdout=full,
                stderr=subprocess.PIPE,
                cwd=models,
                env=environment(),
            )
            assert result.returncode == 2
            assert result.stderr == b"foredraft: cannot write the output: No space left on device\n"


def test_a_terminal_without_a_prompt_is_told_how_to_give_one(models: Path) -> None:
    controller, terminal = os.openpty()
    try:
        result = subprocess.run(
            [*FAKE, *GENERATE], stdin=terminal, capture_output=True, cwd=models, env=environment(), timeout=60
        )
    finally:
        os.close(controller)
        os.close(terminal)
    assert_refused(result, "no prompt: give it as an argument, with --prompt-file, or through a pipe")


def test_the_summary_is_one_line_and_a_second_one_on_request(fake: Run) -> None:
    line = b"40 tokens, 187.2 tokens/s, 1.50 times plain decoding\n"
    assert fake(*GENERATE, "repeat 40 x").stderr == line
    second = b"mean acceptance length 1.75, acceptance rate 38%, drafter lookup (it pays)\n"
    assert fake(*GENERATE, "-v", "repeat 40 x").stderr == line + second
    assert fake(*GENERATE, "-v", "-q", "repeat 40 x").stderr == b""
