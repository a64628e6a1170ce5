"""What the records of the speculation benchmark say: speeds by family, and every output that differs."""

from collections.abc import Sequence
from typing import Any

from foredraft.bench.measuring import paired_ratios, summarise

from .measuring import first_difference
from .records import OURS, THEIRS, Cell
from .tables import figure, table

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


def speeds_of(cells: Sequence[Cell], name: str) -> dict[str, Any]:
    """Speed, acceptance and the paired ratio to the same engine's plain decoding, over these cells.

    Cells where an answer has fewer than two tokens have no speed and are left out of all modes alike.
    """
    timed = [cell for cell in cells if all(run["num_tokens"] > 1 for run in cell["runs"].values())]
    if not timed:
        return {"num": 0}
    speeds = [cell["runs"][name]["tokens_per_s"] for cell in timed]
    plain = [cell["runs"][baseline_of(name)]["tokens_per_s"] for cell in timed]
    ratios = paired_ratios(speeds, plain)
    lengths = [cell["runs"][name]["mean_acceptance_length"] for cell in timed]
    worst = min(range(len(timed)), key=ratios.__getitem__)
    return {
        "num": len(timed),
        "tokens_per_s": summarise(speeds).to_json_dict(),
        "ratio_to_none": summarise(ratios).to_json_dict(),
        "mean_acceptance_length": summarise(lengths).to_json_dict(),
        "worst": {"prompt": timed[worst]["prompt"], "ratio_to_none": ratios[worst]},
    }


def ours_to_best_peer(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """For each mode of ours: its speed to that of llama.cpp's best mode, per prompt; None without a peer.

    The best mode is the one with the highest median over these cells, as a user chooses one for all.
    """
    timed = [cell for cell in cells if all(run["num_tokens"] > 1 for run in cell["runs"].values())]
    names = list(timed[0]["runs"]) if timed else []
    theirs = [name for name in names if name.startswith(f"{THEIRS} ")]
    if not theirs:
        return None
    speeds = {name: [cell["runs"][name]["tokens_per_s"] for cell in timed] for name in names}
    best = max(theirs, key=lambda name: summarise(speeds[name]).median)
    ratios = {
        name: summarise(paired_ratios(speeds[name], speeds[best])).to_json_dict()
        for name in names
        if name.startswith(f"{OURS} ")
    }
    return {"best_peer": best, "ratio": ratios}


def against_fixed(cells: Sequence[Cell]) -> dict[str, Any] | None:
    """The modes whose planner decides, beside the best fixed one for these cells and beside their own expectations.

    None without such modes.

    The best fixed mode is the one with the highest median speed-up over these cells, chosen by hindsight. to_expected:
    speed to the one that the planner expected from round to round.
    """
    timed = [cell for cell in cells if all(run["num_tokens"] > 1 for run in cell["runs"].values())]
    names = [name for name in timed[0]["runs"] if name.startswith(f"{OURS} ")] if timed else []
    fixed = [name for name in names if ":" in name]
    planned = [name for name in names if ":" not in name and name != f"{OURS} none"]
    if not fixed or not planned:
        return None
    speeds = {name: [cell["runs"][name]["tokens_per_s"] for cell in timed] for name in names}
    best = max(fixed, key=lambda name: summarise(paired_ratios(speeds[name], speeds[f"{OURS} none"])).median)
    return {
        "best_fixed": best,
        "ratio": {name: summarise(paired_ratios(speeds[name], speeds[best])).to_json_dict() for name in planned},
        "to_expected": {name: to_expected(timed, name) for name in planned},
    }


def to_expected(cells: Sequence[Cell], name: str) -> dict[str, Any] | None:
    """Speed to the expected one; None where nothing was expected."""
    ratios = []
    for run in (cell["runs"][name] for cell in cells):
        expected_s = run.get("speculation", {}).get("expected_s")  # records of earlier versions have none
        if expected_s:
            ratios.append(run["tokens_per_s"] * expected_s / run["speculation"]["expected_tokens"])
    return summarise(ratios).to_json_dict() if ratios else None


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
        entry: dict[str, Any] = {"modes": {name: speeds_of(own, name) for name in names}}
        to_peer = ours_to_best_peer(own)
        if to_peer is not None:
            entry["ours_to_best_peer"] = to_peer
        to_fixed = against_fixed(own)
        if to_fixed is not None:
            entry["against_fixed"] = to_fixed
        by_family[family] = entry
    peers = [name for name in names if name.startswith(f"{THEIRS} ")]
    result: dict[str, Any] = {"num_prompts": len(cells), "families": by_family}
    if peers:
        result["peer_same_text_as_plain"] = {name: same_text_as_plain(cells, name) for name in peers}
    return result


def report(result: dict[str, Any]) -> str:
    """The summary as tables, and a line on equality."""
    parts = []
    for title in ("greedy", "sampled"):
        if title in result:
            parts.append(f"{title}, {result[title]['num_prompts']} answers")
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
    header = [family, "tokens/s", "to none", "worst", "accepted length"]
    if to_peer:
        header.append(f"to {to_peer['best_peer']}")
    rows = []
    for name, found in entry["modes"].items():
        if not found["num"]:
            continue
        row = [
            name,
            figure(found["tokens_per_s"]["median"], 1),
            figure(found["ratio_to_none"]["median"]),
            figure(found["worst"]["ratio_to_none"]),
            figure(found["mean_acceptance_length"]["median"]),
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
        expected = found["to_expected"][name]
        told = f", {figure(expected['median'])} of what it expected" if expected else ""
        lines.append(f"{name}: {figure(ratio['median'])} of {found['best_fixed']}, the best fixed one here{told}")
    return lines
