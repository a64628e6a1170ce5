"""How prompts are made of what is typed: special tokens, templates of one's own, the makers' advice, a full context."""

import json
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from helpers.command_line import REAL, Run, assert_refused, runner
from helpers.tiny import TinyModel

from foredraft import LLM, SamplingParams
from foredraft.cli.chat import Conversation
from foredraft.trace import Trace


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return TinyModel(family="qwen2").write_folder(tmp_path_factory.mktemp("model") / "qwen")


@pytest.fixture
def real(folder: Path) -> Run:
    return runner(REAL, folder.parent)


def prompt_tokens(run: Run, *arguments: str) -> int:
    done = run("generate", "-m", "qwen", "--json", "--draft", "none", "--max-tokens", "1", *arguments)
    assert done.returncode == 0, done.stderr
    return int(json.loads(done.stdout)["usage"]["prompt_tokens"])


def test_special_tokens_are_read_only_where_that_is_asked_for(real: Run) -> None:
    """Kind: hand-written chat formats and fill-in-the-middle are spelled in pieces."""
    text = "<|im_start|>user\nhi<|im_end|>"
    spelled, read = prompt_tokens(real, "--raw", text), prompt_tokens(real, "--raw", "--special", text)
    assert read < spelled - 10
    assert_refused(real("generate", "-m", "qwen", "--special", text), "--special needs --raw")


def test_a_template_of_ones_own(real: Run, folder: Path) -> None:
    (folder.parent / "own.jinja").write_text("{{ messages[0].content }}{% if shout %}!!!{% endif %}")
    own = prompt_tokens(real, "--chat-template", "own.jinja", "abc")
    assert own == 3
    assert prompt_tokens(real, "--chat-template", "own.jinja", "--chat-template-kwargs", '{"shout": true}', "abc") > own
    for arguments, part in (
        (["--chat-template", "none.jinja"], "cannot read the chat template none.jinja"),
        (["--chat-template-kwargs", "[1]"], "--chat-template-kwargs must be a JSON object"),
        (["--raw", "--chat-template", "own.jinja"], "--raw switches the chat template off"),
    ):
        assert_refused(real("generate", "-m", "qwen", *arguments, "abc"), part)


def test_the_makers_advice_is_used_where_asked_for_and_shown(real: Run, folder: Path) -> None:
    """Kind: sampling changes with a file that nobody mentioned; or advice is used silently."""
    (folder / "generation_config.json").write_text(json.dumps({"do_sample": True, "temperature": 0.6, "top_k": 20}))
    plain = real("generate", "-m", "qwen", "--max-tokens", "2", "abc")
    assert b"advises" not in plain.stderr
    advised = real("generate", "-m", "qwen", "--max-tokens", "2", "--generation-config", "auto", "abc")
    assert b"sampling as the model advises: temperature 0.6, top_k 20" in advised.stderr
    assert_refused(real("generate", "-m", "qwen", "--generation-config", "x", "abc"), "must be auto, none or")


@pytest.mark.parametrize(
    ("options", "said", "left"),
    [
        (["auto"], "the model", "temperature 0.6, top_k 20"),
        (["auto", "--temperature", "0"], "the model", "top_k 20"),
        (["auto", "--n", "2", "--top-k", "5"], "the model", "temperature 0.6"),
        (["auto", "--temperature", "0", "--top-k", "0"], "the model", "options say otherwise"),
        (["other"], "other", "temperature 0 (not done here: num_beams)"),
        (["silent"], "silent", "it advises nothing"),
    ],
)
def test_only_what_is_taken_of_an_advice_is_shown(
    real: Run, folder: Path, options: list[str], said: str, left: str
) -> None:
    """Kind: a line says that something was done which an option switched off."""
    for where, advice in (
        (folder, {"do_sample": True, "temperature": 0.6, "top_k": 20}),
        (folder.parent / "other", {"do_sample": False, "num_beams": 4}),
        (folder.parent / "silent", {}),
    ):
        where.mkdir(exist_ok=True)
        (where / "generation_config.json").write_text(json.dumps(advice))
    shown = real("generate", "-m", "qwen", "--max-tokens", "2", "--generation-config", *options, "abc")
    assert shown.returncode == 0, shown.stderr
    assert shown.stderr.decode().splitlines()[0] == f"sampling as {said} advises: {left}"


def test_what_cannot_be_an_advice_is_refused(real: Run, folder: Path) -> None:
    (folder.parent / "bad").mkdir()
    (folder.parent / "bad" / "generation_config.json").write_text('{"temperature": -1}')
    for value, part in (
        ("bad", "temperature"),
        (".", "must be auto, none or a folder with generation_config.json, got '.'"),
        ("", "must be auto, none or a folder"),
    ):
        for command in ("generate", "chat", "inspect"):
            arguments = () if command == "chat" else ("abc",)
            assert_refused(real(command, "-m", "qwen", "--generation-config", value, *arguments), part)


def test_the_same_prompt_is_looked_at_by_inspect(real: Run, folder: Path) -> None:
    (folder.parent / "shout.jinja").write_text("{{ messages[0].content }}{% if shout %}!!!{% endif %}")
    for options in (
        ["--raw", "--special", "<|im_start|>user\nhi<|im_end|>"],
        ["--chat-template", "shout.jinja", "--chat-template-kwargs", '{"shout": true}', "abc"],
    ):
        made = real("generate", "-m", "qwen", "-q", "--trace", "one.jsonl", "--max-tokens", "4", *options)
        assert made.returncode == 0, made.stderr
        seen = real("inspect", "-m", "qwen", "-q", "--jsonl", "two.jsonl", "--max-tokens", "4", *options)
        assert seen.returncode == 0, seen.stderr
        assert _prompt(folder.parent / "one.jsonl") == _prompt(folder.parent / "two.jsonl")
    for options, part in (
        (["--raw", "--system", "s", "x"], "--raw switches off"),
        (["--special", "x"], "--special needs --raw"),
    ):
        assert_refused(real("inspect", "-m", "qwen", *options), part)


def _prompt(path: Path) -> tuple[int, ...]:
    [sequence] = Trace.read(path).sequences.values()
    assert sequence.start is not None
    return sequence.start.prompt_tokens


def test_variables_without_a_template_are_refused(fake: Run) -> None:
    """Kind: an option is dropped silently where several answers are asked for."""
    for more in ([], ["--n", "2", "--temperature", "1"]):
        refused = fake("generate", "-m", "plain.gguf", "--chat-template-kwargs", "{}", *more, "abc")
        assert_refused(refused, "--chat-template-kwargs needs a chat template")


@pytest.fixture(scope="module")
def small(folder: Path) -> Iterator[LLM]:
    """A model whose context holds a few short turns."""
    with LLM(folder, draft="none", threads=1, context_length=96) as llm:
        yield llm


def conversing(llm: LLM, system: str | None, *, max_tokens: int = 8) -> Conversation:
    params = SamplingParams(max_tokens=max_tokens, ignore_eos=True)
    template = {"chat_template": "{% for m in messages %}{{ m.content }}|{% endfor %}"}
    return Conversation(llm, params, system, template, verbose=False, quiet=True)  # type: ignore[arg-type]


def test_the_oldest_turns_make_room_for_what_did_not_fit(small: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    """Kind: a full context refuses every further message for good."""
    conversation = conversing(small, "be brief")
    texts = [f"{name} {'x' * 20}" for name in ("one", "two", "three", "four", "five")]
    asked = []
    for text in texts:
        asked.append(text)
        conversation.answer(text)
        if "/drop forgets the oldest turns" in capfd.readouterr().err:
            break
    assert len(asked) > 2, "several turns fit"
    before = list(conversation.messages)
    assert asked[-1] not in [message["content"] for message in before], "it was refused"
    conversation.drop()
    assert re.search(r"forgot the oldest \d turns?\)", capfd.readouterr().err)
    system, *rest = conversation.messages
    assert system == {"role": "system", "content": "be brief"}
    *kept, question, answer = rest
    assert kept == before[len(before) - len(kept) :], "the latest turns stay"
    assert len(kept) < len(before) - 1
    assert question == {"role": "user", "content": asked[-1]}
    assert answer["content"]


def test_turns_may_be_dropped_before_it_is_full(small: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    """Kind: answers are cut off by a nearly full context, while each message still fits, and nothing can be dropped."""
    conversation = conversing(small, None)
    conversation.drop()
    assert "(nothing to forget yet)" in capfd.readouterr().err
    conversation.answer("abc")
    conversation.answer("def")
    conversation.drop()
    assert "(forgot the oldest 1 turn)" in capfd.readouterr().err
    assert [message["content"] for message in conversation.messages][::2] == ["def"]


def test_a_message_that_never_fits_drops_nothing(small: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    conversation = conversing(small, None)
    conversation.answer("abc")
    before = list(conversation.messages)
    conversation.answer("x" * 500)
    conversation.drop()
    assert "does not fit into an empty conversation either" in capfd.readouterr().err
    assert conversation.messages == before


def test_dropping_leaves_room_for_an_answer(small: LLM, capfd: pytest.CaptureFixture[str]) -> None:
    """Kind: so little is dropped that the answer ends after a token."""
    conversation = conversing(small, None, max_tokens=20)
    turn = [{"role": "user", "content": "x"}, {"role": "assistant", "content": "y"}]
    conversation.messages = turn * 24  # 4 tokens each, 96 in all
    conversation.answer("z")
    assert "/drop forgets the oldest turns and answers" in capfd.readouterr().err
    conversation.drop()
    assert "(cut off at --max-tokens 20)" in capfd.readouterr().err
    assert len(conversation.messages) > 24, "no more than that is forgotten"


def test_soft_switches_of_a_model_are_messages(folder: Path) -> None:
    """Kind: /think is an unknown command, and there is no way to say it to the model."""
    said = runner(REAL, folder.parent)(
        "chat", "-m", "qwen", "--max-tokens", "2", stdin=b"/think why\n/no_think\n/foo\n"
    )
    assert b"unknown command /foo" in said.stderr
    assert b"/think" not in said.stderr
