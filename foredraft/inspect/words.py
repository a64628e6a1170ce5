"""What a trace says, in words."""

import json
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from foredraft.accept import in_words, make_rule
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams
from foredraft.trace import RoundRecord, SequenceTrace, Trace


def quoted(text: str) -> str:
    """A token's text in quotes, line endings and the like made visible."""
    return printable(json.dumps(text, ensure_ascii=False))


def printable(text: str) -> str:
    """The text without characters that a terminal would obey: they are written out. Line endings and tabs stay."""
    return "".join(c if c.isprintable() or c in "\n\t" else f"\\u{ord(c):04x}" for c in text)


def percent(probability: float | None) -> str:
    """A probability, with as many digits as tell small ones apart."""
    if probability is None:
        return "?"
    value = 100 * probability
    if value >= 9.95:
        return f"{value:.0f} %"
    return f"{value:.1f} %" if value >= 0.95 else f"{value:.2g} %"


def why_rejected(record: RoundRecord) -> str:
    """Why the walk left the tree; empty where it did not, or where the sequence ended before."""
    if record.rejected is None or record.choice is None:
        return ""
    node, choice = record.rejected, record.choice
    return (
        f"{quoted(record.texts[node])} rejected: rank {record.target_ranks[node]} "
        f"({percent(record.target_probs[node])}) for the target, which says {quoted(choice.text)}, "
        f"rank {choice.rank} ({percent(choice.probability)})"
    )


def by_drafter(sources: Iterable[str]) -> dict[str, int]:
    """How many drafted tokens came from whom, in the order they first appear."""
    counts: dict[str, int] = {}
    for source in sources:
        if source:
            counts[source] = counts.get(source, 0) + 1
    return counts


@dataclass(frozen=True)
class Totals:
    """Sums over the rounds of a sequence."""

    num_rounds: int
    num_emitted: int
    num_drafted: int
    num_accepted: int

    @classmethod
    def of(cls, rounds: Sequence[RoundRecord]) -> "Totals":
        """The sums of these rounds."""
        return cls(
            len(rounds),
            sum(len(record.emitted) for record in rounds),
            sum(record.num_draft_tokens for record in rounds),
            sum(len(record.accepted) for record in rounds),
        )


def rule(trace: Trace, sequence: SequenceTrace) -> str:
    """By which rule drafts were accepted, where that changes the text; else empty."""
    name = "coupled" if trace.header is None else trace.header.settings.get("acceptance", "coupled")
    temperature = 1.0 if sequence.start is None else sequence.start.params.get("temperature", 1.0)
    try:
        return in_words(name, make_rule(name).equality(SamplingParams(temperature=temperature)))
    except OptionError:  # from another version, perhaps
        return f"acceptance {printable(str(name))}"


def headline(trace: Trace, sequence: SequenceTrace) -> str:
    """One line: the model, the drafters that had something to propose (all, if none had), and what came of it."""
    totals = Totals.of(sequence.rounds)
    parts = []
    if trace.header is not None:
        asked = [name for name in trace.header.drafters if name != "none"]
        proposed = {source for record in sequence.rounds for source in record.sources}
        # Grammar is there for those who give one; that it had nothing to propose is no news.
        drafters = [name for name in asked if name in proposed] or [name for name in asked if name != "grammar"]
        parts += [trace.header.model, f"drafter {' + '.join(drafters)}" if drafters else "no drafter"]
    if named := rule(trace, sequence):
        parts.append(named)
    rounds = "round" if totals.num_rounds == 1 else "rounds"
    parts.append(f"{totals.num_emitted} tokens in {totals.num_rounds} {rounds}")
    if totals.num_rounds:
        parts.append(f"mean acceptance length {totals.num_emitted / totals.num_rounds:.2f}")
    if totals.num_drafted:
        parts.append(f"{totals.num_accepted} of {totals.num_drafted} drafted tokens accepted")
    return ", ".join(parts)


@dataclass(frozen=True)
class Piece:
    """A run of the completion: drafted and accepted, or the target's own."""

    text: str
    accepted: bool


def pieces(rounds: Sequence[RoundRecord]) -> list[Piece]:
    """The completion in runs. Neighbouring tokens of one kind are one run, as long as no round ends between them."""
    found = []
    for record in rounds:
        texts, num_accepted = record.emitted_texts, len(record.accepted)
        for text, accepted in (("".join(texts[:num_accepted]), True), ("".join(texts[num_accepted:]), False)):
            if text:
                found.append(Piece(text, accepted))
    return found
