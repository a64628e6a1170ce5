"""Plots as SVG, drawn by hand: a page of figures needs no library, no script and no network."""

from collections.abc import Mapping, Sequence
from html import escape

WIDTH, HEIGHT = 560, 300
LEFT, RIGHT, TOP, BOTTOM = 52, 150, 14, 44
COLOURS = ("#2563eb", "#dc2626", "#059669", "#d97706", "#7c3aed", "#0891b2", "#be185d", "#4d7c0f")

Points = Sequence[tuple[float, float]]


def line_plot(lines: Mapping[str, Points], *, x_title: str, y_title: str, level: float | None = None) -> str:
    """Lines with their points. level: a value of y to compare with, drawn dashed."""
    xs = [x for points in lines.values() for x, _ in points]
    ys = [y for points in lines.values() for _, y in points] + ([] if level is None else [level])
    frame = _Frame((min(xs), max(xs)), (min(0.0, min(ys)), 1.08 * max(ys)))
    parts = [_axes(frame, x_title, y_title)]
    if level is not None:
        y = frame.y(level)
        parts.append(f'<line class="level" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
    for index, (name, points) in enumerate(lines.items()):
        colour = COLOURS[index % len(COLOURS)]
        path = " ".join(f"{frame.x(x):.1f},{frame.y(y):.1f}" for x, y in points)
        parts.append(f'<polyline points="{path}" fill="none" stroke="{colour}" stroke-width="2"/>')
        for x, y in points:
            parts.append(
                f'<circle cx="{frame.x(x):.1f}" cy="{frame.y(y):.1f}" r="3" fill="{colour}">'
                f"<title>{escape(name)}: {x:g}, {y:.3g}</title></circle>"
            )
        place = TOP + 14 + 18 * index
        parts.append(f'<rect x="{WIDTH - RIGHT + 12}" y="{place - 9}" width="10" height="10" fill="{colour}"/>')
        parts.append(f'<text x="{WIDTH - RIGHT + 27}" y="{place}">{escape(name)}</text>')
    return _svg(parts, f"{y_title} over {x_title}")


def heat_map(
    rows: Sequence[str], columns: Sequence[str], values: Sequence[Sequence[float | None]], *, x_title: str, y_title: str
) -> str:
    """A cell for each value: green above 1, red below, and the value itself."""
    width, height = (WIDTH - LEFT - 80) / max(1, len(columns)), min(40.0, (HEIGHT - TOP - BOTTOM) / max(1, len(rows)))
    left = LEFT + 60
    parts = []
    for r, (row, cells) in enumerate(zip(rows, values, strict=True)):
        y = TOP + r * height
        parts.append(f'<text x="{left - 8}" y="{y + height / 2 + 4:.1f}" text-anchor="end">{escape(row)}</text>')
        for c, value in enumerate(cells):
            x = left + c * width
            colour = "#eee" if value is None else _colour(value)
            parts.append(
                f'<rect x="{x:.1f}" y="{y:.1f}" width="{width - 2:.1f}" height="{height - 2:.1f}" fill="{colour}"/>'
            )
            shown = "" if value is None else f"{value:.2f}"
            parts.append(_middle(x + width / 2, y + height / 2 + 4, shown))
    bottom = TOP + len(rows) * height
    for c, column in enumerate(columns):
        parts.append(_middle(left + (c + 0.5) * width, bottom + 14, column))
    parts.append(_middle(left + len(columns) * width / 2, bottom + 32, x_title))
    parts.append(_turned(14, TOP + len(rows) * height / 2, y_title))
    return _svg(parts, f"{y_title} by {x_title}", height=int(bottom + 42))


class _Frame:
    def __init__(self, xs: tuple[float, float], ys: tuple[float, float]) -> None:
        self.xs = xs if xs[1] > xs[0] else (xs[0] - 1, xs[0] + 1)
        self.ys = ys if ys[1] > ys[0] else (ys[0], ys[0] + 1)

    def x(self, value: float) -> float:
        return LEFT + (value - self.xs[0]) / (self.xs[1] - self.xs[0]) * (WIDTH - LEFT - RIGHT)

    def y(self, value: float) -> float:
        return HEIGHT - BOTTOM - (value - self.ys[0]) / (self.ys[1] - self.ys[0]) * (HEIGHT - TOP - BOTTOM)


def _axes(frame: _Frame, x_title: str, y_title: str) -> str:
    parts = []
    for value in _ticks(*frame.ys):
        y = frame.y(value)
        parts.append(f'<line class="grid" x1="{LEFT}" y1="{y:.1f}" x2="{WIDTH - RIGHT}" y2="{y:.1f}"/>')
        parts.append(f'<text x="{LEFT - 6}" y="{y + 4:.1f}" text-anchor="end">{value:g}</text>')
    for value in _ticks(*frame.xs):
        parts.append(_middle(frame.x(value), HEIGHT - BOTTOM + 16, f"{value:g}"))
    parts.append(_middle((LEFT + WIDTH - RIGHT) / 2, HEIGHT - 10, x_title))
    parts.append(_turned(14, (TOP + HEIGHT - BOTTOM) / 2, y_title))
    return "".join(parts)


def _ticks(low: float, high: float) -> list[float]:
    """Round values in a range, some five of them."""
    step: float = 10.0 ** len(str(int(max(high, 1)))) / 1e6
    for factor in (2.0, 2.5, 2.0) * 10:
        if (high - low) / step <= 6:
            break
        step *= factor
    first = int(low / step) * step
    return [round(first + i * step, 9) for i in range(9) if low <= first + i * step <= high]


def _colour(ratio: float) -> str:
    """From red (half as fast) over white to green (twice as fast)."""
    depth = max(-1.0, min(1.0, 2 * (ratio - 1) if ratio < 1 else ratio - 1))
    pale = round(255 - 110 * abs(depth))
    return f"rgb({pale},{(pale + 765) // 4},{pale})" if depth >= 0 else f"rgb(255,{pale},{pale})"


def _middle(x: float, y: float, text: str) -> str:
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle">{escape(text)}</text>'


def _turned(x: float, y: float, text: str) -> str:
    turn = f"rotate(-90 {x:.1f} {y:.1f})"
    return f'<text x="{x:.1f}" y="{y:.1f}" text-anchor="middle" transform="{turn}">{escape(text)}</text>'


def _svg(parts: Sequence[str], title: str, *, height: int = HEIGHT) -> str:
    head = f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {WIDTH} {height}" role="img">'
    return f"{head}<title>{escape(title)}</title>{''.join(parts)}</svg>"
