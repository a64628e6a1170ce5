"""What `foredraft check` compares."""

import itertools
from pathlib import Path

import pytest

from foredraft.check import Drafting, Plan, make_plan
from foredraft.check.grid import BATCHES, LENGTHS, OPTION_SETS, RULES, TEMPERATURES
from foredraft.check.prompts import BUILT_IN, read_prompts
from foredraft.errors import OptionError
from foredraft.sampling import SamplingParams

METHODS = [("lookup",), ("auto",), ("x.gguf",), ("auto", "x.gguf")]


def drafted_by(plan: Plan, method: tuple[str, ...]) -> set[tuple[int | None, float, str, int]]:
    cells = [cell for cell in plan.cells if cell.drafting.draft == method and cell.drafting.acceptance == "coupled"]
    return {(cell.drafting.num_draft_tokens, cell.temperature, cell.options, cell.batch) for cell in cells}


def test_every_drafter_meets_every_length_temperature_batch_and_option_set() -> None:
    plan = make_plan(METHODS)
    for method in (("lookup",), ("x.gguf",)):
        met = drafted_by(plan, method)
        for length, temperature in itertools.product(LENGTHS, TEMPERATURES):
            assert (length, temperature, "plain", 4) in met
        assert {(4, temperature, "plain", batch) for temperature in TEMPERATURES for batch in BATCHES} <= met
        assert {options for _, _, options, _ in met} == set(OPTION_SETS)
    for method in (("auto",), ("auto", "x.gguf")):
        met = drafted_by(plan, method)
        assert {length for length, *_ in met} == {None}
        assert {options for _, _, options, _ in met} == set(OPTION_SETS)
        assert {(None, temperature, "plain", batch) for temperature in TEMPERATURES for batch in BATCHES} <= met
    assert len(set(plan.cells)) == len(plan.cells)


def test_models_draft_trees_too_and_every_rule_is_tried() -> None:
    plan = make_plan(METHODS)
    trees = {cell.drafting.draft for cell in plan.cells if cell.drafting.num_branches > 1}
    assert trees == {("x.gguf",)}
    for method in METHODS:
        rules = {cell.drafting.acceptance for cell in plan.cells if cell.drafting.draft == method}
        assert rules == {"coupled", *RULES}
    assert plan.rules == RULES
    assert plan.num_samples >= 500


def test_the_quick_plan_is_a_small_one_with_every_drafter() -> None:
    whole, quick = make_plan(METHODS), make_plan(METHODS, quick=True)
    assert len(quick.cells) * 5 < len(whole.cells)
    assert {cell.drafting.draft for cell in quick.cells} == set(METHODS)
    assert {cell.temperature for cell in quick.cells} == set(TEMPERATURES)
    assert len(quick.prompts) < len(whole.prompts)
    assert quick.rules
    assert quick.num_samples
    assert make_plan(METHODS, prompts=["a", "b", "c"], quick=True).prompts == ("a", "b", "c")


@pytest.mark.parametrize("name", OPTION_SETS)
def test_the_option_sets_are_options(name: str) -> None:
    SamplingParams(temperature=0.8, **OPTION_SETS[name])


def test_cells_say_what_they_are() -> None:
    plan = make_plan([("lookup",), ("folder/x.gguf",)])
    descriptions = [cell.describe() for cell in plan.cells]
    assert len(set(descriptions)) == len(descriptions)
    assert "lookup, 1 token, temperature 0, plain, batch 4" in descriptions
    assert "x.gguf, 8 tokens, 2 branches, temperature 0.8, plain, batch 4" in descriptions
    assert Drafting(("a", "b"), 4, acceptance="block").name == "a+b (block)"


def test_prompts_from_files(tmp_path: Path) -> None:
    (tmp_path / "p.txt").write_bytes("one é\r\n\n two \n".encode())
    assert read_prompts(tmp_path / "p.txt") == ("one é", " two ")
    (tmp_path / "p.jsonl").write_text('{"prompt": "a\\nb", "more": 1}\n\n{"prompt": "c"}')
    assert read_prompts(tmp_path / "p.jsonl") == ("a\nb", "c")
    assert len(set(BUILT_IN)) == len(BUILT_IN) == max(BATCHES)


@pytest.mark.parametrize(
    ("name", "content", "said"),
    [
        ("p.txt", b"\n \n", "no prompts"),
        ("p.txt", b"a\xff", "UTF-8"),
        ("p.jsonl", b'{"prompt": "a"}\n{"text": "b"}\n', "line 2"),
        ("p.jsonl", b"hello\n", "line 1"),
        ("p.jsonl", b'{"prompt": ""}\n', "not empty"),
    ],
)
def test_files_that_hold_no_prompts_are_refused(tmp_path: Path, name: str, content: bytes, said: str) -> None:
    (tmp_path / name).write_bytes(content)
    with pytest.raises(OptionError, match=said):
        read_prompts(tmp_path / name)
    with pytest.raises(OptionError, match="cannot read"):
        read_prompts(tmp_path / "missing.txt")
