"""Drafters of one's own, predictions and the memory of earlier texts, from the front door."""

import gc
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.drafters import DraftOptions, Outcome, RequestView, make_drafters
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.errors import DrafterError, OptionError
from foredraft.tree import Budget, DraftTree

TEXT = "and then the man and then the"
GREEDY = SamplingParams(max_tokens=20, ignore_eos=True)


class Known:
    """Proposes a text that it was given, and notes what it is told."""

    name = "known"
    free = True

    def __init__(self, output: Sequence[int]) -> None:
        self._output = tuple(output)
        self.num_observed = 0
        self.forgotten: list[int] = []

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        trees = []
        for request, budget in zip(requests, budgets, strict=True):
            done = len(request.tokens) - request.num_prompt_tokens
            rest = self._output[done : done + budget.num_tokens]
            trees.append(DraftTree.chain(request.tokens[-1], rest, (0.9,) * len(rest)))
        return trees

    def observe(self, requests: Sequence[RequestView], outcomes: Sequence[Outcome]) -> None:
        self.num_observed += 1

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def test_a_drafter_of_one_s_own(plain: LLM) -> None:
    [expected] = plain.generate(TEXT, GREEDY)
    drafter = Known(expected.token_ids)
    [answer] = plain.with_drafts(drafter, num_draft_tokens=4).generate(TEXT, GREEDY)
    assert answer.token_ids == expected.token_ids
    assert answer.speculation.methods == ("known",)
    assert answer.speculation.mean_acceptance_length == 5
    assert (drafter.num_observed, drafter.forgotten) == (4, [0])
    for several in ([drafter, "lookup"], ["lookup", drafter], (drafter, Path(tiny_file(seed=1)))):
        [answer] = plain.with_drafts(several).generate(TEXT, GREEDY)
        assert answer.token_ids == expected.token_ids
        assert "known" in answer.speculation.methods


def test_a_drafter_that_misbehaves_is_told_in_one_line_and_harms_nobody_else(plain: LLM) -> None:
    class Wrong(Known):
        def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
            return [DraftTree.chain(10**6) for _ in requests]

    wrong = plain.with_drafts(Wrong([]), num_draft_tokens=2)
    for _ in range(2):
        with pytest.raises(DrafterError, match="'known' proposed a tree with root 1000000") as caught:
            wrong.generate(TEXT, GREEDY)
        assert "\n" not in str(caught.value)
    assert plain.generate(TEXT, GREEDY)[0].token_ids


@pytest.mark.parametrize("draft", [5, None, [None], [["lookup"]], Known, object(), b"lookup"])
def test_what_is_no_drafter(plain: LLM, draft: object) -> None:
    with pytest.raises(OptionError) as caught:
        plain.with_drafts(draft)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


class ReadingTheEnd:
    """A draft model that is to read the last tokens of each prompt only."""

    name, free = "late", False

    def __init__(self, drafter: ModelDrafter) -> None:
        self._drafter = drafter
        self.num_unread, self.time_step = drafter.num_unread, drafter.time_step
        self.observe, self.forget = drafter.observe, drafter.forget

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        for request in requests:
            self._drafter.read_only_end(request, 8)
            assert self._drafter.num_unread(request) <= 8
        return self._drafter.propose(requests, budgets)


def test_a_model_that_reads_the_end_only_changes_the_speed_and_not_the_text(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path, draft="none")
    [model] = make_drafters([str(smollm2_path)], DraftOptions(llm.tokenizer, llm.decoder.kernels, memory="none"))
    assert isinstance(model, ModelDrafter)
    engine = llm.with_drafts([ReadingTheEnd(model)], num_draft_tokens=3, draft_memory="none")
    for temperature in (0.0, 0.8):
        params = SamplingParams(max_tokens=32, temperature=temperature, seed=1)
        prompts = ["The river rose for three days, and on the fourth the people of the town", "One, two, three, four,"]
        expected = [completion.token_ids for completion in llm.generate(prompts, params)]
        completions = engine.generate(prompts, params)
        assert [completion.token_ids for completion in completions] == expected
        assert sum(completion.speculation.num_accepted_tokens for completion in completions) >= 16


def test_a_prediction_changes_the_speed_and_not_the_text(plain: LLM) -> None:
    [expected] = plain.generate(TEXT, GREEDY)
    params = SamplingParams(max_tokens=20, ignore_eos=True, prediction=expected.text)
    assert plain.generate(TEXT, params)[0].token_ids == expected.token_ids
    for draft in ("prediction", "auto"):
        [answer] = plain.with_drafts(draft, num_draft_tokens=4).generate(TEXT, params)
        assert answer.token_ids == expected.token_ids
        assert "prediction" in answer.speculation.methods
    unpredicted = plain.with_drafts("prediction", num_draft_tokens=4).generate(TEXT, GREEDY)[0].speculation
    assert unpredicted.num_draft_tokens == 0


def test_a_prediction_nobody_would_use_is_refused(plain: LLM) -> None:
    params = SamplingParams(max_tokens=2, prediction="x")
    for draft in ("lookup", ["suffix", "recycle"], Known([])):
        for number in (None, 2):
            with pytest.raises(OptionError, match="--prediction helps only the drafter of that name") as caught:
                plain.with_drafts(draft, num_draft_tokens=number).generate(TEXT, params)
            assert "grammar" not in str(caught.value)  # which nobody asked for
    for draft in ("none", "auto", ["lookup", "prediction"]):  # without drafts it does no harm
        plain.with_drafts(draft).generate(TEXT, params)


def lengths(llm: LLM) -> list[float | None]:
    """Mean acceptance length of the same prompt asked for twice."""
    return [llm.generate("qwerty", GREEDY)[0].speculation.mean_acceptance_length for _ in range(2)]


def test_what_is_remembered_of_earlier_requests(plain: LLM, tmp_path: Path) -> None:
    first, second = lengths(plain.with_drafts("suffix", num_draft_tokens=4))
    assert second > first
    first, second = lengths(plain.with_drafts("suffix", num_draft_tokens=4, draft_memory="none"))
    assert second == first
    for memory in (tmp_path / "memory", str(tmp_path / "memory")):
        last = lengths(plain.with_drafts("suffix", num_draft_tokens=4, draft_memory=memory))
        gc.collect()
        assert (tmp_path / "memory").exists()
    assert last[0] == last[1] > first  # what the file held


@pytest.mark.parametrize("memory", ["", 5, None])
def test_memories_that_make_no_sense(plain: LLM, memory: object) -> None:
    with pytest.raises(OptionError, match="--draft-memory"):
        plain.with_drafts("suffix", draft_memory=memory)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("draft", "options"),
    [
        ("auto", {"num_draft_branches": 3}),
        (["lookup", "jacobi"], {"draft_vocab_size": 20}),
        ("lookup", {"draft_memory": "file"}),
        ("skip:1", {"draft_memory": "file"}),
    ],
)
def test_options_without_effect_are_refused(plain: LLM, draft: str | list[str], options: dict[str, Any]) -> None:
    """Kind: an option is silently without effect."""
    with pytest.raises(OptionError, match=r"--draft-(branches|vocab|memory) .*add"):
        plain.with_drafts(draft, **options)
    plain.with_drafts("none", **options)  # to compare with


def test_a_subclass_of_ours_needs_a_name_of_its_own(plain: LLM) -> None:
    with pytest.raises(OptionError, match="two drafters are called lookup"):
        plain.with_drafts([LookupDrafter(), "lookup"])
