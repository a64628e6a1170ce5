"""What `foredraft check` compares."""

import itertools

import pytest

from foredraft.check import Plan, make_plan
from foredraft.check.grid import BATCHES, LENGTHS, OPTION_SETS, RULES, TEMPERATURES
from foredraft.check.prompts import BUILT_IN
from foredraft.sampling import SamplingParams

METHODS = [("lookup",), ("auto",), ("x.gguf",), ("auto", "x.gguf")]


def drafted_by(plan: Plan, method: tuple[str, ...]) -> set[tuple[int | None, float, str, int]]:
    cells = [cell for cell in plan.cells if cell.config.drafters == method and cell.config.acceptance == "coupled"]
    return {(cell.config.num_draft_tokens, cell.temperature, cell.options, cell.batch) for cell in cells}


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
    trees = {cell.config.drafters for cell in plan.cells if cell.config.num_branches > 1}
    assert trees == {("x.gguf",)}
    for method in METHODS:
        rules = {cell.config.acceptance for cell in plan.cells if cell.config.drafters == method}
        assert rules == {"coupled", *RULES}
    assert plan.rules == RULES
    assert plan.num_samples >= 500


def test_the_quick_plan_is_a_small_one_with_every_drafter() -> None:
    whole, quick = make_plan(METHODS), make_plan(METHODS, quick=True)
    assert len(quick.cells) * 5 < len(whole.cells)
    assert {cell.config.drafters for cell in quick.cells} == set(METHODS)
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
    assert "lookup:1, temperature 0, plain, batch 4" in descriptions
    assert "x.gguf:8 x2, temperature 0.8, plain, batch 4" in descriptions
    assert "x.gguf:4 (block), temperature 0, plain, batch 4" in descriptions
    assert {cell.drafters for cell in plan.cells} == {"lookup", "x.gguf"}


def test_the_prompts_of_our_own_fill_a_batch() -> None:
    assert len(set(BUILT_IN)) == len(BUILT_IN) == max(BATCHES)
