"""How prompts are made of what is typed: special tokens, templates of one's own, the makers' advice, a full context."""

import json
from pathlib import Path

import pytest
from helpers.command_line import REAL, Run, assert_refused, runner
from helpers.tiny import TinyModel

from foredraft.cli.chat import Conversation
from foredraft.errors import ContextLengthError
from foredraft.sampling import SamplingParams


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
    assert_refused(real("generate", "-m", "qwen", "--generation-config", "x", "abc"), "must be auto or none")


class Small:
    """A model whose context holds five messages; it answers with how many it was given."""

    def stream(self, messages: list[dict[str, str]], params: SamplingParams, **_: object):  # type: ignore[no-untyped-def]
        if len(messages) > 5:
            raise ContextLengthError("too many messages")
        return iter([type("Piece", (), {"text": f"{len(messages)}", "completion": None})()])


def test_the_oldest_turns_make_room_for_what_did_not_fit(capfd: pytest.CaptureFixture[str]) -> None:
    """Kind: a full context refuses every further message for good."""
    conversation = Conversation(Small(), SamplingParams(), "be brief", {}, quiet=True)  # type: ignore[arg-type]
    conversation.drop()
    assert "nothing to make room for" in capfd.readouterr().err
    for text in ("one", "two", "three"):
        conversation.answer(text)
    assert "/drop forgets the oldest turns" in capfd.readouterr().err
    conversation.drop()
    assert "forgot the oldest 1 turn)" in capfd.readouterr().err
    contents = [message["content"] for message in conversation.messages]
    assert contents == ["be brief", "two", "4", "three", "4"]


def test_soft_switches_of_a_model_are_messages(folder: Path) -> None:
    """Kind: /think is an unknown command, and there is no way to say it to the model."""
    said = runner(REAL, folder.parent)(
        "chat", "-m", "qwen", "--max-tokens", "2", stdin=b"/think why\n/no_think\n/foo\n"
    )
    assert b"unknown command /foo" in said.stderr
    assert b"/think" not in said.stderr
