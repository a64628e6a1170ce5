"""Plain text tables, also valid Markdown."""

from collections.abc import Sequence


def table(header: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    """The rows under the header: the first column to the left, all others to the right."""
    cells = [list(header), *(list(row) for row in rows)]
    widths = [max(len(line[i]) for line in cells) for i in range(len(header))]

    def line(row: Sequence[str]) -> str:
        parts = [c.ljust(w) if i == 0 else c.rjust(w) for i, (c, w) in enumerate(zip(row, widths, strict=True))]
        return "| " + " | ".join(parts) + " |"

    rule = "|" + "|".join("-" * (w + 1) + ("-" if i == 0 else ":") for i, w in enumerate(widths)) + "|"
    return "\n".join([line(cells[0]), rule, *(line(row) for row in cells[1:])])


def figure(value: float | None, digits: int = 2) -> str:
    """A number for a table; a dash where there is none."""
    return "-" if value is None else f"{value:.{digits}f}"
