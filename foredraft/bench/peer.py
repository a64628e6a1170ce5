"""llama.cpp's own programs for measuring, run on the same file: llama-bench and llama-batched-bench."""

import json
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.bench.fresh import FreshRun, run_fresh
from foredraft.errors import UserError

BENCH = "llama-bench"
BATCHED_BENCH = "llama-batched-bench"


class PeerError(UserError):
    """A program of llama.cpp is missing or failed; the message is one line."""


def run_program(command: Sequence[str]) -> FreshRun:
    """Run a program. Raises PeerError with the last line it wrote when it fails."""
    try:
        done = run_fresh(command)
    except OSError as error:
        raise PeerError(f"{command[0]} cannot be run: {error.strerror}") from error
    if done.returncode != 0:
        last = (done.errors.strip() or done.output.strip() or "no output").splitlines()[-1]
        raise PeerError(f"{command[0]} failed with exit code {done.returncode}: {last}")
    return done


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
        self.check([name])
        return str(self.folder / name)

    def check(self, names: Sequence[str]) -> None:
        """Raise PeerError, naming all that is missing, unless the programs are there."""
        if not self.folder.is_dir():
            raise PeerError(f"--peer-dir: no such folder: {self.folder}; it must hold llama.cpp's programs")
        missing = [name for name in names if not (self.folder / name).is_file()]
        if missing:
            raise PeerError(f"--peer-dir: {self.folder} has no {' and no '.join(missing)}; build llama.cpp's tools")

    def version(self) -> str:
        """The line in which llama-bench says what it is."""
        done = run_program([self.program(BENCH), "--version"])
        named = [line.strip() for line in (done.output + done.errors).splitlines() if line.startswith("version")]
        return named[0] if named else "unknown"

    def start(self) -> FreshRun:
        """A process that loads the model, computes one token and ends."""
        once = ["-p", "1", "-n", "0", "-r", "1", "--no-warmup", "-o", "json"]
        return run_program([self.program(BENCH), *self._common(), *once])

    def bench(self, *, prompt: int, generate: int) -> dict[str, float]:
        """Tokens per second of a prompt and of plain decoding, once each after llama-bench's warm-up."""
        sizes = ["-p", str(prompt), "-n", str(generate), "-r", "1"]
        return parse_bench(run_program([self.program(BENCH), *self._common(), *sizes, "-o", "json"]).output)

    def short_prompts(self, sizes: Sequence[int], *, context: int, repeats: int) -> dict[int, float]:
        """Seconds of a prompt batch of each size after `context` tokens; only its last token gets logits."""
        wanted = ",".join(str(size) for size in sizes)
        shape = ["-p", wanted, "-n", "0", "-d", str(context), "-r", str(repeats)]
        output = run_program([self.program(BENCH), *self._common(), *shape, "-o", "json"]).output
        return {size: size / parse_bench(output)[f"pp{size}"] for size in sizes}

    def decode_steps(self, sizes: Sequence[int], *, context: int, num_steps: int) -> dict[int, float]:
        """Seconds of a step of n sequences sharing a prompt of `context` tokens, a token and logits for each.

        Of what llama.cpp can measure this is nearest to a verify pass: n tokens over one cache, the output head
        on all of them.
        """
        num_positions = max(context, 1) + max(sizes) * num_steps + 64
        shape = ["-npp", str(max(context, 1)), "-ntg", str(num_steps), "-npl", ",".join(map(str, sizes))]
        options = ["-pps", "-kvu", "-c", str(-(-num_positions // 256) * 256), "--output-format", "jsonl"]
        command = [self.program(BATCHED_BENCH), *self._common(), *shape, *options]
        seconds = parse_batched_bench(run_program(command).output)
        missing = [size for size in sizes if size not in seconds]
        if missing:
            raise PeerError(f"{BATCHED_BENCH} gave no figure for {missing} sequences")
        return seconds

    def _common(self) -> list[str]:
        return ["-m", str(self.model), "-t", str(self.num_threads)]
