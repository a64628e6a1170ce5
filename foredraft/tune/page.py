"""What tuning found out, as one page that needs nothing else: no script, no other file, no network."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from foredraft.bench.tables import counted
from foredraft.tune.report import SETTING_TITLES, advice, family_table, setting_cells
from foredraft.tune.svg import heat_map, line_plot

_STYLE = """
body { font: 15px/1.5 system-ui, sans-serif; max-width: 62rem; margin: 2rem auto; padding: 0 1rem; color: #1f2937; }
h1 { font-size: 1.4rem; } h2 { font-size: 1.1rem; margin-top: 2rem; } p, pre { margin: .5rem 0; }
table { border-collapse: collapse; font-variant-numeric: tabular-nums; }
th, td { padding: .2rem .7rem; text-align: right; }
th:first-child, td:first-child { text-align: left; } thead { border-bottom: 2px solid #d1d5db; }
tbody tr:nth-child(odd) { background: #f9fafb; } tr.chosen { font-weight: 600; }
pre { background: #f3f4f6; padding: .7rem; white-space: pre-wrap; }
svg { max-width: 42rem; width: 100%; } svg text { font: 12px system-ui, sans-serif; fill: #374151; }
svg .grid { stroke: #e5e7eb; } svg .level { stroke: #6b7280; stroke-dasharray: 4 4; }
.plots { display: grid; grid-template-columns: repeat(auto-fit, minmax(26rem, 1fr)); gap: 1rem; }
@media (max-width: 30rem) { .plots { grid-template-columns: 1fr; } }
"""


def page(report: Mapping[str, Any]) -> str:
    """The page's HTML. report: what `foredraft tune --json` prints."""
    machine, plan = report["machine"], report["plan"]
    name = escape(report["model"]["name"])
    facts = (
        f"{machine['processor']}, {report['threads']} threads, load {machine['load_average_at_start']} at the start; "
        f"{machine['time']}; {counted(plan['num_prompts'], 'prompt')}, "
        f"{counted(plan['num_turns'], 'turn')}, "
        f"{plan['max_tokens']} tokens each"
    )
    body = [
        f"<h1>Drafting for {name}</h1><p>{escape(facts)}</p>",
        f"<pre>{escape(advice(report))}</pre>",
        "<h2>Settings</h2>",
        "<p>Speed-up: median of the speed, to that of plain decoding on the same prompt beside it.</p>",
        _settings(report),
        "<h2>By kind of text</h2>",
        _families(report),
        '<div class="plots">',
        *_plots(report),
        "</div>",
    ]
    meta = '<meta charset="utf-8"><meta name="viewport" content="width=device-width">'
    head = f"{meta}<title>Drafting for {name}</title><style>{_STYLE}</style>"
    return f'<!DOCTYPE html>\n<html lang="en"><head>{head}</head>\n<body>{"".join(body)}</body></html>\n'


def _settings(report: Mapping[str, Any]) -> str:
    chosen = report["recommended"]["setting"]
    return _table(SETTING_TITLES, [(setting_cells(one), one["setting"] == chosen) for one in report["settings"]])


def _families(report: Mapping[str, Any]) -> str:
    titles, rows = family_table(report)
    return _table(titles, [(cells, False) for cells in rows])


def _plots(report: Mapping[str, Any]) -> list[str]:
    costs = {
        name or "target": [(n, 1e3 * s) for n, s in zip(c["num_tokens"], c["seconds"], strict=True) if n <= 32]
        for name, c in report["cost"].items()
    }
    found = [("What a pass costs", line_plot(costs, x_title="batched tokens", y_title="ms"))]
    if curves := report["speed_up_over_length"]:
        plot = line_plot(curves, x_title="draft tokens", y_title="speed-up", level=1.0)
        found.append(("Speed-up over the number of draft tokens", plot))
    positions = {
        name: list(enumerate(rates, start=1)) for name, rates in report["accepted_per_position"].items() if rates
    }
    if positions:
        plot = line_plot(positions, x_title="place in the draft", y_title="accepted in a round")
        found.append(("Acceptance by place", plot))
    if lenient := report["speed_up_over_lenient_threshold"]:
        plot = line_plot({"lenient": lenient}, x_title="threshold", y_title="speed-up", level=1.0)
        found.append(("Speed-up over the threshold of the lenient rule (lossy)", plot))
    heat = report["heat_map"]
    if heat["outputs"]:
        outputs = [str(length) for length in heat["outputs"]]
        plot = heat_map(heat["inputs"], outputs, heat["speed_ups"], x_title="output tokens", y_title="prompt tokens")
        found.append((f"{heat['setting']}: how much sooner an output is there, prompt included", plot))
    return [f"<section><h2>{escape(title)}</h2>{plot}</section>" for title, plot in found]


def _table(titles: Sequence[str], rows: Sequence[tuple[Sequence[str], bool]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = []
    for cells, chosen in rows:
        line = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr class="chosen">{line}</tr>' if chosen else f"<tr>{line}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
