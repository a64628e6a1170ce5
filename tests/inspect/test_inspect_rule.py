"""A trace says by which rule drafts were accepted, where that changes the text."""

import json
import re
from dataclasses import replace

import pytest
from helpers.traces import HEADER, START, TREE

from foredraft.inspect import page
from foredraft.inspect.words import headline
from foredraft.trace import Trace


@pytest.mark.parametrize(
    ("name", "temperature", "expected"),
    [
        ("coupled", 1.0, ""),
        ("block", 0.0, ""),
        ("block", 0.5, "acceptance block (equal in distribution)"),
        ("threshold:eps=0.1", 0.0, "lossy acceptance threshold:eps=0.1"),
        ("typical:eps=0.09,delta=0.3", 0.0, ""),
        ("typical:eps=0.09,delta=0.3", 1.0, "lossy acceptance typical:eps=0.09,delta=0.3"),
        ("of a later version", 1.0, "acceptance of a later version"),
        ("\x1b[2J", 1.0, "acceptance \\u001b[2J"),
        (None, 1.0, "acceptance None"),
    ],
)
def test_a_rule_that_changes_the_text_is_named(name: object, temperature: float, expected: str) -> None:
    """Kind: a text that is not the target's own is shown as if it were."""
    trace = Trace()
    header = replace(HEADER, settings={**HEADER.settings, "acceptance": name})
    for record in (header, replace(START, params={**START.params, "temperature": temperature}), TREE):
        trace(record)
    [sequence] = trace.sequences.values()
    assert ("acceptance " in headline(trace, sequence).replace("mean acceptance length", "")) == bool(expected)
    assert expected in headline(trace, sequence)
    [found] = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', page(trace), re.DOTALL)
    assert json.loads(found)["sequences"][0]["rule"] == expected


def test_a_trace_without_a_rule_is_of_the_default() -> None:
    trace = Trace()
    for record in (HEADER, START, TREE):
        trace(record)
    [sequence] = trace.sequences.values()
    assert "rule" not in HEADER.settings
    assert "lossy" not in headline(trace, sequence)
