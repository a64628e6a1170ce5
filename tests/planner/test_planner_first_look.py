"""How good a draft model is, seen when it is loaded with the target for the first time."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from foredraft.drafters import DraftOptions, make_drafters
from foredraft.drafters.base import CostlyDrafter, RequestView
from foredraft.errors import DrafterError
from foredraft.llm import LLM
from foredraft.planner import CalibrationStore, make_auto_planner
from foredraft.planner import make as making
from foredraft.planner.first_look import NUM_PLACES, NUM_TOKENS, SAMPLE, agreement
from foredraft.planner.profile import Learned, Profile, Recommended
from foredraft.tree import Budget, DraftTree


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, draft="none")


@pytest.fixture
def itself(llm: LLM, smollm2_path: Path) -> CostlyDrafter:
    options = DraftOptions(llm.tokenizer, llm.decoder.kernels, llm.tokenizer.vocab_size, decoder=llm.decoder)
    [drafter] = make_drafters([str(smollm2_path)], options)
    return drafter  # type: ignore[return-value]


class Wrong:
    """Says something else than the drafter it asks. silent: says nothing."""

    name, free = "wrong", False

    def __init__(self, drafter: CostlyDrafter, *, silent: bool = False) -> None:
        self._drafter, self._silent = drafter, silent
        self.forgotten: list[int] = []

    def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
        [tree] = self._drafter.propose(requests, budgets)
        return [DraftTree.chain(tree.tokens[0], () if self._silent else (tree.tokens[1] ^ 1,))]

    def forget(self, request_id: int) -> None:
        self.forgotten.append(request_id)


def test_a_model_agrees_with_itself_and_not_with_its_opposite(llm: LLM, itself: CostlyDrafter) -> None:
    tokens = llm.tokenizer.encode(SAMPLE)
    assert len(tokens) > NUM_TOKENS
    right, seen = agreement(itself, llm.decoder, tokens)
    assert right == seen >= NUM_PLACES
    assert agreement(Wrong(itself), llm.decoder, tokens) == (0, seen)  # type: ignore[arg-type]
    silent = Wrong(itself, silent=True)
    assert agreement(silent, llm.decoder, tokens) == (0, 0)  # type: ignore[arg-type]
    assert len(silent.forgotten) == 1


def test_a_short_text_shows_nothing(llm: LLM, itself: CostlyDrafter) -> None:
    assert agreement(itself, llm.decoder, llm.tokenizer.encode("Too short.")) == (0, 0)


def test_it_is_seen_once_and_kept(
    llm: LLM, itself: CostlyDrafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Kind: every start takes as long as the first."""
    store, drafter = CalibrationStore(tmp_path), itself

    def learned(profile: Profile | None = None) -> Learned:
        sample = lambda: llm.tokenizer.encode(SAMPLE)  # noqa: E731
        return make_auto_planner([drafter], llm.decoder, store, {"model": "m"}, sample, profile).learned[drafter.name]

    first = learned()
    assert first.greedy_share[0] == first.greedy_share[1] >= NUM_PLACES
    assert first.greedy_gain > 0.0
    looked: Callable[..., tuple[int, int]] = lambda *_: pytest.fail("looked again")  # noqa: E731
    monkeypatch.setattr(making, "agreement", looked)
    assert learned() == first
    known = dataclasses.replace(first, greedy_share=(1.0, 9.0))
    empty = Profile(model="m", tokenizer="", machine={}, key={}, calibrations={}, learned={}, recommended=Recommended())
    profile = dataclasses.replace(empty, learned={drafter.name: known})
    assert learned(profile).greedy_share == (1.0, 9.0)


def test_it_belongs_to_one_drafter(llm: LLM, itself: CostlyDrafter, tmp_path: Path) -> None:
    """Kind: what was seen of a model is believed of another one of that name."""
    store = CalibrationStore(tmp_path)

    def seen(drafter: CostlyDrafter) -> tuple[float, float]:
        made = make_auto_planner([drafter], llm.decoder, store, {"m": 1}, lambda: llm.tokenizer.encode(SAMPLE))
        return made.learned[drafter.name].greedy_share

    options = DraftOptions(llm.tokenizer, llm.decoder.kernels, llm.tokenizer.vocab_size, decoder=llm.decoder)
    most, one = (make_drafters([name], options)[0] for name in ("skip:1-28", "skip:15"))
    assert most.name == one.name
    assert seen(most)[0] < seen(one)[0]  # type: ignore[arg-type]
    assert seen(itself) == seen(itself)


def test_a_drafter_that_fails_can_be_loaded(llm: LLM, itself: CostlyDrafter, tmp_path: Path) -> None:
    """Kind: a fault that would end one request keeps the model from being loaded."""

    class Failing(Wrong):
        def propose(self, requests: Sequence[RequestView], budgets: Sequence[Budget]) -> list[DraftTree]:
            raise DrafterError("not yet")

        def time_step(self, *, num_tokens: int, context: int) -> float:
            return 0.01

    drafter = Failing(itself)
    sample = lambda: llm.tokenizer.encode(SAMPLE)  # noqa: E731
    made = make_auto_planner([drafter], llm.decoder, CalibrationStore(tmp_path), {"m": 1}, sample)  # type: ignore[list-item]
    assert made.learned["wrong"].greedy_share == (0.0, 0.0)
    assert len(drafter.forgotten) == 1


@pytest.mark.parametrize("content", ["", "{", '{"key": 1, "agreement": [1, 2]}', '{"agreement": [3, 2]}', "HUGE"])
def test_a_damaged_file_is_as_good_as_none(tmp_path: Path, content: str) -> None:
    store = CalibrationStore(tmp_path)
    store.save_agreement({"a": 1}, (3, 5))
    assert store.load_agreement({"a": 1}) == (3, 5)
    assert store.load({"a": 1}) is None
    [file] = tmp_path.iterdir()
    kept = file.read_text(encoding="utf-8")
    file.write_text(kept.replace("5]", "1" + 400 * "0" + "]") if content == "HUGE" else content, encoding="utf-8")
    assert store.load_agreement({"a": 1}) is None
