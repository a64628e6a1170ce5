"""What a start costs: fresh processes of ours and of llama.cpp in turn."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

from foredraft.bench.fresh import start_foredraft
from foredraft.bench.kernels import OURS, THEIRS, Note
from foredraft.bench.measuring import alternate, summarise
from foredraft.bench.peer import LlamaCpp

Figures = dict[str, Any]


def measure_starts(
    model: Path, peer: LlamaCpp | None, *, num_threads: int, num_rounds: int, num_file_bytes: int, note: Note
) -> dict[str, Any]:
    """Seconds and peak memory of a start, by side.

    One start is not counted: it brings the file into the page cache. To be called while this process is still small,
    since Linux counts the memory of a process into the peak of those it starts.
    """

    def ours() -> Figures:
        return asdict(start_foredraft(model, num_threads=num_threads))

    sides: dict[str, Callable[[], Figures]] = {OURS: ours}
    if peer is not None:
        sides[THEIRS] = lambda: _peer_start(peer)
    ours()
    rounds = alternate(sides, num_rounds=num_rounds, after=lambda done: note(f"start {done} of {num_rounds} done"))
    return summary(rounds, num_file_bytes=num_file_bytes)


def _peer_start(peer: LlamaCpp) -> Figures:
    run = peer.start()
    return {"whole_s": run.whole_s, "peak_bytes": run.peak_bytes}


def summary(rounds: Mapping[str, Sequence[Figures]], *, num_file_bytes: int) -> dict[str, Any]:
    """Medians of each side's figures, and our peak relative to the file."""
    result: dict[str, Any] = {
        side: {key: summarise(start[key] for start in starts).to_json_dict() for key in starts[0]}
        for side, starts in rounds.items()
    }
    result[OURS]["peak_to_file"] = summarise(s["peak_bytes"] / num_file_bytes for s in rounds[OURS]).to_json_dict()
    result.setdefault(THEIRS, None)
    return result
