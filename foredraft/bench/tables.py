"""Tables: plain text whose columns line up, which is also valid Markdown. All that measures prints with these."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under the header: the first column to the left, all others to the right.

    A cell that holds "|" is written as Markdown wants it.
    """
    cells = [[cell.replace("|", "\\|") for cell in row] for row in (header, *rows)]
    widths = [max(len(row[i]) for row in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        parts = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "| " + " | ".join(parts) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def figure(value: float | None, digits: int = 2) -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"


def percent(value: float | None, digits: int = 0) -> str:
    """A part of 1, in percent; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}%}"


def counted(number: int, noun: str) -> str:
    """A number with its noun: "1 turn", "2 turns"."""
    return f"{number} {noun}{'' if number == 1 else 's'}"
