"""What the records of the speculation benchmark say: speeds by family, and every output that differs."""

from collections.abc import Sequence
from typing import Any

from foredraft.bench.measuring import first_difference, paired_ratios, summarise
from foredraft.bench.tables import figure, table

from .records import OURS, THEIRS, Cell

ALL = "all"


def baseline_of(name: str) -> str:
    """The same engine's plain decoding: `foredraft lookup` is compared with `foredraft none`."""
    return f"{name.partition(' ')[0]} none"


def differences(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Every run of ours whose token ids are not those of our plain decoding, and where they part."""
    found = []
    for cell in cells:
        wanted = cell["runs"][f"{OURS} none"]["token_ids"]
        for name, run in cell["runs"].items():
            if not name.startswith(f"{OURS} "):
                continue
            index = first_difference(run["token_ids"], wanted)
            if index is not None:
                place = {key: cell[key] for key in ("prompt", "temperature", "seed")}
                found.append({**place, "mode": name, "first_difference": index})
    return found


def families(cells: Sequence[Cell]) -> list[str]:
    """`all`, then the families in order of appearance."""
    return [ALL, *dict.fromkeys(cell["family"] for cell in cells)]


def timed(cells: Sequence[Cell]) -> list[Cell]:
    """Cells that have speeds: where a completion has fewer than two tokens, its cell is left out of all modes alike."""
    return [cell for cell in cells if all(run["num_tokens"] > 1 for run in cell["runs"].values())]


def speeds_of(cells: Sequence[Cell], name: str) -> list[float]:
    """Tokens per second of a mode, cell by cell."""
    return [cell["runs"][name]["tokens_per_s"] for cell in cells]


def speed_ups_of(cells: Sequence[Cell], name: str) -> list[float]:
    """Speed to that of the same engine's plain decoding, cell by cell."""
    return paired_ratios(speeds_of(cells, name), speeds_of(cells, baseline_of(name)))


def figures_of(cells: Sequence[Cell], name: str) -> dict[str, Any]:
    """Speed, speed-up and acceptance of a mode over these cells."""
    cells = timed(cells)
    if not cells:
        return {"num": 0}
    speed_ups = speed_ups_of(cells, name)
    worst = min(range(len(cells)), key=speed_ups.__getitem__)
    lengths = [cell["runs"][name]["mean_acceptance_length"] for cell in cells]
    outside = {"outside_s": outside_s(cells, name)} if name.startswith(f"{OURS} ") else {}
    return outside | {
        "num": len(cells),
        "tokens_per_s": summarise(speeds_of(cells, name)).to_json_dict(),
        "speed_up": summarise(speed_ups).to_json_dict(),
        "mean_acceptance_length": summarise(lengths).to_json_dict(),
        "worst": {"prompt": cells[worst]["prompt"], "speed_up": speed_ups[worst]},
    }


def outside_s(cells: Sequence[Cell], name: str) -> dict[str, float | int]:
    """Seconds of a round outside of the target's pass: planning, drafting, and the choice of tokens."""
    told = [cell["runs"][name]["speculation"] for cell in cells]
    return summarise((one["draft_s"] + one["accept_s"]) / one["num_rounds"] for one in told).to_json_dict()


def ours_to_best_peer(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """For each mode of ours: its speed to that of llama.cpp's best mode, per prompt; None without a peer.

    The best mode is the one with the highest median over these cells, as a user chooses one for all.
    """
    cells = timed(cells)
    names = list(cells[0]["runs"]) if cells else []
    theirs = [name for name in names if name.startswith(f"{THEIRS} ")]
    if not theirs:
        return None
    best = max(theirs, key=lambda name: summarise(speeds_of(cells, name)).median)
    ratios = {
        name: summarise(paired_ratios(speeds_of(cells, name), speeds_of(cells, best))).to_json_dict()
        for name in names
        if name.startswith(f"{OURS} ")
    }
    return {"best_peer": best, "ratio": ratios}


def against_fixed(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """The modes whose planner decides, beside the best fixed one for these cells and beside their own expectations.

    None without such modes.

    The best fixed mode is the one with the highest median speed-up over these cells, chosen by hindsight. to_expected:
    speed to the one that the planner expected from round to round. estimated: the speed-up that completions report, to
    the one measured.
    """
    cells = timed(cells)
    names = [name for name in cells[0]["runs"] if name.startswith(f"{OURS} ")] if cells else []
    fixed = [name for name in names if ":" in name]
    planned = [name for name in names if ":" not in name and name != f"{OURS} none"]
    if not fixed or not planned:
        return None
    best = max(fixed, key=lambda name: summarise(speed_ups_of(cells, name)).median)
    return {
        "best_fixed": best,
        "ratio": {
            name: summarise(paired_ratios(speeds_of(cells, name), speeds_of(cells, best))).to_json_dict()
            for name in planned
        },
        "to_expected": {name: to_expected(cells, name) for name in planned},
        "estimated": {name: estimated(cells, name) for name in planned},
    }


def to_expected(cells: Sequence[Cell], name: str) -> dict[str, Any] | None:
    """Speed to the expected one; None where nothing was expected."""
    ratios = []
    for run in (cell["runs"][name] for cell in cells):
        expected_s = run["speculation"]["expected_s"]
        if expected_s:
            ratios.append(run["tokens_per_s"] * expected_s / run["speculation"]["expected_tokens"])
    return summarise(ratios).to_json_dict() if ratios else None


def estimated(cells: Sequence[Cell], name: str) -> dict[str, Any] | None:
    """The speed-up that completions report, to the one measured; None where they report none."""
    told = [cell["runs"][name]["speculation"]["speedup"] for cell in cells]
    pairs = [(one, speed_up) for one, speed_up in zip(told, speed_ups_of(cells, name), strict=True) if one is not None]
    return summarise(one / speed_up for one, speed_up in pairs).to_json_dict() if pairs else None


def same_text_as_plain(cells: Sequence[Cell], name: str) -> int:
    """On how many prompts a peer's mode gave the text of the peer's own plain decoding (no claim of ours)."""
    return sum(cell["runs"][name]["text"] == cell["runs"][baseline_of(name)]["text"] for cell in cells)


def summary(cells: Sequence[Cell]) -> dict[str, Any]:
    """All of the above, for the greedy pass and for the sampled one."""
    different = differences(cells)
    result: dict[str, Any] = {
        "num_compared": sum(sum(name.startswith(f"{OURS} ") for name in cell["runs"]) - 1 for cell in cells),
        "num_different": len(different),
        "different": different,
    }
    for title, part in (
        ("greedy", [cell for cell in cells if cell["temperature"] == 0]),
        ("sampled", [cell for cell in cells if cell["temperature"] > 0]),
    ):
        if part:
            result[title] = summary_of_pass(part)
    return result


def summary_of_pass(cells: Sequence[Cell]) -> dict[str, Any]:
    """Figures of one pass by family and mode."""
    names = list(cells[0]["runs"])
    by_family = {}
    for family in families(cells):
        own = [cell for cell in cells if family in (ALL, cell["family"])]
        entry: dict[str, Any] = {"modes": {name: figures_of(own, name) for name in names}}
        to_peer = ours_to_best_peer(own)
        if to_peer is not None:
            entry["ours_to_best_peer"] = to_peer
        to_fixed = against_fixed(own)
        if to_fixed is not None:
            entry["against_fixed"] = to_fixed
        by_family[family] = entry
    peers = [name for name in names if name.startswith(f"{THEIRS} ")]
    result: dict[str, Any] = {"num_completions": len(cells), "families": by_family}
    if peers:
        result["peer_same_text_as_plain"] = {name: same_text_as_plain(cells, name) for name in peers}
    return result


def report(result: dict[str, Any]) -> str:
    """The summary as tables, and a line on equality."""
    parts = []
    for title in ("greedy", "sampled"):
        if title in result:
            parts.append(f"{title}, {result[title]['num_completions']} completions")
            parts += [report_of_family(family, e) for family, e in result[title]["families"].items()]
    equal = result["num_compared"] - result["num_different"]
    parts.append(f"token ids equal to plain decoding: {equal} of {result['num_compared']}")
    for entry in result["different"][:20]:
        parts.append(
            f"DIFFERENT: {entry['mode']} on {entry['prompt']} (temperature {entry['temperature']}, "
            f"seed {entry['seed']}) from token {entry['first_difference']}"
        )
    return "\n\n".join(parts)


def report_of_family(family: str, entry: dict[str, Any]) -> str:
    """One table: a line for each mode."""
    to_peer = entry.get("ours_to_best_peer")
    header = [family, "tokens/s", "speed-up", "worst", "length", "outside, ms"]
    if to_peer:
        header.append(f"to {to_peer['best_peer']}")
    rows = []
    for name, found in entry["modes"].items():
        if not found["num"]:
            continue
        row = [
            name,
            figure(found["tokens_per_s"]["median"], 1),
            figure(found["speed_up"]["median"]),
            figure(found["worst"]["speed_up"]),
            figure(found["mean_acceptance_length"]["median"]),
            figure(1e3 * found["outside_s"]["median"] if "outside_s" in found else None),
        ]
        if to_peer:
            ratio = to_peer["ratio"].get(name)
            row.append(figure(ratio["median"] if ratio else None))
        rows.append(row)
    return "\n".join([table(header, rows), *lines_on_fixed(entry.get("against_fixed"))])


def lines_on_fixed(found: dict[str, Any] | None) -> list[str]:
    """How the modes whose planner decides stand to the best fixed one, and to what they expected."""
    if found is None:
        return []
    lines = []
    for name, ratio in found["ratio"].items():
        line = f"{name}: {figure(ratio['median'])} of {found['best_fixed']}, the best fixed one here"
        if expected := found["to_expected"][name]:
            line += f", {figure(expected['median'])} of what it expected"
        if told := found["estimated"][name]:
            line += f"; its own estimate of the speed-up is {figure(told['median'])} of the measured one"
        lines.append(line)
    return lines
