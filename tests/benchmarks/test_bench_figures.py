"""Every figure of the documents comes from a committed result of a run."""

import copy
import json
import re
from pathlib import Path
from typing import Any

import pytest

from benchmarks import figures
from benchmarks import results as written
from benchmarks.results import ABOUT, FOLDER, read_all

RESULTS = read_all()
MEASURED = re.compile(r"\d (?:tokens/s|tokens per second|GB/s|ms\b)|\b\d+(?:\.\d+)?x\b")
"""What a sentence says that was measured."""


@pytest.mark.parametrize("document", figures.documents(), ids=lambda path: path.name)
def test_the_figures_of_a_document_are_those_of_the_results(document: Path) -> None:
    assert figures.updated(document, RESULTS) == document.read_text(encoding="utf-8"), "python -m benchmarks tables"


def test_all_figures_and_all_results_are_used() -> None:
    used = [name for document in figures.documents() for name in figures.names_in(document)]
    assert sorted(used) == sorted(figures.FIGURES)
    assert {file for file, _ in figures.FIGURES.values()} == set(RESULTS)


@pytest.mark.parametrize("name", RESULTS)
def test_a_result_says_where_it_comes_from(name: str) -> None:
    found = RESULTS[name]
    assert set(ABOUT) <= set(found)
    assert found["command"].startswith(f"python -m benchmarks {found['benchmark']} ")
    assert re.fullmatch(r"[0-9a-f]{12}\+?", found["commit"])
    assert found["machine"]["processor"]
    assert not re.search(r"(?<![\w.<])/\w", json.dumps({key: found[key] for key in ABOUT})), "where files lie"
    assert (FOLDER / f"{name}.json").stat().st_size < 64_000


def outside_of_markers(document: Path) -> list[str]:
    """Lines that are neither made of results nor code."""
    text = figures._BLOCK.sub("", document.read_text(encoding="utf-8"))
    return re.sub(r"^```.*?^```$", "", text, flags=re.DOTALL | re.MULTILINE).splitlines()


@pytest.mark.parametrize("document", figures.documents(), ids=lambda path: path.name)
def test_no_measured_figure_is_typed_by_hand(document: Path) -> None:
    for line in outside_of_markers(document):
        cells = [cell.strip() for cell in line.strip("|").split("|")] if line.startswith("|") else []
        assert sum(bool(re.fullmatch(r"\d+\.\d+", cell)) for cell in cells) < 2, line
        assert not MEASURED.search(line), line


def changed(name: str, change: Any) -> dict[str, Any]:
    """The results with one of them changed."""
    found = copy.deepcopy(RESULTS)
    change(found[name])
    return found


def test_another_result_makes_another_document(tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text("a\n<!-- figures: lengths -->\nold\n<!-- end of figures -->\nb\n")
    before = figures.updated(document, RESULTS)
    assert before.startswith("a\n<!-- figures: lengths -->\n|")
    assert before.endswith("<!-- end of figures -->\nb\n")
    assert "old" not in before

    def longer(result: dict[str, Any]) -> None:
        modes = result["greedy"]["families"]["all"]["modes"]
        modes["foredraft lookup:4"]["mean_acceptance_length"]["median"] = 123.456

    assert "123.46" in figures.updated(document, changed("lengths", longer))
    document.write_text(before)
    assert figures.updated(document, RESULTS) == before


def test_figures_with_a_peer() -> None:
    def with_peer(result: dict[str, Any]) -> None:
        for entry in result["greedy"]["families"].values():
            entry["modes"]["llama.cpp none"] = copy.deepcopy(entry["modes"]["foredraft none"])
            entry["modes"]["llama.cpp draft:4"] = copy.deepcopy(entry["modes"]["foredraft none"])
            entry["modes"]["llama.cpp draft:4"]["speed_up"]["median"] = 0.5
            ratio = {"median": 1.75, "low": 1.0, "high": 2.0, "num": 3}
            entry["ours_to_best_peer"] = {"best_peer": "llama.cpp none", "ratio": {"foredraft auto": ratio}}

    text = figures.speed_up(changed("speculation", with_peer)["speculation"])
    header, _, first, *_ = text.splitlines()
    assert header.split("|")[-2].strip() == "to llama.cpp's best mode"
    assert first.split("|")[-2].strip() == "1.75"
    assert "`draft:4` 0.50" in text
    assert "`none`" not in text

    def beside(result: dict[str, Any]) -> None:
        result["llama.cpp"] = copy.deepcopy(result["foredraft"])
        result["llama.cpp"]["decode_tokens_per_s"]["median"] = 4.25

    rows = figures.kernels(changed("kernels", beside)["kernels"]).splitlines()
    assert rows[0].split("|")[-2].strip() == "llama.cpp"
    assert rows[2].split("|")[-2].strip() in ("4.2", "4.3")


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("<!-- figures: nothing -->\n<!-- end of figures -->\n", "no figures 'nothing'"),
        ("<!-- figures: kernels -->\nno end\n", "no end"),
        ("<!-- end of figures -->\n", "no beginning"),
    ],
)
def test_wrong_markers_are_found(text: str, problem: str, tmp_path: Path) -> None:
    document = tmp_path / "d.md"
    document.write_text(text)
    with pytest.raises(figures.FiguresError, match=problem):
        figures.updated(document, RESULTS)
    with pytest.raises(figures.FiguresError, match=r"needs? results/kernels\.json"):
        figures.made("kernels", {}, document)


def test_results_are_written_so_that_changes_can_be_read(tmp_path: Path) -> None:
    file = tmp_path / "r.json"
    result = {"a": 1 / 3, "b": {"c": {"d": {"e": [1e-9 / 7, 2]}}}, "f": {}, "g": "é"}
    written.write(file, result)
    expected = {"a": 0.33333, "b": {"c": {"d": {"e": [1.4286e-10, 2]}}}, "f": {}, "g": "é"}
    assert json.loads(file.read_text(encoding="utf-8")) == expected
    assert file.read_text(encoding="utf-8").count("\n") == 10
    assert written.command_line(["x", "-m", "some/where/m.gguf"]) == "python -m benchmarks x -m m.gguf"
