"""What came out, for the terminal and as JSON."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from foredraft import __version__
from foredraft.check.compare import Difference, Divergence
from foredraft.check.distribution import THRESHOLD
from foredraft.check.run import CellResult, Report
from foredraft.inspect.words import quoted

_MOST_SHOWN = 8
GOOD, BAD = "green", "bold red"


def show(report: Report, console: Console) -> None:
    """Print tables, then what does not hold, then the verdict."""
    console.print(_cells(report))
    if report.distributions:
        console.print()
        console.print(_distributions(report))
    for line in (*_failures(report), *_refusals(report)):
        console.print(line)
    console.print()
    console.print(verdict(report))


def verdict(report: Report) -> Text:
    """One line."""
    answers = sum(result.num_answers for result in report.cells)
    different = sum(len(result.differences) for result in report.cells)
    broken = sum(bool(result.failed) for result in report.cells)
    tests = sum(not result.holds for result in report.distributions)
    if report.holds:
        return Text(f"All {answers} answers are those of plain decoding ({report.seconds:.0f} s).", style=GOOD)
    faults = [
        f"{different} of {answers} answers are not those of plain decoding" if different else "",
        f"{broken} comparisons broke off" if broken else "",
        f"{tests} statistical tests came out wrong" if tests else "",
    ]
    return Text(f"{', '.join(filter(None, faults))} ({report.seconds:.0f} s).", style=BAD)


def _cells(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("drafter")
    for title in ("comparisons", "answers", "equal", "refused", "accepted", "mean length"):
        table.add_column(title, justify="right")
    for name, results in _by_drafters(report).items():
        drafted = sum(result.num_draft_tokens for result in results)
        accepted = sum(result.num_accepted_tokens for result in results)
        rounds = sum(result.num_rounds for result in results)
        answers = sum(result.num_answers for result in results)
        equal = answers - sum(len(result.differences) for result in results)
        holds = all(result.holds for result in results)
        table.add_row(
            Text(name),
            str(len(results)),
            str(answers),
            Text(str(equal), style=GOOD if holds else BAD),
            str(sum(bool(result.refused) for result in results) or ""),
            f"{100 * accepted / drafted:.0f} %" if drafted else "-",
            f"{sum(result.num_tokens for result in results) / rounds:.2f}" if rounds else "-",
        )
    return table


def _by_drafters(report: Report) -> dict[str, list[CellResult]]:
    found: dict[str, list[CellResult]] = {}
    for result in report.cells:
        found.setdefault(result.cell.drafting.drafters, []).append(result)
    return found


def _distributions(report: Report) -> Table:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold")
    table.add_column("statistical test")
    for title in ("samples", "bins", "chi-square", "p"):
        table.add_column(title, justify="right")
    table.add_column("")
    for result in report.distributions:
        found = "differs" if result.p_value < THRESHOLD else "agrees"
        table.add_row(
            Text(result.name),
            str(result.num_samples),
            str(result.num_bins),
            f"{result.statistic:.1f}",
            f"{result.p_value:.2g}",
            Text(f"{found}, as it {'should' if result.holds else 'must not'}", style=GOOD if result.holds else BAD),
        )
    return table


def _failures(report: Report) -> Iterator[Text]:
    faults = [(result, fault) for result in report.cells for fault in result.differences]
    for result, fault in faults[:_MOST_SHOWN]:
        yield Text(f"\n{result.cell.describe()}", style=BAD)
        yield Text(f"  {described(fault)}")
    if len(faults) > _MOST_SHOWN:
        yield Text(f"\n{len(faults) - _MOST_SHOWN} more; --json or --output has them all")
    for result in report.cells:
        if result.failed:
            yield Text(f"\n{result.cell.describe()}", style=BAD)
            yield Text(f"  broke off: {result.failed}")


def described(fault: Difference) -> str:
    """What differs, in one line."""
    prompt = fault.prompt if len(fault.prompt) <= 40 else f"{fault.prompt[:40]}..."
    where = f"; {_where(fault.divergence)}" if fault.divergence else ""
    return f"{quoted(prompt)}: {', '.join(fault.parts)} differ{where}"


def _where(divergence: Divergence) -> str:
    def one(text: str, token: int | None, logit: float | None) -> str:
        return "the end" if token is None else f"{quoted(text)} (token {token}, logit {logit:.6g})"

    plain = one(divergence.plain_text, divergence.plain, divergence.plain_logit)
    drafted = one(divergence.drafted_text, divergence.drafted, divergence.drafted_logit)
    gap = "" if divergence.gap is None else f", gap {divergence.gap:.6g}"
    return f"from token {divergence.position} of the answer on: {plain} without speculation, {drafted} with it{gap}"


def _refusals(report: Report) -> Iterator[Text]:
    lines = dict.fromkeys(result.refused for result in report.cells if result.refused)
    for line in lines:
        yield Text(f"\nrefused: {line}", style="dim")


def to_json_dict(report: Report, *, model: str, machine: dict[str, Any]) -> dict[str, Any]:
    """Everything, as `--json` prints it."""
    return {
        "foredraft": __version__,
        "model": model,
        "machine": machine,
        "holds": report.holds,
        "seconds": report.seconds,
        "prompts": list(report.plan.prompts),
        "max_tokens": report.plan.max_tokens,
        "threshold": THRESHOLD,
        "comparisons": [_cell(result) for result in report.cells],
        "distributions": [dataclasses.asdict(result) | {"holds": result.holds} for result in report.distributions],
    }


def _cell(result: CellResult) -> dict[str, Any]:
    cell = result.cell
    return {
        "draft": list(cell.drafting.draft),
        "num_draft_tokens": cell.drafting.num_draft_tokens,
        "num_branches": cell.drafting.num_branches,
        "acceptance": cell.drafting.acceptance,
        "temperature": cell.temperature,
        "options": cell.options,
        "batch": cell.batch,
        "holds": result.holds,
        "num_answers": result.num_answers,
        "num_different": len(result.differences),
        "num_tokens": result.num_tokens,
        "num_rounds": result.num_rounds,
        "num_draft_tokens_verified": result.num_draft_tokens,
        "num_accepted_tokens": result.num_accepted_tokens,
        "seconds": result.seconds,
        "refused": result.refused or None,
        "failed": result.failed or None,
        "differences": [_difference(fault) for fault in result.differences],
    }


def _difference(fault: Difference) -> dict[str, Any]:
    divergence = fault.divergence
    where = None if divergence is None else dataclasses.asdict(divergence) | {"gap": divergence.gap}
    return {"prompt": fault.prompt, "parts": list(fault.parts), "first_divergence": where}
