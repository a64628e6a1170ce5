"""What tuning found out, as tables in the terminal."""

from collections.abc import Mapping, Sequence
from typing import Any

from rich.console import Console

from foredraft.bench.tables import counted, figure, percent, table
from foredraft.tune.recorded import Recorded
from foredraft.tune.replay import Replayed

TEXT = {None: "lossy", True: "same", False: "DIFFERENT"}
SETTING_TITLES = ("setting", "tokens/s", "speed-up", "worst", "acceptance rate", "length", "text")


def show(report: Mapping[str, Any], console: Console) -> None:
    """Print all tables. report: what `foredraft tune --json` prints."""
    settings = table(SETTING_TITLES, [setting_cells(figures) for figures in report["settings"]])
    families = table(*family_table(report))
    text = "\n\n".join([_heading(report), _costs(report["cost"]), settings, families, advice(report)])
    console.print(text, soft_wrap=True, markup=False)


def show_replay(settings: Sequence[Replayed], recorded: Recorded, console: Console) -> None:
    """Print what other settings would have brought."""
    rows = [
        [
            one.setting,
            figure(one.mean_acceptance_length),
            percent(one.acceptance_rate),
            str(one.num_rounds),
            figure(one.tokens_per_s, 1),
            figure(one.speed_up),
            percent(one.coverage),
        ]
        for one in settings
    ]
    parts = [
        f"{counted(len(recorded.texts), 'completion')} of {recorded.num_tokens} tokens, recorded in "
        f"{recorded.num_rounds} rounds",
        table(["setting", "length", "acceptance rate", "rounds", "tokens/s", "speed-up", "known"], rows),
    ]
    if not recorded.has_costs:
        parts.append("what drafting costs is not in this trace: speeds are without it (see --record)")
    console.print("\n\n".join(parts), soft_wrap=True, markup=False)


def _heading(report: Mapping[str, Any]) -> str:
    machine, plan = report["machine"], report["plan"]
    return (
        f"{report['model']['name']}, {machine['processor']}, {report['threads']} threads, "
        f"load {machine['load_average_at_start']} at the start\n"
        f"{counted(plan['num_prompts'], 'prompt')}, {counted(plan['num_turns'], 'turn')}, "
        f"{plan['max_tokens']} tokens, {len(report['settings'])} settings, {report['seconds']:.0f} s"
    )


def _costs(cost: Mapping[str, Any]) -> str:
    target, others = cost[""], [calibration for name, calibration in cost.items() if name]
    rows = []
    for number, seconds in zip(target["num_tokens"], target["seconds"], strict=True):
        known = [dict(zip(one["num_tokens"], one["seconds"], strict=True)).get(number) for one in others]
        milliseconds = [figure(None if s is None else 1e3 * s, 1) for s in (seconds, *known)]
        rows.append([counted(number, "token"), *milliseconds, figure(seconds / target["seconds"][0])])
    return table(["a pass of", "target, ms", *(f"{name}, ms" for name in cost if name), "target, to 1 token"], rows)


def setting_cells(figures: Mapping[str, Any]) -> list[str]:
    """The cells of a setting, under `SETTING_TITLES`."""
    return [
        figures["setting"],
        figure(figures["tokens_per_s"], 1),
        figure(figures["speed_up"]),
        figure(figures["worst"]),
        percent(figures["acceptance_rate"]),
        figure(figures["mean_acceptance_length"]),
        TEXT[figures["equal"]],
    ]


def family_table(report: Mapping[str, Any]) -> tuple[list[str], list[list[str]]]:
    """How `auto` does beside the best by hindsight: titles and rows."""
    rows = [
        [family, found["best"], figure(found["best_speed_up"]), figure(found["auto_speed_up"])]
        for family, found in report["families"].items()
    ]
    return ["family", "best fixed setting", "speed-up", f"speed-up of {report['best_auto']}"], rows


def advice(report: Mapping[str, Any]) -> str:
    """What to use, here and elsewhere."""
    lines = [f"use: {report['recommended']['options']}"]
    for name, title in (("vllm", "vLLM: --speculative-config"), ("llama_cpp", "llama.cpp:")):
        found = report["for_others"][name]
        if found is None:
            lines.append(f"{title.partition(':')[0]}: nothing it has was faster than plain decoding here")
        else:
            text = f"'{found['options']}'" if name == "vllm" else found["options"]
            lines.append(f"{title} {text}  (our {found['setting']}; its speeds may differ)")
    return "\n".join(lines)
