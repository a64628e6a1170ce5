"""A trace in the terminal: the completion with what was drafted marked, and a line for every round."""

from rich.console import Console, Group, RenderableType
from rich.padding import Padding
from rich.table import Table
from rich.text import Text

from foredraft.inspect.words import by_drafter, headline, percent, pieces, printable, quoted, why_rejected
from foredraft.trace import RoundRecord, SequenceTrace, Trace

ACCEPTED, REJECTED, UNREACHED, CHOSEN = "green", "red", "bright_black", "cyan"


def show(trace: Trace, console: Console) -> None:
    """Print all sequences of a trace. Without colours, what was drafted and accepted stands in brackets."""
    for number, sequence in enumerate(trace.sequences.values()):
        if number:
            console.print()
        console.print(Text(headline(trace, sequence), style="bold"))
        console.print()
        console.print(Padding(_completion(sequence, marked=_plain(console)), (0, 0, 1, 2)))
        console.print(_rounds(sequence, marked=_plain(console)))
        if reason := _last_reason(sequence):
            console.print(Text(f"\ndrafting: {reason}"))


def _plain(console: Console) -> bool:
    """Whether colours do not show, so that signs have to."""
    return console.no_color or console.color_system is None


def _last_reason(sequence: SequenceTrace) -> str:
    return sequence.end.reason if sequence.end else sequence.rounds[-1].reason if sequence.rounds else ""


def _completion(sequence: SequenceTrace, *, marked: bool) -> Text:
    text = Text()
    for piece in pieces(sequence.rounds):
        said = printable(piece.text)
        shown = f"[{said}]" if marked and piece.accepted else said
        text.append(shown, style=f"{ACCEPTED} underline" if piece.accepted else "")
    return text


def _rounds(sequence: SequenceTrace, *, marked: bool) -> RenderableType:
    table = Table(box=None, padding=(0, 2, 0, 0), header_style="bold", show_edge=False)
    table.add_column("round", justify="right")
    table.add_column("at", justify="right")
    table.add_column("drafted by")
    table.add_column("accepted", justify="right")
    table.add_column("proposed, with confidence, and what the target says", overflow="fold", ratio=1)
    table.add_column("ms", justify="right")
    for record in sequence.rounds:
        table.add_row(
            str(record.round),
            str(record.num_tokens),
            Text(" ".join(f"{name} {count}" for name, count in by_drafter(record.sources).items()) or "-"),
            str(len(record.accepted)) if record.num_draft_tokens else "",
            Group(_proposal(record, marked=marked), *_why(record)),
            f"{1e3 * record.total_s:.1f}",
        )
    return table


def _proposal(record: RoundRecord, *, marked: bool) -> Text:
    """The accepted path, the first rejected token, how many others there were, and the target's own token."""
    line = Text()

    def add(node: int, sign: str, style: str) -> None:
        line.append(f"{quoted(record.texts[node])} ", style=style)
        line.append(f"{record.confidence[node]:.2f}{sign} ", style="dim")

    for node in record.accepted:
        add(node, "+" if marked else "", ACCEPTED)
    if record.rejected is not None:
        add(record.rejected, "-" if marked else "", f"{REJECTED} strike")
    shown = len(record.accepted) + (record.rejected is not None)
    if others := record.num_draft_tokens - shown:
        line.append(f"({others} more) ", style=UNREACHED)
    if record.choice is not None:
        line.append(f"> {quoted(record.choice.text)}", style=CHOSEN)
        line.append(f" {percent(record.choice.probability)}", style="dim")
    return line


def _why(record: RoundRecord) -> list[Text]:
    why = why_rejected(record)
    return [Text(why, style="dim")] if why else []
