"""What tuning found out, as tables in the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich import box
from rich.console import Console
from rich.table import Table

from foredraft.tune.replay import Recorded, Replayed


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print all tables. report: what `foredraft tune --json` prints."""
    console.print(_heading(report))
    console.print(_costs(report["cost"]))
    console.print(_settings(report["settings"]))
    console.print(_families(report["families"], report["best_auto"]))
    console.print(advice(report), soft_wrap=True)


def show_replay(settings: Sequence[Replayed], recorded: Recorded, console: Console) -> None:
    """Print what other settings would have brought."""
    console.print(
        f"{len(recorded.texts)} answers of {recorded.num_tokens} tokens, recorded in {recorded.num_rounds} rounds\n"
    )
    table = _table("setting", ["length", "accepted", "rounds", "tokens/s", "to none", "known"])
    for one in settings:
        table.add_row(
            one.setting,
            f"{one.mean_acceptance_length:.2f}",
            "-" if one.acceptance_rate is None else f"{one.acceptance_rate:.0%}",
            str(one.num_rounds),
            f"{one.tokens_per_s:.1f}",
            f"{one.to_plain:.2f}",
            f"{one.coverage:.0%}",
        )
    console.print(table)
    if not recorded.has_costs:
        console.print("\nwhat drafting costs is not in this trace: speeds are without it (see --record)")


def _heading(report: Mapping[str, Any]) -> str:
    machine, plan = report["machine"], report["plan"]
    lines = [
        f"{report['model']['name']}, {machine['processor']}, {report['threads']} threads, "
        f"load {machine['load_average_at_start']} at the start",
        f"{plan['num_prompts']} prompts, {plan['num_turns']} turn{'' if plan['num_turns'] == 1 else 's'}, "
        f"{plan['max_tokens']} tokens, {len(report['settings'])} settings, {report['seconds']:.0f} s",
    ]
    return "\n".join(lines) + "\n"


def _table(first: str, titles: Sequence[str]) -> Table:
    table = Table(box=box.MARKDOWN, pad_edge=True)
    table.add_column(first, no_wrap=True)
    for title in titles:
        table.add_column(title, justify="right", no_wrap=True)
    return table


def _costs(cost: Mapping[str, Any]) -> Table:
    table = _table("a pass of", ["target, ms", *(f"{name}, ms" for name in cost if name), "target, to 1 row"])
    target, others = cost[""], [calibration for name, calibration in cost.items() if name]
    for rows, seconds in zip(target["rows"], target["seconds"], strict=True):
        cells = [f"{1e3 * seconds:.1f}"]
        for calibration in others:
            known = dict(zip(calibration["rows"], calibration["seconds"], strict=True))
            cells.append(f"{1e3 * known[rows]:.1f}" if rows in known else "-")
        table.add_row(f"{rows} row{'' if rows == 1 else 's'}", *cells, f"{seconds / target['seconds'][0]:.2f}")
    return table


def _settings(settings: Sequence[Mapping[str, Any]]) -> Table:
    table = _table("setting", ["tokens/s", "to none", "worst", "accepted", "length", "text"])
    for figures in settings:
        rate = figures["acceptance_rate"]
        table.add_row(
            figures["setting"],
            f"{figures['tokens_per_s']:.1f}",
            f"{figures['to_plain']:.2f}",
            f"{figures['worst']:.2f}",
            "-" if rate is None else f"{rate:.0%}",
            f"{figures['mean_acceptance_length']:.2f}",
            {None: "lossy", True: "same", False: "DIFFERENT"}[figures["equal"]],
        )
    return table


def _families(families: Mapping[str, Any], best_auto: str) -> Table:
    table = _table("family", ["best fixed setting", "to none", f"{best_auto}, to none"])
    for family, found in families.items():
        table.add_row(family, found["best"], f"{found['best_to_plain']:.2f}", f"{found['auto_to_plain']:.2f}")
    return table


def advice(report: Mapping[str, Any]) -> str:
    """What to use, here and elsewhere."""
    lines = [f"\nuse: {command(report['recommended'])}"]
    for name, title in (("vllm", "vLLM: --speculative-config"), ("llama_cpp", "llama.cpp:")):
        found = report["for_others"][name]
        if found is None:
            lines.append(f"{title.partition(':')[0]}: nothing it has was faster than plain decoding here")
        else:
            text = f"'{found['options']}'" if name == "vllm" else found["options"]
            lines.append(f"{title} {text}  (our {found['setting']}; its speeds may differ)")
    return "\n".join(lines)


def command(recommended: Mapping[str, Any]) -> str:
    """The options of foredraft."""
    parts = [f"--draft {name}" for name in recommended["draft"]]
    if recommended["num_draft_tokens"] is not None:
        parts.append(f"--num-draft-tokens {recommended['num_draft_tokens']}")
    if recommended["num_draft_branches"] > 1:
        parts.append(f"--draft-branches {recommended['num_draft_branches']}")
    return " ".join(parts)
