"""What tuning found out, as one page that needs nothing else: no script, no other file, no network."""

from collections.abc import Mapping, Sequence
from html import escape
from typing import Any

from foredraft.tune.report import advice
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
        f"{machine['time']}; {plan['num_prompts']} prompts, "
        f"{plan['num_turns']} turn{'' if plan['num_turns'] == 1 else 's'}, "
        f"{plan['max_tokens']} tokens each"
    )
    body = [
        f"<h1>Drafting for {name}</h1><p>{escape(facts)}</p>",
        f"<pre>{escape(advice(report).strip())}</pre>",
        "<h2>Settings</h2><p>To none: median of the speed, to that of plain decoding on the same prompt beside it.</p>",
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
    rows, chosen = [], report["recommended"]["setting"]
    for figures in report["settings"]:
        rate = figures["acceptance_rate"]
        cells = [
            figures["setting"],
            f"{figures['tokens_per_s']:.1f}",
            f"{figures['to_plain']:.2f}",
            f"{figures['worst']:.2f}",
            "" if rate is None else f"{rate:.0%}",
            f"{figures['mean_acceptance_length']:.2f}",
            {None: "lossy", True: "same", False: "different"}[figures["equal"]],
        ]
        rows.append((cells, figures["setting"] == chosen))
    return _table(["setting", "tokens/s", "to none", "worst", "accepted", "acceptance length", "text"], rows)


def _families(report: Mapping[str, Any]) -> str:
    rows = [
        ([family, found["best"], f"{found['best_to_plain']:.2f}", f"{found['auto_to_plain']:.2f}"], False)
        for family, found in report["families"].items()
    ]
    return _table(["family", "best fixed setting", "to none", f"{report['best_auto']}, to none"], rows)


def _plots(report: Mapping[str, Any]) -> list[str]:
    costs = {
        name or "target": [(rows, 1e3 * s) for rows, s in zip(c["rows"], c["seconds"], strict=True) if rows <= 32]
        for name, c in report["cost"].items()
    }
    found = [("What a pass costs", line_plot(costs, x_title="rows", y_title="ms"))]
    if curves := report["speed_over_length"]:
        plot = line_plot(curves, x_title="draft tokens", y_title="speed to plain decoding", level=1.0)
        found.append(("Speed over the number of draft tokens", plot))
    positions = {
        method: list(enumerate(shares, start=1)) for method, shares in report["accepted_per_position"].items() if shares
    }
    if positions:
        plot = line_plot(positions, x_title="place in the draft", y_title="share of rounds accepted")
        found.append(("Acceptance by place", plot))
    if lenient := report["speed_over_lenient_threshold"]:
        plot = line_plot({"lenient": lenient}, x_title="threshold", y_title="speed to plain decoding", level=1.0)
        found.append(("Speed over the threshold of the lenient rule (lossy)", plot))
    heat = report["heat_map"]
    if heat["outputs"]:
        outputs = [str(length) for length in heat["outputs"]]
        plot = heat_map(heat["inputs"], outputs, heat["ratios"], x_title="output tokens", y_title="prompt tokens")
        found.append((f"{heat['setting']}: how much sooner an output is there, prompt included", plot))
    return [f"<section><h2>{escape(title)}</h2>{plot}</section>" for title, plot in found]


def _table(titles: Sequence[str], rows: Sequence[tuple[Sequence[str], bool]]) -> str:
    head = "".join(f"<th>{escape(title)}</th>" for title in titles)
    lines = []
    for cells, chosen in rows:
        line = "".join(f"<td>{escape(cell)}</td>" for cell in cells)
        lines.append(f'<tr class="chosen">{line}</tr>' if chosen else f"<tr>{line}</tr>")
    return f"<table><thead><tr>{head}</tr></thead><tbody>{''.join(lines)}</tbody></table>"
