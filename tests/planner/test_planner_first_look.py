"""How good a draft model is, seen when it is loaded with the target for the first time."""

import dataclasses
from collections.abc import Callable, Sequence
from pathlib import Path

import numpy as np
import pytest
from helpers.engines import tiny_decoder

from foredraft.config import DraftConfig
from foredraft.drafters import DraftContext, make_drafters
from foredraft.drafters.base import Drafter, DrafterSpec, PromptFeatures, SequenceView
from foredraft.drafters.delegating import DelegatingDrafter
from foredraft.errors import ForedraftError
from foredraft.llm import LLM
from foredraft.models.cached_decoder import Entry
from foredraft.models.load import exposing
from foredraft.planner import CalibrationStore, make_auto_planner
from foredraft.planner import make as making
from foredraft.planner.first_look import SAMPLE, agreement
from foredraft.planner.profile import Learned, Profile
from foredraft.tree import Budget, DraftTree


@pytest.fixture(scope="module")
def llm(smollm2_path: Path) -> LLM:
    return LLM(smollm2_path, draft="none")


def drafter_of(llm: LLM, name: str) -> Drafter:
    context = DraftContext(
        tokenizer=llm.tokenizer,
        kernels=llm.decoder.kernels,
        vocab_size=llm.tokenizer.vocab_size,
        decoder=llm.decoder,
    )
    [drafter] = make_drafters(DraftConfig(drafters=(name,)), context)
    return drafter


@pytest.fixture
def itself(llm: LLM, smollm2_path: Path) -> Drafter:
    return drafter_of(llm, str(smollm2_path))


class Wrong(DelegatingDrafter):
    """Says something else than the drafter it asks. silent: says nothing."""

    def __init__(self, drafter: Drafter, *, silent: bool = False) -> None:
        super().__init__(drafter)
        self.spec = DrafterSpec(name="wrong", model_free=False)
        self._silent = silent
        self.ended: list[int] = []

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        [tree] = super().propose(sequences, budgets)
        return [DraftTree.chain(tree.tokens[0], () if self._silent else (tree.tokens[1] ^ 1,))]

    def end(self, sequence_id: int) -> None:
        self.ended.append(sequence_id)
        super().end(sequence_id)


def test_a_model_agrees_with_itself_and_not_with_its_opposite(llm: LLM, itself: Drafter) -> None:
    """At some sixteen places: the rate is known within an eighth."""
    tokens = llm.tokenizer.encode(SAMPLE)
    right, seen = agreement(itself, llm.decoder, tokens)
    assert 16 <= right == seen <= 20
    assert agreement(Wrong(itself), llm.decoder, tokens) == (0, seen)
    silent = Wrong(itself, silent=True)
    assert agreement(silent, llm.decoder, tokens) == (0, 0)
    assert len(silent.ended) == 1
    assert llm.decoder.cache.pool.num_used == 0


def test_a_short_text_shows_nothing(llm: LLM, itself: Drafter) -> None:
    assert agreement(itself, llm.decoder, llm.tokenizer.encode("Too short.")) == (0, 0)


class Told(Drafter):
    """Keeps what it is told of a sequence, and checks that it knows all of it when it is asked."""

    spec = DrafterSpec(name="told", model_free=False, layers=(1,))

    def __init__(self) -> None:
        self.features: list[np.ndarray] = []

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        assert features.start == len(self.features)
        assert len(features.hidden_ND[1]) == features.num_tokens
        self.features.extend(features.hidden_ND[1].copy())

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        [sequence] = sequences
        assert len(self.features) == len(sequence.tokens) - 1
        assert sequence.num_prompt_tokens <= len(sequence.tokens) <= sequence.max_length
        return [DraftTree.chain(sequence.tokens[-1], (3,))]


def test_a_drafter_that_wants_hidden_states_gets_them_of_every_token() -> None:
    """Kind: a head is looked at without what it goes by, or with that of the token behind."""
    decoder, drafter, tokens = exposing(tiny_decoder(), (1,)), Told(), [place % 250 for place in range(60)]
    _, seen = agreement(drafter, decoder, tokens)
    assert seen > 10
    blocks = decoder.cache.open()
    in_one_pass = decoder.forward([Entry(blocks, DraftTree.chain(tokens[0], tuple(tokens[1:])))]).hidden_of(0)[1]
    np.testing.assert_array_equal(drafter.features, in_one_pass[: len(drafter.features)])


def test_it_is_seen_once_and_kept(llm: LLM, itself: Drafter, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: every start takes as long as the first."""
    store, drafter = CalibrationStore(tmp_path), itself

    def learned(profile: Profile | None = None) -> Learned:
        sample = lambda: llm.tokenizer.encode(SAMPLE)  # noqa: E731
        return make_auto_planner([drafter], llm.decoder, store, {"model": "m"}, sample, profile).learned[drafter.name]

    first = learned()
    assert first.greedy_acceptance[0] == first.greedy_acceptance[1] >= 16
    assert first.greedy_gain > 0.0
    looked: Callable[..., tuple[int, int]] = lambda *_: pytest.fail("looked again")  # noqa: E731
    monkeypatch.setattr(making, "agreement", looked)
    assert learned() == first
    known = dataclasses.replace(first, greedy_acceptance=(1.0, 9.0))
    profile = Profile(model="m", tokenizer="", machine={}, key={}, calibrations={}, learned={drafter.name: known})
    assert learned(profile).greedy_acceptance == (1.0, 9.0)


def test_it_belongs_to_one_drafter(llm: LLM, itself: Drafter, tmp_path: Path) -> None:
    """Kind: what was seen of a model is believed of another one of that name."""
    store = CalibrationStore(tmp_path)

    def seen(drafter: Drafter) -> tuple[float, float]:
        made = make_auto_planner([drafter], llm.decoder, store, {"m": 1}, lambda: llm.tokenizer.encode(SAMPLE))
        return made.learned[drafter.name].greedy_acceptance

    most, one = drafter_of(llm, "skip:1-28"), drafter_of(llm, "skip:15")
    assert most.name == one.name
    assert seen(most)[0] < seen(one)[0]
    assert seen(itself) == seen(itself)


def test_a_drafter_that_fails_can_be_loaded(llm: LLM, itself: Drafter, tmp_path: Path) -> None:
    """Kind: a fault that would end one completion keeps the model from being loaded."""

    class Failing(Wrong):
        def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
            raise ForedraftError("not yet")

        def time_step(self, *, num_tokens: int, context: int) -> float:
            return 0.01

    drafter = Failing(itself)
    sample = lambda: llm.tokenizer.encode(SAMPLE)  # noqa: E731
    made = make_auto_planner([drafter], llm.decoder, CalibrationStore(tmp_path), {"m": 1}, sample)
    assert made.learned["wrong"].greedy_acceptance == (0.0, 0.0)
    assert len(drafter.ended) == 1


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
