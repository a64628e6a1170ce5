"""The figures of `foredraft bench kernels` as tables, which are also valid Markdown."""

from collections.abc import Mapping
from typing import Any

from foredraft.bench.kernels import OURS, THEIRS
from foredraft.bench.tables import counted, figure, percent, table


def report(result: Mapping[str, Any]) -> str:
    """All tables. result: what `KernelBench.run` returns."""
    return "\n\n".join([_heading(result), speeds(result), _forwards(result), _parts(result)]) + "\n"


def _heading(result: Mapping[str, Any]) -> str:
    machine, model = result["machine"], result["model"]
    lines = [
        f"{model['name']} ({model['num_bytes'] / 1e6:.0f} MB), {result['num_threads']} threads, {result['isa']}, "
        f"medians of {result['settings']['num_rounds']}",
        f"{machine['processor']}, load {machine['load_average_at_start']} at the start",
        f"read bandwidth {result['read_bytes_per_s']['median'] / 1e9:.1f} GB/s; "
        f"a token reads {result['num_weight_bytes'] / 1e6:.0f} MB of weights",
    ]
    if result["peer_version"] is not None:
        lines.append(f"{THEIRS} {result['peer_version']}")
    return "\n".join(lines)


def speeds(result: Mapping[str, Any]) -> str:
    """Speeds of both sides, what a start takes, and their ratios."""
    theirs = result[THEIRS]
    rows = [*_one_token(result), *_tokens_per_s(result), *_starts(result["start_up"])]
    sides = [OURS] if theirs is None else [OURS, THEIRS, "ratio"]
    return table(["figure", *sides], [row[: 1 + len(sides)] for row in rows])


def _one_token(result: Mapping[str, Any]) -> list[list[str]]:
    ours, theirs, ratios = result[OURS]["forward"], result[THEIRS], result["ours_to_theirs"]
    rows = [
        [
            f"T(1) after {context} tokens, ms",
            _ms(entry["one_token_s"]),
            _ms(theirs and theirs["forward"][context]["one_token_s"]),
            figure(_median(ratios and ratios["one_token"][context])),
        ]
        for context, entry in ours.items()
    ]
    limit = percent(_median(result[OURS]["of_bandwidth_limit"]))
    return [*rows, [f"T(1) after {min(ours, key=int)} tokens, of the bandwidth limit", limit, "-", "-"]]


def _tokens_per_s(result: Mapping[str, Any]) -> list[list[str]]:
    theirs, ratios = result[THEIRS], result["ours_to_theirs"]
    return [
        [
            f"{name}, tokens/s",
            figure(_median(result[OURS][key]), 1),
            figure(_median(theirs and theirs[key]), 1),
            figure(_median(ratios and ratios[key])),
        ]
        for name, key in (("plain decoding", "decode_tokens_per_s"), ("prompt", "prompt_tokens_per_s"))
    ]


def _starts(starts: Mapping[str, Any]) -> list[list[str]]:
    ours, theirs = starts[OURS], starts[THEIRS]
    whole = [figure(_median(side and side["whole_s"])) for side in (ours, theirs)]
    megabytes = [figure(side and 1e-6 * side["peak_bytes"]["median"], 0) for side in (ours, theirs)]
    return [
        ["start until ready to answer, s", figure(_median(ours["ready_s"])), "-", "-"],
        ["start, one token, end, s", *whole, "-"],
        ["peak memory, MB", *megabytes, "-"],
        ["peak memory to file", figure(_median(ours["peak_to_file"])), "-", "-"],
    ]


def _forwards(result: Mapping[str, Any]) -> str:
    columns = []
    for context in result[OURS]["forward"]:
        for side in (OURS, THEIRS):
            if result[side] is not None:
                columns.append((f"{side}, {context}", result[side]["forward"][context]["relative"]))
    for entry in (result[THEIRS] or {}).get("short_prompt", {}).values():
        columns.append((f"{THEIRS}, prompt of n", entry["relative"]))
    rows = [
        [f"n = {size}", *(figure(_median(relative.get(size))) for _, relative in columns)] for size in columns[0][1]
    ]
    return table(["T(n) / T(1), context", *(title for title, _ in columns)], rows)


def _parts(result: Mapping[str, Any]) -> str:
    rounds = result[OURS]["rounds"]
    wholes = [cost["whole_s"]["median"] for cost in rounds.values()]
    rows = [["whole", *(cell for whole in wholes for cell in (figure(1e3 * whole), percent(1.0, 1)))]]
    for kind in next(iter(rounds.values()))["parts_s"]:
        parts = [cost["parts_s"][kind]["median"] for cost in rounds.values()]
        cells = [(figure(1e3 * part), percent(part / whole, 1)) for part, whole in zip(parts, wholes, strict=True)]
        rows.append([kind, *(cell for pair in cells for cell in pair)])
    titles = [f"{name}, {counted(cost['num_tokens'], 'token')}" for name, cost in rounds.items()]
    return table(["a round, ms", *(title for name in titles for title in (name, "of it"))], rows)


def _median(summary: Mapping[str, float] | None) -> float | None:
    return None if summary is None else summary["median"]


def _ms(summary: Mapping[str, float] | None) -> str:
    return figure(None if summary is None else 1e3 * summary["median"])
