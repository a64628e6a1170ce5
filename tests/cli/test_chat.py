"""`foredraft chat` with the fake LLM, in a terminal and through a pipe."""

import json
import time
from collections.abc import Iterator
from pathlib import Path

import pexpect
import pytest
from helpers.command_line import FAKE, Run, assert_refused, environment

from foredraft.cli.chat import Totals
from foredraft.engine import Completion, Speculation, Timings, Usage

CHAT = ("chat", "-m", "fake.gguf")


@pytest.fixture
def terminal(models: Path, request: pytest.FixtureRequest) -> Iterator["pexpect.spawn[str]"]:
    """A chat in a terminal, at its first prompt. Its parameter: more arguments."""
    command, *arguments = [*FAKE, *CHAT, *getattr(request, "param", ())]
    child = pexpect.spawn(
        command, arguments, cwd=models, env=environment(), encoding="utf-8", timeout=20, dimensions=(40, 200)
    )
    child.expect_exact("> ")
    yield child
    child.close(force=True)


def _say(terminal: "pexpect.spawn[str]", line: str) -> str:
    """Type a line and return what is shown until the next prompt."""
    terminal.sendline(line)
    terminal.expect_exact(line + "\r\n")
    terminal.expect_exact("\n> ")
    return terminal.before or ""


def _leave(terminal: "pexpect.spawn[str]") -> int | None:
    terminal.expect(pexpect.EOF)
    terminal.close()
    return terminal.exitstatus


def test_the_answer_and_its_summary_are_shown(terminal: "pexpect.spawn[str]") -> None:
    shown = _say(terminal, "Hello there")
    assert shown.startswith("Hello there\r\n")
    assert "2 tokens, 187.2 tokens/s, 1.50 times plain decoding" in shown


@pytest.mark.parametrize("terminal", [["--verbose"]], indirect=True)
def test_how_drafting_went_is_told_on_request(terminal: "pexpect.spawn[str]") -> None:
    shown = _say(terminal, "Hello there")
    assert "[2 tokens, 187.2 tokens/s, 1.50 times plain decoding]\r\n[mean acceptance length 1.75, " in shown


def test_the_conversation_is_remembered_until_reset(terminal: "pexpect.spawn[str]") -> None:
    _say(terminal, "first")
    assert json.loads(_say(terminal, "messages").splitlines()[0]) == [
        {"role": "user", "content": "first"},
        {"role": "assistant", "content": "first"},
        {"role": "user", "content": "messages"},
    ]
    _say(terminal, "/reset")
    assert json.loads(_say(terminal, "messages").splitlines()[0]) == [{"role": "user", "content": "messages"}]


def test_ctrl_c_stops_the_answer_and_not_the_program(terminal: "pexpect.spawn[str]") -> None:
    terminal.sendline("count")
    terminal.expect_exact("0 1 2 3 ")
    terminal.sendintr()
    terminal.expect_exact("(stopped)")
    assert "torn" not in (terminal.before or ""), "the engine was interrupted in the middle of something"
    terminal.expect_exact("> ")
    remembered = json.loads(_say(terminal, "messages").splitlines()[0])
    assert [message["role"] for message in remembered] == ["user", "assistant", "user"]
    assert remembered[1]["content"].startswith("0 1 2 3 "), "what was said of it stays"
    assert "1 stopped" in _say(terminal, "/stats")


def test_a_second_ctrl_c_stops_an_answer_that_does_not_come(terminal: "pexpect.spawn[str]") -> None:
    terminal.sendline("stuck")
    terminal.expect_exact("computing")
    terminal.sendintr()
    time.sleep(0.5)  # the system may make one of two signals that come at once
    terminal.sendintr()
    terminal.expect_exact("(stopped)")
    terminal.expect_exact("> ")
    assert json.loads(_say(terminal, "messages").splitlines()[0]) == [{"role": "user", "content": "messages"}]


def test_ctrl_c_at_the_prompt_hints_how_to_leave(terminal: "pexpect.spawn[str]") -> None:
    terminal.sendintr()
    terminal.expect_exact("(/exit or Ctrl-D leaves)")
    terminal.expect_exact("> ")
    assert _say(terminal, "still here").startswith("still here")


def test_ctrl_c_drops_a_half_typed_line(terminal: "pexpect.spawn[str]") -> None:
    terminal.send("never min")
    terminal.expect_exact("never min")
    terminal.sendintr()
    terminal.expect_exact("\n> ")
    assert _say(terminal, "hello").startswith("hello")


@pytest.mark.parametrize("how", ["eof", "/exit"])
def test_leaving(terminal: "pexpect.spawn[str]", how: str) -> None:
    if how == "eof":
        terminal.sendeof()
    else:
        terminal.sendline(how)
    assert _leave(terminal) == 0


def test_stats_tell_sums_and_the_last_answer(terminal: "pexpect.spawn[str]") -> None:
    assert "no whole answer yet" in _say(terminal, "/stats")
    _say(terminal, "one")
    _say(terminal, "two")
    shown = _say(terminal, "/stats")
    assert "all:  2 answers, 4 tokens, 4.0 tokens/s, 1.50 times plain decoding, mean acceptance length 1.75" in shown
    assert "last: 2 tokens, 187.2 tokens/s, 1.50 times plain decoding" in shown
    assert "mean acceptance length 1.75, acceptance rate 38%, drafter lookup (it pays)" in shown


def test_unknown_commands_and_help(terminal: "pexpect.spawn[str]") -> None:
    assert "unknown command /quit; /help lists the commands" in _say(terminal, "/quit")
    assert "unknown command /;" in _say(terminal, "/")
    assert "/reset takes nothing after it" in _say(terminal, "/reset all")
    shown = _say(terminal, "/help")
    assert all(command in shown for command in ("/reset", "/stats", "/exit", "/help"))
    assert _say(terminal, "/usr/bin is a folder").startswith("/usr/bin is a folder")


def test_lines_are_edited_and_recalled(terminal: "pexpect.spawn[str]") -> None:
    _say(terminal, "again")
    terminal.send("\x1b[A\r")
    terminal.expect_exact("\nagain")


def test_a_full_context_is_told_and_the_chat_goes_on(terminal: "pexpect.spawn[str]") -> None:
    shown = _say(terminal, "overflow")
    assert "the prompt has 9000 tokens, the context holds 2048; /drop forgets the oldest turns and answers" in shown
    assert json.loads(_say(terminal, "messages").splitlines()[0]) == [{"role": "user", "content": "messages"}]
    assert "the context is full; /drop forgets the oldest turns, /reset all of them" in _say(terminal, "full")


def test_an_answer_cut_by_max_tokens_says_so(terminal: "pexpect.spawn[str]") -> None:
    assert "(cut off at --max-tokens 1024)" in _say(terminal, "cut")


def test_through_a_pipe_only_the_answers_are_on_stdout(fake: Run) -> None:
    result = fake(*CHAT, stdin="erstens ß\n\n/stats\n/nope\nmessages\n".encode())
    assert result.returncode == 0
    answer, messages = result.stdout.decode().splitlines()
    assert answer == "erstens ß"
    assert [message["content"] for message in json.loads(messages)] == ["erstens ß", "erstens ß", "messages"]
    assert b"unknown command /nope" in result.stderr
    assert b"> " not in result.stdout + result.stderr


def test_exit_ends_a_pipe_early(fake: Run) -> None:
    assert fake(*CHAT, stdin=b"one\n/exit\ntwo\n").stdout == b"one\n"


def test_the_last_line_of_a_pipe_needs_no_line_ending(fake: Run) -> None:
    assert fake(*CHAT, stdin=b"one").stdout == b"one\n"


def test_the_system_message_survives_a_reset(fake: Run) -> None:
    result = fake(*CHAT, "--system", "Be brief.", stdin=b"one\n/reset\nmessages\n")
    assert json.loads(result.stdout.splitlines()[1]) == [
        {"role": "system", "content": "Be brief."},
        {"role": "user", "content": "messages"},
    ]


def test_an_answer_without_text_is_not_remembered(fake: Run) -> None:
    result = fake(*CHAT, stdin=b"silence\nmessages\n")
    assert json.loads(result.stdout.splitlines()[1]) == [{"role": "user", "content": "messages"}]


def test_bad_input_is_refused(fake: Run) -> None:
    assert_refused(fake(*CHAT, stdin=b"a \xff b\n"), "the message is not valid UTF-8: byte 0xff at offset 2")
    assert_refused(fake(*CHAT, "--max-tokens", "0"), "--max-tokens must be")
    assert_refused(fake(*CHAT, "--draft", "nope"), "unknown draft 'nope'")
    assert_refused(fake("chat", "-m", "plain.gguf"), "no chat template", "foredraft generate")
    assert_refused(fake("chat", "-m", "missing.gguf"), "no such file or folder")


def test_a_fault_in_an_answer_ends_the_chat_with_one_line(fake: Run) -> None:
    result = fake(*CHAT, stdin=b"boom\n")
    assert result.returncode == 1
    assert result.stderr.count(b"\n") == 1
    assert b"Traceback" not in result.stderr


def test_rounds_without_a_bonus_count_in_the_mean() -> None:
    # The answer ended at a drafted token: 5 tokens of 2 rounds, 4 of them drafted, and one bonus only.
    completion = Completion(
        text="",
        token_ids=(1, 2, 3, 4, 5),
        finish_reason="length",
        usage=Usage(prompt_tokens=3, completion_tokens=5),
        timings=Timings(load_s=0.0, prefill_s=0.0, decode_s=0.0, num_prompt_tokens=2, num_completion_tokens=5),
        speculation=Speculation(
            methods=("lookup",),
            lossless=True,
            num_rounds=2,
            num_draft_tokens=4,
            num_accepted_tokens=4,
            num_emitted_tokens=5,
            accepted_per_position=(2, 2),
            reason="",
        ),
    )
    totals = Totals()
    totals.add(completion)
    sums, _, last = totals.report().splitlines()
    assert "1 answer, 5 tokens" in sums
    assert "mean acceptance length 2.50" in sums
    assert "mean acceptance length 2.50" in last
