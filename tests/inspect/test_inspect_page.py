"""A trace as a page: one file, whatever is in the texts. What a browser makes of it: test_inspect_browser.py."""

import json
import re
from dataclasses import replace

from helpers.traces import HEADER, START, TREE, small_trace

from foredraft.inspect import page
from foredraft.trace import Trace


def data(html: str) -> object:
    [found] = re.findall(r'<script type="application/json" id="trace">(.*?)</script>', html, re.DOTALL)
    return json.loads(found)


def test_the_page_holds_the_trace() -> None:
    found = data(page(small_trace()))
    assert isinstance(found, dict)
    assert found["header"]["model"] == "m.gguf"
    assert [len(sequence["rounds"]) for sequence in found["sequences"]] == [2, 1]
    assert found["sequences"][0]["rounds"][0]["texts"] == list(TREE.texts)


def test_no_text_breaks_out_of_the_page() -> None:
    evil = "</script><script>alert(1)</script><!-- & \u2028"
    trace = Trace()
    for record in (replace(HEADER, model=evil), replace(START, prompt=evil), replace(TREE, texts=(evil,) * 5)):
        trace(record)
    html = page(trace)
    assert html.count("<script") == 2
    found = data(html)
    assert isinstance(found, dict)
    assert found["header"]["model"] == found["sequences"][0]["rounds"][0]["texts"][0] == evil


def test_the_page_needs_nothing_else() -> None:
    html = page(small_trace())
    assert "default-src 'none'" in html
    assert not re.findall(r"\b(?:src|href)=|@import|url\(", html)
    assert re.findall(r"https?://[^\"' ]+", html) == ["http://www.w3.org/2000/svg"]  # a name, not a place
