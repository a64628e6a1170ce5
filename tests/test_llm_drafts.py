"""Drafters of one's own, predictions and the memory of earlier texts, from the front door."""

import gc
import time
import weakref
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.config import DraftConfig
from foredraft.drafters import (
    DelegatingDrafter,
    DraftContext,
    Drafter,
    DrafterSpec,
    Outcome,
    SequenceView,
    make_drafters,
)
from foredraft.drafters.lookup import LookupDrafter
from foredraft.errors import OptionError
from foredraft.tree import Budget, DraftTree

TEXT = "and then the man and then the"
GREEDY = SamplingParams(max_tokens=20, ignore_eos=True)


class Known(Drafter):
    """Proposes a text that it was given, and notes what it is told."""

    spec = DrafterSpec(name="known")

    def __init__(self, output: Sequence[int]) -> None:
        self._output = tuple(output)
        self.num_observed = 0
        self.ended: list[int] = []

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        trees = []
        for sequence, budget in zip(sequences, budgets, strict=True):
            done = len(sequence.tokens) - sequence.num_prompt_tokens
            rest = self._output[done : done + budget.num_tokens]
            trees.append(DraftTree.chain(sequence.tokens[-1], rest, (0.9,) * len(rest)))
        return trees

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        self.num_observed += 1

    def end(self, sequence_id: int) -> None:
        self.ended.append(sequence_id)


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def test_a_drafter_of_one_s_own(plain: LLM) -> None:
    [expected] = plain.generate(TEXT, GREEDY)
    drafter = Known(expected.token_ids)
    [done] = plain.with_drafts(drafter, num_draft_tokens=4).generate(TEXT, GREEDY)
    assert done.token_ids == expected.token_ids
    assert done.speculation.methods == ("known",)
    assert done.speculation.mean_acceptance_length == 5
    assert (drafter.num_observed, drafter.ended) == (4, [0])
    for several in ([drafter, "lookup"], ["lookup", drafter], (drafter, Path(tiny_file(seed=1)))):
        [done] = plain.with_drafts(several).generate(TEXT, GREEDY)
        assert done.token_ids == expected.token_ids
        assert "known" in done.speculation.methods


class Wrong(Known):
    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        return [DraftTree.chain(10**6) for _ in sequences]


@pytest.mark.parametrize("num_draft_tokens", [2, None])
def test_a_drafter_that_misbehaves_costs_drafts_and_says_so(plain: LLM, num_draft_tokens: int | None) -> None:
    """Kind: what somebody's drafter does wrong ends completions, or is hidden."""
    wrong = plain.with_drafts(Wrong([]), num_draft_tokens=num_draft_tokens)
    several = wrong.generate([TEXT, "the", "a b"], GREEDY)
    expected = plain.generate([TEXT, "the", "a b"], GREEDY)
    assert [done.token_ids for done in several] == [done.token_ids for done in expected]
    for done in several:
        assert done.speculation.num_draft_tokens == 0
        assert "drafter 'known' proposed a tree with root 1000000" in done.speculation.reason
        assert "\n" not in done.speculation.reason
    assert "it is switched off after 3 failures" in wrong.generate(TEXT, GREEDY)[0].speculation.reason
    beside = plain.with_drafts([Wrong([]), "suffix"], num_draft_tokens=2).generate(TEXT * 3, GREEDY)[0]
    assert beside.token_ids == plain.generate(TEXT * 3, GREEDY)[0].token_ids
    assert beside.speculation.num_draft_tokens > 0


@pytest.mark.parametrize("draft", [5, None, [None], [["lookup"]], Known, object(), b"lookup"])
def test_what_is_no_drafter(plain: LLM, draft: object) -> None:
    with pytest.raises(OptionError) as caught:
        plain.with_drafts(draft)  # type: ignore[arg-type]
    assert "\n" not in str(caught.value)


class BeginningLate(DelegatingDrafter):
    """A draft model that is to prefill the last tokens of each prompt only."""

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        for sequence in sequences:
            self.begin_late(sequence, 8)
            assert self.num_uncached_tokens(sequence) <= 8
        return super().propose(sequences, budgets)


def test_a_model_that_begins_late_changes_the_speed_and_not_the_text(smollm2_path: Path) -> None:
    llm = LLM(smollm2_path, draft="none")
    config = DraftConfig(drafters=(str(smollm2_path),))
    context = DraftContext(
        tokenizer=llm.tokenizer,
        vocab_size=llm.tokenizer.vocab_size,
        kernels=llm.decoder.kernels,
        decoder=llm.decoder,
    )
    [model] = make_drafters(config, context)
    assert model.spec.can_begin_late
    late = llm.with_drafts([BeginningLate(model)], num_draft_tokens=3)
    for temperature in (0.0, 0.8):
        params = SamplingParams(max_tokens=32, temperature=temperature, seed=1)
        prompts = ["The river rose for three days, and on the fourth the people of the town", "One, two, three, four,"]
        expected = [completion.token_ids for completion in llm.generate(prompts, params)]
        completions = late.generate(prompts, params)
        assert [completion.token_ids for completion in completions] == expected
        assert sum(completion.speculation.num_accepted_tokens for completion in completions) >= 16


def test_a_prediction_changes_the_speed_and_not_the_text(plain: LLM) -> None:
    [expected] = plain.generate(TEXT, GREEDY)
    params = SamplingParams(max_tokens=20, ignore_eos=True, prediction=expected.text)
    assert plain.generate(TEXT, params)[0].token_ids == expected.token_ids
    for draft in ("prediction", "auto"):
        [done] = plain.with_drafts(draft, num_draft_tokens=4).generate(TEXT, params)
        assert done.token_ids == expected.token_ids
        assert "prediction" in done.speculation.methods
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


def test_what_is_remembered_of_earlier_sequences(plain: LLM, tmp_path: Path) -> None:
    first, second = lengths(plain.with_drafts("suffix", num_draft_tokens=4))
    assert second > first
    first, second = lengths(plain.with_drafts("suffix", num_draft_tokens=4, draft_memory="none"))
    assert second == first
    for memory in (tmp_path / "memory", str(tmp_path / "memory")):
        llm = plain.with_drafts("suffix", num_draft_tokens=4, draft_memory=memory)
        last, engine = lengths(llm), weakref.ref(llm._engine)
        del llm
        deadline = time.perf_counter() + 10.0
        while engine() is not None and time.perf_counter() < deadline:
            gc.collect()  # the thread of the model may still be at the end of its step
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
