"""The page in a real browser, run by `make browser-tests`, which needs Chromium."""

import html
import json
import re
import shutil
import subprocess
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from helpers.traces import HEADER, START, TREE, small_trace

from foredraft.inspect import page
from foredraft.trace import Trace

pytestmark = pytest.mark.browser

_REPORT = """
<script>
window.onerror = message => { document.body.dataset.error = message; };
const press = key => document.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const seen = () => ({
  where: document.getElementById("where").textContent, what: document.getElementById("what").textContent,
  completion: document.getElementById("completion").textContent, cost: document.getElementById("cost").textContent,
  marked: [...document.querySelectorAll("#completion .now")].map(e => e.textContent).join("|"),
  nodes: [...document.querySelectorAll("svg g")].map(e => e.getAttribute("class") + " " + e.textContent),
  rows: document.querySelectorAll("#nodes tr").length, title: document.getElementById("title").textContent,
});
const found = [];
STEPS
document.body.dataset.found = JSON.stringify(found);
</script>
</body>"""


def browse(tmp_path: Path, trace: Trace, steps: str, *, place: str = "") -> list[dict[str, Any]]:
    """What the page shows after each step."""
    browser = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
    assert browser, "these tests need Chromium: apt-get install chromium"
    file = tmp_path / "page.html"
    file.write_text(page(trace).replace("</body>", _REPORT.replace("STEPS", steps)))
    profile = f"--user-data-dir={tmp_path / 'profile'}"
    options = ["--headless", "--no-sandbox", "--disable-gpu", "--disable-dev-shm-usage", profile, "--dump-dom"]
    result = subprocess.run([browser, *options, f"file://{file}{place}"], capture_output=True, timeout=120, check=True)
    dom = result.stdout.decode()
    assert "data-error" not in dom
    [found] = re.findall(r'data-found="([^"]*)"', dom)
    seen: list[dict[str, Any]] = json.loads(html.unescape(found))
    return seen


def test_keys_and_clicks_lead_through_the_rounds(tmp_path: Path) -> None:
    steps = """
    found.push(seen()); press("ArrowRight"); found.push(seen()); press("ArrowRight"); press("Home"); found.push(seen());
    press("End"); found.push(seen()); document.querySelector("#completion span").click(); found.push(seen());
    const sequences = document.getElementById("sequences");
    sequences.value = "1"; sequences.dispatchEvent(new Event("change")); found.push(seen());
    """
    first, second, home, end, clicked, other = browse(tmp_path, small_trace(), steps)
    assert first["where"] == "Round 1 of 2, after 2 tokens"
    assert first["what"] == (
        '1 of 4 drafted tokens were accepted. " two" was rejected: rank 3 (6.3 %) for the target, '
        'which says " three", rank 1 (50 %).'
    )
    assert first["completion"] == " one three<|end|>"
    assert first["marked"] == " one| three"
    assert first["nodes"] == [
        'root "it."',
        'accepted " one"',
        'unreached " won"',
        'rejected " two"',
        'unreached " too"',
        'chosen " three"',
    ]
    assert first["rows"] == 6
    assert "expected 1.50 tokens, got 2" in first["cost"]
    assert second["where"] == "Round 2 of 2, after 4 tokens"
    assert second["what"] == 'Nothing was drafted (asked for); the target says "<|end|>", rank 1 (90 %).'
    assert (home, end, clicked) == (first, second, first)
    assert other["where"] == "Round 1 of 1, after 4 tokens"


def test_a_place_is_kept_and_texts_are_texts(tmp_path: Path) -> None:
    evil = '</script><img src=x onerror="document.body.dataset.error=1">'
    trace = Trace()
    for record in (
        replace(HEADER, model=evil),
        replace(START, prompt=evil),
        replace(TREE, texts=(evil,) * 5, emitted_texts=(evil, evil)),
        replace(TREE, round=1),
    ):
        trace(record)
    [found] = browse(tmp_path, trace, "found.push(seen());", place="#0/2")
    assert found["where"].startswith("Round 2 of 2")
    assert found["title"].startswith(evil)
    assert found["completion"].startswith(evil)
