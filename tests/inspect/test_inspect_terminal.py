"""A trace in the terminal."""

import io
from dataclasses import replace

import pytest
from helpers.traces import HEADER, PLAIN, START, TREE, small_trace
from rich.console import Console

from foredraft.inspect import show
from foredraft.inspect.words import headline, percent, quoted, why_rejected
from foredraft.trace import RoundRecord, Trace


def shown(trace: Trace, *, colours: bool = False, width: int = 140) -> str:
    text = io.StringIO()
    system = "truecolor" if colours else None
    console = Console(file=text, force_terminal=colours, color_system=system, width=width, highlight=False)
    show(trace, console)
    return text.getvalue()


def words(text: str) -> str:
    return " ".join(text.split())


def of(*records: RoundRecord) -> Trace:
    trace = Trace()
    for record in (HEADER, START, *records):
        trace(record)
    return trace


def test_everything_that_was_asked_for_is_there() -> None:
    text = shown(small_trace())
    assert text.startswith(
        "m.gguf, drafter lookup + suffix, 3 tokens in 2 rounds, mean acceptance length 1.50, 1 of 4 "
    )
    assert "[ one] three" in text
    tree, why, plain = text.split("rounds")[1].split("ms")[1].splitlines()[1:4]
    assert words(tree) == '0 2 lookup 2 suffix 2 1 " one" 0.50+ " two" 0.75- (2 more) > " three" 50 % 13.0'
    assert why.strip() == '" two" rejected: rank 3 (6.2 %) for the target, which says " three", rank 1 (50 %)'
    assert words(plain) == '1 4 - > "<|end|>" 90 % 13.0'
    assert "drafting: asked for" in text
    assert text.count("m.gguf") == 2  # two sequences


def test_colours_stand_for_the_signs() -> None:
    text = shown(small_trace(), colours=True)
    assert "\x1b[" in text
    assert "[ one]" not in text
    assert " one" in text


def test_what_a_model_says_does_not_reach_the_terminal_as_commands() -> None:
    evil = "\x1b]0;owned\x07\x9b2J"
    record = replace(TREE, emitted_texts=(evil, "\r\n"), texts=("a", evil, "b", evil, "c"))
    text = shown(of(record))
    assert not set(text) & {"\x1b", "\x07", "\x9b", "\r"}
    assert "\\u001b]0;owned" in text


def test_brackets_in_a_text_are_no_markup() -> None:
    assert "[bold]x[/red]" in shown(of(replace(TREE, emitted_texts=("[bold]x", "[/red]"), accepted=())))


def test_a_narrow_terminal_gets_all_of_it() -> None:
    text = shown(of(TREE), width=50)
    assert max(len(line) for line in text.splitlines()) <= 50
    assert '"two"rejected:rank3' in words(text).replace(" ", "")


def test_a_sequence_that_ended_in_a_draft() -> None:
    text = shown(of(replace(TREE, choice=None, rejected=None, accepted=(1, 3), emitted_texts=(" one", " two"))))
    assert "[ one two]" in text
    assert "rejected" not in text


def test_a_trace_without_rounds_or_header() -> None:
    trace = Trace()
    trace(START)
    assert shown(trace).startswith("0 tokens in 0 rounds\n")


@pytest.mark.parametrize(
    ("value", "text"),
    [(1.0, "100 %"), (0.5, "50 %"), (0.0995, "10 %"), (0.0625, "6.2 %"), (0.00125, "0.12 %"), (1e-7, "1e-05 %")],
)
def test_percent(value: float, text: str) -> None:
    assert percent(value) == text


def test_quoted_shows_what_is_not_seen() -> None:
    assert quoted(' \n"\x9b') == '" \\n\\"\\u009b"'


def test_why() -> None:
    assert why_rejected(PLAIN) == ""
    assert "rank 3" in why_rejected(TREE)


def test_a_drafter_that_nobody_asked_for_is_not_named() -> None:
    """Kind: `grammar`, which is always there, is said to draft where no grammar was given."""
    trace = small_trace()
    assert trace.header is not None
    trace.header = replace(trace.header, drafters=("grammar", "suffix"))
    plain = trace.sequences[1]
    assert "drafter suffix," in headline(trace, plain)
    plain.rounds[0] = replace(plain.rounds[0], sources=("grammar",))
    assert "drafter grammar," in headline(trace, plain)


def test_all_are_named_that_drafted_at_any_time() -> None:
    trace = of(replace(TREE, sources=("", *("suffix",) * 4)), replace(TREE, round=1, sources=("", *("recycle",) * 4)))
    trace.header = replace(HEADER, drafters=("lookup", "suffix", "recycle"))
    assert "drafter suffix + recycle," in headline(trace, trace.sequences[0])
