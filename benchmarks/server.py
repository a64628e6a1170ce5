"""llama.cpp's llama-server, one for each of its ways of drafting."""

import json
import socket
import subprocess
import time
import urllib.error
import urllib.request
from pathlib import Path
from typing import Any, Self

from foredraft.bench.peer import LlamaCpp, PeerError

START_TIMEOUT_S = 120.0
REQUEST_TIMEOUT_S = 1800.0


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
    """A llama-server for one mode on a free local port.

    context: tokens of all sequences together. parallel: sequences that run at a time.
    """

    def __init__(
        self, peer: LlamaCpp, mode: str, *, draft: Path | None, context: int, log: Path, parallel: int = 1
    ) -> None:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port: int = probe.getsockname()[1]
        threads = ["-t", str(peer.num_threads), "-np", str(parallel), "-c", str(context)]
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

    @property
    def url(self) -> str:
        """Where it answers."""
        return f"http://127.0.0.1:{self._port}"

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
        """One completion with a fresh cache: its text and llama-server's own timings."""
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
                completion = json.load(response)
        except (urllib.error.URLError, OSError) as error:
            raise PeerError(f"llama-server for mode {self.mode} did not answer: {error}") from error
        return parse_completion(completion)


def parse_completion(completion: dict[str, Any]) -> dict[str, Any]:
    """Text and figures of a completion of llama-server, named as in our own records.

    The first token comes from the prompt's pass, so neither it nor that pass counts in speed and rounds.
    """
    timings = completion["timings"]
    num_tokens, num_accepted = int(timings["predicted_n"]), int(timings.get("draft_n_accepted", 0))
    num_rounds = num_tokens - 1 - num_accepted
    return {
        "text": completion["choices"][0]["message"]["content"],
        "num_tokens": num_tokens,
        "tokens_per_s": float(timings["predicted_per_second"]),
        "decode_s": float(timings["predicted_ms"]) / 1000,
        "mean_acceptance_length": (num_tokens - 1) / num_rounds if num_rounds > 0 else 1.0,
    }
