"""The figures of `foredraft bench kernels` as tables, which are also valid Markdown."""

import io
import re
from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from foredraft.bench.kernels import OURS, THEIRS

WIDTH = 120
NOTHING = "-"


def report(result: Mapping[str, Any]) -> str:
    """All tables. result: what `KernelBench.run` returns."""
    console = Console(file=io.StringIO(), width=WIDTH, color_system=None, highlight=False, markup=False, emoji=False)
    console.print(_heading(result), soft_wrap=True)
    for table in (_speeds(result), _forwards(result), _parts(result)):
        console.print(table)
    assert isinstance(console.file, io.StringIO)
    text = "\n".join(line.rstrip() for line in console.file.getvalue().splitlines())
    return re.sub(r"\n{2,}", "\n\n", text).rstrip() + "\n"  # the box leaves empty lines of its own


def _heading(result: Mapping[str, Any]) -> str:
    machine, model = result["machine"], result["model"]
    lines = [
        f"{model['name']} ({model['num_bytes'] / 1e6:.0f} MB), {result['num_threads']} threads, {result['isa']}, "
        f"medians of {result['settings']['num_rounds']}",
        f"{machine['processor']}, load {machine['load_average_at_start']} at the start",
        f"read bandwidth {_median(result['read_bytes_per_s']) / 1e9:.1f} GB/s; "
        f"a token reads {result['num_weight_bytes'] / 1e6:.0f} MB of weights",
    ]
    if result["peer_version"] is not None:
        lines.append(f"{THEIRS} {result['peer_version']}")
    return "\n".join(lines)


def _table(first: str, titles: Sequence[str]) -> Table:
    table = Table(box=box.MARKDOWN, show_edge=True, pad_edge=True)
    table.add_column(first, no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _speeds(result: Mapping[str, Any]) -> Table:
    ours, theirs, ratios = result[OURS], result[THEIRS], result["ours_to_theirs"]
    sides = [OURS] if theirs is None else [OURS, THEIRS, "ratio"]
    table = _table("figure", sides)

    def add(name: str, mine: str, other: str = NOTHING, ratio: str = NOTHING) -> None:
        table.add_row(name, *([mine] if theirs is None else [mine, other, ratio]))

    for context, entry in ours["forward"].items():
        add(
            f"T(1) after {context} tokens, ms",
            f"{1000 * _median(entry['one_token_s']):.2f}",
            NOTHING if theirs is None else f"{1000 * _median(theirs['forward'][context]['one_token_s']):.2f}",
            NOTHING if ratios is None else f"{_median(ratios['one_token'][context]):.2f}",
        )
    add(
        f"T(1) after {min(ours['forward'])} tokens, of the bandwidth limit",
        f"{_median(ours['of_bandwidth_limit']):.0%}",
    )
    for name, key in (("plain decode", "decode_tokens_per_s"), ("prompt", "prompt_tokens_per_s")):
        add(
            f"{name}, tokens/s",
            f"{_median(ours[key]):.1f}",
            NOTHING if theirs is None else f"{_median(theirs[key]):.1f}",
            NOTHING if ratios is None else f"{_median(ratios[key]):.2f}",
        )
    mine, other = result["start_up"][OURS], result["start_up"][THEIRS]
    add("start until ready to answer, s", f"{_median(mine['ready_s']):.2f}")
    for name, key, scale, digits in (
        ("start, one token, end, s", "whole_s", 1.0, 2),
        ("peak memory, MB", "peak_bytes", 1e-6, 0),
    ):
        cells = [NOTHING if s is None else f"{_median(s[key]) * scale:.{digits}f}" for s in (mine, other)]
        add(name, *cells)
    add("peak memory to file and cache", f"{_median(mine['peak_to_file_and_cache']):.2f}")
    return table


def _forwards(result: Mapping[str, Any]) -> Table:
    columns = []
    for context in result[OURS]["forward"]:
        for side in (OURS, THEIRS):
            if result[side] is not None:
                columns.append((f"{side}, {context}", result[side]["forward"][context]["relative"]))
    for entry in (result[THEIRS] or {}).get("short_prompt", {}).values():
        columns.append((f"{THEIRS}, prompt of n", entry["relative"]))
    table = _table("T(n) / T(1), context", [title for title, _ in columns])
    for size in columns[0][1]:
        cells = [f"{_median(relative[size]):.2f}" if size in relative else NOTHING for _, relative in columns]
        table.add_row(f"n = {size}", *cells)
    return table


def _parts(result: Mapping[str, Any]) -> Table:
    rounds = result[OURS]["rounds"]
    titles = [f"{name}, {cost['num_tokens']} tokens" for name, cost in rounds.items()]
    table = _table(
        "a round, ms", [title for name in titles for title in (name.replace("1 tokens", "1 token"), "share")]
    )
    wholes = [_median(cost["whole_s"]) for cost in rounds.values()]
    table.add_row("whole", *(cell for whole in wholes for cell in (f"{1000 * whole:.2f}", "100.0%")))
    for kind in next(iter(rounds.values()))["parts_s"]:
        cells = []
        for cost, whole in zip(rounds.values(), wholes, strict=True):
            part = _median(cost["parts_s"][kind])
            cells += [f"{1000 * part:.2f}", f"{part / whole:.1%}"]
        table.add_row(kind, *cells)
    return table


def _median(summary: Mapping[str, float]) -> float:
    return summary["median"]
