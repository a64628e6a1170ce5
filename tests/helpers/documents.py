"""What the documents hold: their code blocks, links and tables."""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

ROOT = Path(__file__).resolve().parents[2]
DOCUMENTS = sorted(
    path.relative_to(ROOT)
    for path in (*ROOT.glob("*.md"), *ROOT.glob("docs/*.md"), *ROOT.glob("examples/*.md"))
    if path.name != "CHANGELOG.md"
)

_FENCE = re.compile(r"^```(\w*)$")
_LINK = re.compile(r"\]\(([^)#\s]+)(#[^)\s]*)?\)")


@dataclass(frozen=True)
class Block:
    """A fenced block of a document. line: of its first line of code, from 1."""

    document: Path
    language: str
    line: int
    code: str


def read(document: Path) -> str:
    return (ROOT / document).read_text(encoding="utf-8")


def blocks(document: Path) -> Iterator[Block]:
    language, start, lines = None, 0, list[str]()
    for number, line in enumerate(read(document).splitlines(), start=1):
        fence = _FENCE.match(line.rstrip())
        if language is not None and fence:
            yield Block(document, language, start, "\n".join(lines) + "\n")
            language = None
        elif language is not None:
            lines.append(line)
        elif fence:
            language, start, lines = fence[1], number + 1, []
    assert language is None, f"{document}: the block that begins in line {start} does not end"


def links(document: Path) -> Iterator[str]:
    """Targets of links to files of this repository."""
    for target, _ in _LINK.findall(read(document)):
        if "://" not in target and not target.startswith("mailto:"):
            yield target


def section(document: Path, title: str) -> str:
    """The text below a heading, up to the next heading of the same or a higher level."""
    level = len(title) - len(title.lstrip("#"))
    rest = read(document).partition(f"\n{title}\n")[2]
    assert rest, f"{document} has no heading {title!r}"
    return re.split(rf"^#{{1,{level}}} ", rest, maxsplit=1, flags=re.MULTILINE)[0]
