"""Runs of `foredraft check`: what is right holds, and whatever is wrong is found and shown."""

import io
import json
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from helpers.engines import tiny_file
from rich.console import Console

from foredraft.accept import Accepted, walk
from foredraft.check import Cell, Plan, Report, make_plan, run
from foredraft.check.compare import difference, plain_logits
from foredraft.check.report import show, to_json_dict
from foredraft.config import DraftConfig
from foredraft.llm import LLM, SamplingParams
from foredraft.target import Entry, ForwardResult, ModelTarget
from foredraft.trace import Trace
from foredraft.tree import DraftTree

PROMPTS = ("a b a b a b a", "c d e c d e c")
LOOKUP = DraftConfig(drafters=("lookup",), num_draft_tokens=3)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def plan_of(*cells: Cell) -> Plan:
    return Plan(cells, PROMPTS, max_tokens=12, num_samples=0, rules=())


def shown(report: Report) -> str:
    text = io.StringIO()
    show(report, Console(file=text, width=300))
    return text.getvalue()


def run_wrong(
    llm: LLM,
    monkeypatch: pytest.MonkeyPatch,
    wrong: Callable[[DraftTree, Callable[[int], int]], Accepted],
    *cells: Cell,
) -> Report:
    monkeypatch.setattr("foredraft.accept.rules.walk", wrong)
    return run(llm, plan_of(*cells))


def test_what_is_right_holds(llm: LLM) -> None:
    methods = [("lookup",), (str(tiny_file(seed=1)),)]
    plan = make_plan(methods, prompts=PROMPTS)
    steps: list[tuple[int, int, str]] = []
    chosen = [c for c in plan.cells if c.options != "json"]  # a random model never closes a bracket
    plan = replace(plan, cells=tuple(chosen), max_tokens=8, rules=())
    report = run(llm, plan, lambda *step: steps.append(step))
    assert report.holds, shown(report)
    assert not [result.refused for result in report.cells if result.refused]
    assert all(result.num_completions == 2 and result.num_rounds for result in report.cells)
    assert sum(result.num_accepted_tokens for result in report.cells) > 0
    assert [done for done, _, _ in steps] == list(range(len(chosen) + 1))
    assert "All" in shown(report).splitlines()[-1]
    found = json.loads(json.dumps(to_json_dict(report, model="m", machine={}), allow_nan=False))
    assert found["holds"] is True
    assert len(found["comparisons"]) == len(chosen)


def test_traces_go_to_a_folder(llm: LLM, tmp_path: Path) -> None:
    tree = DraftConfig(drafters=("suffix",), num_draft_tokens=2, acceptance="tree")
    cells = [Cell(LOOKUP, 0.0, "plain", 1), Cell(LOOKUP, 0.8, "plain", 2), Cell(tree, 0.0, "plain", 1)]
    report = run(llm, plan_of(*cells), traces=tmp_path)
    assert sorted(path.name for path in tmp_path.iterdir()) == ["001-lookup-3.jsonl", "002-suffix-2-tree.jsonl"]
    first, second = (Trace.read(path) for path in sorted(tmp_path.iterdir()))
    assert [len(trace.sequences) for trace in (first, second)] == [4, 2]
    rounds = [len(sequence.rounds) for sequence in first.sequences.values()]
    assert sum(rounds) == report.cells[0].num_rounds + report.cells[1].num_rounds


def test_a_part_that_only_one_completion_has_is_a_difference(llm: LLM) -> None:
    params = SamplingParams(max_tokens=3, seed=7)
    [plain], [more] = (llm.generate("a b", one) for one in (params, replace(params, logprobs=1)))
    for pair in ((plain, more), (more, plain)):
        found = difference(llm, "a b", *pair)
        assert found is not None
        assert found.parts
        assert found.divergence is None


def accept_everything(tree: DraftTree, target_token: Callable[[int], int]) -> Accepted:
    """As if a child of each node were right, whatever the target says."""
    node, path = 0, list[int]()
    while (child := next((i for i in range(1, tree.num_nodes) if tree.parents[i] == node), None)) is not None:
        path.append(child)
        node = child
    return Accepted(tuple(path), target_token(node))


def test_a_wrong_acceptor_is_found_with_the_first_divergence(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    cells = [Cell(LOOKUP, temperature, "plain", 1) for temperature in (0.0, 0.8)]
    report = run_wrong(llm, monkeypatch, accept_everything, *cells)
    assert not report.holds
    for result in report.cells:
        assert result.differences
        for fault in result.differences:
            assert {"token_ids", "text"} <= set(fault.parts)
            where = fault.divergence
            assert where is not None
            assert where.plain is not None
            assert where.plain != where.drafted
            params = SamplingParams(max_tokens=12, temperature=result.cell.temperature, seed=7)
            [plain] = llm.generate(fault.prompt, params)
            assert where.plain == plain.token_ids[where.position]
            before = [*llm.tokenizer.encode(fault.prompt), *plain.token_ids[: where.position]]
            logits_V = plain_logits(llm, before)
            assert where.plain_logit == logits_V[where.plain]
            assert where.gap == where.plain_logit - logits_V[where.drafted]
            if result.cell.temperature == 0:
                assert where.gap > 0
    text = shown(report)
    assert "lookup:3, temperature 0, plain" in text
    assert "without speculation" in text
    assert "gap" in text
    assert "completions are not those of plain decoding" in text.splitlines()[-1]
    [first, *_] = to_json_dict(report, model="m", machine={})["comparisons"][0]["differences"]
    assert first["first_divergence"]["gap"] > 0


def test_a_wrong_bonus_is_found(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(tree: DraftTree, target_token: Callable[[int], int]) -> Accepted:
        right = walk(tree, target_token)
        return replace(right, bonus=right.bonus ^ 1) if tree.num_draft_tokens else right

    report = run_wrong(llm, monkeypatch, wrong, Cell(LOOKUP, 0.0, "plain", 4))
    assert [len(result.differences) for result in report.cells] == [2]


def test_rows_that_depend_on_their_company_are_found(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: kernels give a row other bits beside a draft, so that a near tie is broken in another way."""
    right = ModelTarget.forward

    def wrong(self: ModelTarget, entries: Sequence[Entry]) -> ForwardResult:
        return ForwardResult(
            [
                rows if entry.num_rows == 1 else rows + 4 * np.sin(np.arange(rows.shape[1]), dtype=np.float32)
                for rows, entry in zip(right(self, entries).logits_NV, entries, strict=True)
            ]
        )

    monkeypatch.setattr(ModelTarget, "forward", wrong)
    report = run(llm, plan_of(Cell(LOOKUP, 0.0, "plain", 1)))
    [result] = report.cells
    assert result.differences
    assert all(fault.divergence and fault.divergence.gap is not None for fault in result.differences)


def test_what_breaks_off_is_reported_and_the_rest_goes_on(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    def wrong(tree: DraftTree, target_token: Callable[[int], int]) -> Accepted:
        if tree.num_draft_tokens > 1:
            raise IndexError("row 9")
        return walk(tree, target_token)

    report = run_wrong(
        llm,
        monkeypatch,
        wrong,
        Cell(LOOKUP, 0.0, "plain", 1),
        Cell(replace(LOOKUP, num_draft_tokens=1), 0.0, "plain", 1),
    )
    assert [result.failed for result in report.cells] == ["IndexError: row 9", ""]
    assert [result.holds for result in report.cells] == [False, True]
    assert not report.holds
    assert "broke off: IndexError: row 9" in shown(report)


def test_a_completion_that_ends_earlier_differs_at_its_end(llm: LLM) -> None:
    [whole] = llm.generate(PROMPTS[0], SamplingParams(max_tokens=6, ignore_eos=True))
    [part] = llm.generate(PROMPTS[0], SamplingParams(max_tokens=4, ignore_eos=True))
    fault = difference(llm, PROMPTS[0], whole, part)
    assert fault is not None
    assert {"token_ids", "text", "usage"} <= set(fault.parts)
    assert fault.divergence is not None
    assert (fault.divergence.position, fault.divergence.drafted) == (4, None)
    assert (fault.divergence.drafted_text, fault.divergence.gap) == ("(end)", None)


def test_every_part_of_a_completion_counts(llm: LLM) -> None:
    params = SamplingParams(max_tokens=4, ignore_eos=True, logprobs=2)
    [completion] = llm.generate(PROMPTS[0], params)
    assert difference(llm, PROMPTS[0], completion, completion) is None
    usage = replace(completion, usage=replace(completion.usage, completion_tokens=5))
    reason = replace(completion, finish_reason="stop")
    for other, part in ((usage, "usage"), (reason, "finish_reason")):
        fault = difference(llm, PROMPTS[0], completion, other)
        assert fault is not None
        assert part in fault.parts
        assert fault.divergence is None


def test_logprobs_count(llm: LLM) -> None:
    def complete(text: str) -> Sequence[object]:
        return llm.generate(text, SamplingParams(max_tokens=1, ignore_eos=True, logprobs=2))

    [first], [other] = complete(PROMPTS[0]), complete(PROMPTS[1])
    fault = difference(llm, PROMPTS[0], first, other)  # type: ignore[arg-type]
    assert fault is not None
    assert any("logprobs" in part or part == "choices" for part in fault.parts), fault.parts
