"""What came out, for the terminal and as JSON."""

import dataclasses
from collections.abc import Iterator, Sequence
from typing import Any

from rich.console import Console
from rich.text import Text

from foredraft import __version__
from foredraft.bench.tables import figure, percent, table
from foredraft.check.compare import Difference, Divergence
from foredraft.check.distribution import THRESHOLD
from foredraft.check.run import CellResult, Report
from foredraft.inspect.words import quoted

_MOST_SHOWN = 8
GOOD, BAD = "green", "bold red"


def show(report: Report, console: Console) -> None:
    """Print tables, then what does not hold, then the verdict."""
    console.print(_cells(report), soft_wrap=True)
    if report.distributions:
        console.print()
        console.print(_distributions(report), soft_wrap=True)
    for line in (*_failures(report), *_refusals(report)):
        console.print(line)
    console.print()
    console.print(verdict(report))


def verdict(report: Report) -> Text:
    """One line."""
    completions = sum(result.num_completions for result in report.cells)
    different = sum(len(result.differences) for result in report.cells)
    broken = sum(bool(result.failed) for result in report.cells)
    tests = sum(not result.holds for result in report.distributions)
    if report.holds:
        return Text(f"All {completions} completions are those of plain decoding ({report.seconds:.0f} s).", style=GOOD)
    faults = [
        f"{different} of {completions} completions are not those of plain decoding" if different else "",
        f"{broken} comparisons broke off" if broken else "",
        f"{tests} statistical tests came out wrong" if tests else "",
    ]
    return Text(f"{', '.join(filter(None, faults))} ({report.seconds:.0f} s).", style=BAD)


def _cells(report: Report) -> Text:
    header = ["drafters", "comparisons", "completions", "equal", "refused", "acceptance rate", "mean length"]
    rows, holds = [], []
    for name, results in _by_drafters(report).items():
        drafted = sum(result.num_draft_tokens for result in results)
        accepted = sum(result.num_accepted_tokens for result in results)
        rounds = sum(result.num_rounds for result in results)
        completions = sum(result.num_completions for result in results)
        equal = completions - sum(len(result.differences) for result in results)
        length = sum(result.num_tokens for result in results) / rounds if rounds else None
        refused = sum(bool(result.refused) for result in results)
        numbers = [len(results), completions, equal, refused]
        rate = accepted / drafted if drafted else None
        rows.append([name, *map(str, numbers), percent(rate), figure(length)])
        holds.append(all(result.holds for result in results))
    return _coloured(header, rows, holds)


def _by_drafters(report: Report) -> dict[str, list[CellResult]]:
    found: dict[str, list[CellResult]] = {}
    for result in report.cells:
        found.setdefault(result.cell.drafters, []).append(result)
    return found


def _distributions(report: Report) -> Text:
    header = ["statistical test", "samples", "bins", "chi-square", "p", ""]
    rows = []
    for result in report.distributions:
        found = "differs" if result.p_value < THRESHOLD else "agrees"
        words = f"{found}, as it {'should' if result.holds else 'must not'}"
        figures = [str(result.num_samples), str(result.num_bins), figure(result.statistic, 1), f"{result.p_value:.2g}"]
        rows.append([result.name, *figures, words])
    return _coloured(header, rows, [result.holds for result in report.distributions])


def _coloured(header: Sequence[str], rows: Sequence[Sequence[str]], holds: Sequence[bool]) -> Text:
    """A table whose rows show at a glance what holds."""
    lines = table(header, rows).splitlines()
    styles = ["bold", "", *(GOOD if one else BAD for one in holds)]
    return Text("\n").join(Text(line, style=style) for line, style in zip(lines, styles, strict=True))


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
    return f"from token {divergence.position} on: {plain} without speculation, {drafted} with it{gap}"


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
        "config": cell.config.to_json(),
        "temperature": cell.temperature,
        "options": cell.options,
        "batch": cell.batch,
        "holds": result.holds,
        "num_completions": result.num_completions,
        "num_different": len(result.differences),
        "num_tokens": result.num_tokens,
        "num_rounds": result.num_rounds,
        "num_draft_tokens": result.num_draft_tokens,
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
