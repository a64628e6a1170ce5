"""llama.cpp's own programs, run on the same file: llama-bench, llama-batched-bench and llama-server."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Self

START_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 1800.0


class PeerError(Exception):
    """A program of llama.cpp is missing or failed; the message is one line."""


def run_program(command: Sequence[str], *, log_too: bool = False) -> str:
    """The program's standard output. Raises PeerError with the last line it wrote when it fails."""
    log = subprocess.STDOUT if log_too else subprocess.PIPE
    try:
        done = subprocess.run(command, stdout=subprocess.PIPE, stderr=log, text=True, check=False)
    except OSError as error:
        raise PeerError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        last = ((done.stderr or "").strip() or done.stdout.strip() or "no output").splitlines()[-1]
        raise PeerError(f"{command[0]} failed with exit code {done.returncode}: {last}")
    return done.stdout


def parse_bench(output: str) -> dict[str, float]:
    """Tokens per second by test from llama-bench's JSON, such as {"pp512": 105.0, "tg64": 29.0}."""
    speeds = {}
    for test in json.loads(output):
        kind = f"tg{test['n_gen']}" if test["n_gen"] else f"pp{test['n_prompt']}"
        speeds[kind] = float(test["avg_ts"])
    return speeds


def parse_batched_bench(output: str) -> dict[int, float]:
    """Seconds of one decoding step by number of sequences, from llama-batched-bench's JSON Lines."""
    seconds = {}
    for line in output.splitlines():
        if line.startswith("{"):
            entry = json.loads(line)
            seconds[int(entry["pl"])] = float(entry["t_tg"]) / int(entry["tg"])
    return seconds


@dataclass(frozen=True)
class LlamaCpp:
    """The programs in a folder, with the model and the number of threads that they all get."""

    folder: Path
    model: Path
    num_threads: int

    def program(self, name: str) -> str:
        """Path of a program. Raises PeerError when it is not there."""
        path = self.folder / name
        if not path.exists():
            raise PeerError(f"{path} does not exist; --peer-dir must hold llama.cpp's programs")
        return str(path)

    def version(self) -> str:
        """The line in which llama-bench says what it is."""
        lines = run_program([self.program("llama-bench"), "--version"], log_too=True).splitlines()
        named = [line.strip() for line in lines if line.startswith("version")]
        return named[0] if named else "unknown"

    def bench(self, *, prompt: int, generate: int) -> dict[str, float]:
        """Tokens per second of a prompt and of plain decoding, once each after llama-bench's warm-up."""
        sizes = ["-p", str(prompt), "-n", str(generate), "-r", "1"]
        return parse_bench(run_program([self.program("llama-bench"), *self._common(), *sizes, "-o", "json"]))

    def short_prompts(self, sizes: Sequence[int], *, context: int, repeats: int) -> dict[int, float]:
        """Seconds of a prompt batch of each size after `context` tokens; only its last row gets logits."""
        wanted = ",".join(str(size) for size in sizes)
        shape = ["-p", wanted, "-n", "0", "-d", str(context), "-r", str(repeats)]
        output = run_program([self.program("llama-bench"), *self._common(), *shape, "-o", "json"])
        return {size: size / parse_bench(output)[f"pp{size}"] for size in sizes}

    def decode_steps(self, sizes: Sequence[int], *, context: int, num_steps: int) -> dict[int, float]:
        """Seconds of a step of n sequences sharing a prompt of `context` tokens, a token and logits for each.

        Of what llama.cpp can measure this is nearest to a verify pass: n rows over one cache, the output head
        on all of them.
        """
        room = max(context, 1) + max(sizes) * num_steps + 64
        shape = ["-npp", str(max(context, 1)), "-ntg", str(num_steps), "-npl", ",".join(map(str, sizes))]
        options = ["-pps", "-kvu", "-c", str(-(-room // 256) * 256), "--output-format", "jsonl"]
        command = [self.program("llama-batched-bench"), *self._common(), *shape, *options]
        seconds = parse_batched_bench(run_program(command))
        missing = [size for size in sizes if size not in seconds]
        if missing:
            raise PeerError(f"llama-batched-bench gave no figure for {missing} sequences")
        return seconds

    def _common(self) -> list[str]:
        return ["-m", str(self.model), "-t", str(self.num_threads)]


def speculation_options(mode: str, draft: Path | None) -> list[str]:
    """llama-server's options for a mode: none, draft:K, or one of its n-gram types such as ngram-simple."""
    if mode == "none":
        return []
    kind, _, number = mode.partition(":")
    if kind == "draft":
        if draft is None:
            raise PeerError("the mode draft needs --draft with a .gguf file")
        length = ["--spec-draft-n-max", number] if number else []
        return ["--spec-type", "draft-simple", "-md", str(draft), *length]
    return ["--spec-type", kind]


class Server:
    """A llama-server for one mode, answering one request at a time on a free local port."""

    def __init__(self, peer: LlamaCpp, mode: str, *, draft: Path | None, context: int, log: Path) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        threads = ["-t", str(peer.num_threads), "-np", "1", "-c", str(context)]
        place = ["--host", "127.0.0.1", "--port", str(self._port)]
        command = [peer.program("llama-server"), "-m", str(peer.model), *threads, *place, "--no-webui"]
        self._log = log.open("a", encoding="utf-8")
        self._process = subprocess.Popen(
            [*command, *speculation_options(mode, draft)], stdout=self._log, stderr=subprocess.STDOUT
        )
        self.mode = mode

    def __enter__(self) -> Self:
        deadline = time.monotonic() + START_TIMEOUT_S
        while time.monotonic() < deadline and self._process.poll() is None:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self._port}/health", timeout=5):
                    return self
            except (urllib.error.URLError, OSError):
                time.sleep(0.2)
        self.close()
        raise PeerError(f"llama-server for mode {self.mode} did not start; its log is {self._log.name}")

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """End the server and wait for it."""
        self._process.terminate()
        try:
            self._process.wait(timeout=10)
        except subprocess.TimeoutExpired:
            self._process.kill()
            self._process.wait()
        self._log.close()

    def chat(self, text: str, *, max_tokens: int, temperature: float, seed: int | None) -> dict[str, Any]:
        """One answer with a fresh cache: its text and llama-server's own timings."""
        body: dict[str, Any] = {
            "messages": [{"role": "user", "content": text}],
            "max_tokens": max_tokens,
            "temperature": temperature,
            "cache_prompt": False,
        }
        if seed is not None:
            body["seed"] = seed
        request = urllib.request.Request(
            f"http://127.0.0.1:{self._port}/v1/chat/completions",
            json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        try:
            with urllib.request.urlopen(request, timeout=REQUEST_TIMEOUT_S) as response:
                answer = json.load(response)
        except (urllib.error.URLError, OSError) as error:
            raise PeerError(f"llama-server for mode {self.mode} did not answer: {error}") from error
        return parse_answer(answer)


def parse_answer(answer: dict[str, Any]) -> dict[str, Any]:
    """Text and figures of an answer of llama-server, named as in our own records.

    The first token comes from the prompt's pass, so neither it nor that pass counts in speed and rounds.
    """
    timings = answer["timings"]
    num_tokens, num_accepted = int(timings["predicted_n"]), int(timings.get("draft_n_accepted", 0))
    num_rounds = num_tokens - 1 - num_accepted
    return {
        "text": answer["choices"][0]["message"]["content"],
        "num_tokens": num_tokens,
        "tokens_per_s": float(timings["predicted_per_second"]),
        "decode_s": float(timings["predicted_ms"]) / 1000,
        "mean_acceptance_length": (num_tokens - 1) / num_rounds if num_rounds > 0 else 1.0,
    }
