import json
from pathlib import Path

import pytest

from benchmarks.records import Cell, Records

SETTINGS = {"model": {"name": "a"}, "modes": ("none", "lookup")}


def cell(prompt: str, seed: int | None = None) -> Cell:
    return {"prompt": prompt, "family": "f", "temperature": 0.0, "seed": seed, "runs": {"text": "\u2028\x85"}}


def test_a_run_goes_on_where_it_stopped(tmp_path: Path) -> None:
    first = Records(tmp_path / "deep" / "records.jsonl", SETTINGS)
    first.open()
    first.add(cell("f/1"))
    second = Records(first.path, SETTINGS)
    second.open()
    second.add(cell("f/2", 7))
    third = Records(first.path, SETTINGS)
    third.open()
    assert third.cells == [cell("f/1"), cell("f/2", 7)]
    assert third.by_key().keys() == {("f/1", 0.0, None), ("f/2", 0.0, 7)}


def test_half_a_line_is_cut_off(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl", SETTINGS)
    records.open()
    records.add(cell("f/1"))
    whole = records.path.read_bytes()
    records.path.write_bytes(whole + json.dumps(cell("f/2")).encode()[:20])
    again = Records(records.path, SETTINGS)
    again.open()
    assert again.cells == [cell("f/1")]
    assert records.path.read_bytes() == whole


def test_other_settings_are_refused_and_named(tmp_path: Path) -> None:
    records = Records(tmp_path / "records.jsonl", SETTINGS)
    records.open()
    with pytest.raises(ValueError, match=r"other settings \(max_tokens, modes\)"):
        Records(records.path, {**SETTINGS, "modes": ("none",), "max_tokens": 1}).open()
