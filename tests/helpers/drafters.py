"""Every drafter there is, made for a target that tests can have: what the contract suite runs."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any

from foredraft.drafters.base import Drafter
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.grammar import GrammarDrafter
from foredraft.drafters.jacobi import JacobiDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.merge import MergeDrafter
from foredraft.drafters.min_survival import MinSurvivalDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.prediction import PredictionDrafter
from foredraft.drafters.recycle import RecycleDrafter
from foredraft.drafters.suffix import SharedTexts, SuffixDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.load import load_part
from foredraft.testing import TableModel
from helpers.engines import VOCAB_SIZE, table_decoder, tiny_decoder, tiny_tokenizer
from helpers.renaming import translated

TABLE = TableModel(order=1, vocab_size=VOCAB_SIZE, seed=5, scale=6.0)
"""A target that soon repeats itself, greedily, so that drafters which copy have something to copy."""


@dataclass(frozen=True)
class World:
    """A target. decoder: makes another decoder of it, with an empty cache. other: one of another model."""

    decoder: Callable[[], CachedDecoder]
    other: Callable[[], CachedDecoder]


WORLDS = {
    "table": World(
        lambda: table_decoder(TABLE)[0],
        lambda: table_decoder(TableModel(order=2, vocab_size=VOCAB_SIZE, seed=6, scale=3.0))[0],
    ),
    "tiny": World(lambda: tiny_decoder("llama", "Q4_0"), lambda: tiny_decoder("qwen2", seed=1)),
}


@dataclass(frozen=True)
class Case:
    """One way of drafting.

    make: a new drafter for a target.
    by_text_alone: what it proposes follows from the tokens of the sequence and nothing else, so that a drafter which
    sees a sequence for the first time proposes the same. Others must only do the same in the same circumstances.
    params: fields of SamplingParams without which it has nothing to propose.
    """

    make: Callable[[World], Drafter]
    by_text_alone: bool
    params: Mapping[str, Any] = field(default_factory=dict)


def _model(world: World) -> Drafter:
    return ModelDrafter(world.decoder(), vocab_size=VOCAB_SIZE, name="model:self")


def _other_model(world: World) -> Drafter:
    return ModelDrafter(world.other(), vocab_size=VOCAB_SIZE, name="model:other")


def _model_tree(world: World) -> Drafter:
    return ModelDrafter(world.decoder(), vocab_size=VOCAB_SIZE, num_branches=3, name="model:tree")


def _cross_vocabulary(world: World) -> Drafter:
    """Every second token has the id of the one before it, and the other way round."""
    order = [token ^ 1 if token < VOCAB_SIZE // 2 * 2 else token for token in range(VOCAB_SIZE)]
    return translated(world.decoder(), tiny_tokenizer(), order)


def _skip(world: World) -> Drafter:
    """A table has no layers: there it is a draft model like others."""
    whole = world.decoder()
    part = load_part(whole, range(1, whole.config.num_layers)) if whole.source else whole
    return ModelDrafter(part, vocab_size=VOCAB_SIZE, name="skip")


def _prediction(world: World) -> Drafter:
    return PredictionDrafter(tiny_tokenizer())


PREDICTION = {"prediction": "and then the man went on, and then the man went over there and on"}

CASES: dict[str, Case] = {
    "none": Case(lambda world: NoDrafter(), by_text_alone=True),
    "lookup": Case(lambda world: LookupDrafter(), by_text_alone=True),
    "suffix": Case(lambda world: SuffixDrafter(), by_text_alone=True),
    "suffix-shared": Case(lambda world: SuffixDrafter(SharedTexts(500)), by_text_alone=False),
    "recycle": Case(lambda world: RecycleDrafter(), by_text_alone=False),
    "prediction": Case(_prediction, by_text_alone=True, params=PREDICTION),
    "grammar": Case(
        lambda world: FallbackDrafter([GrammarDrafter(), SuffixDrafter()]),
        by_text_alone=True,
        params={"regex": "(and then [a-z] the quick brown fox){9}"},
    ),
    "model": Case(_model, by_text_alone=True),
    "model-other": Case(_other_model, by_text_alone=True),
    "model-tree": Case(_model_tree, by_text_alone=True),
    "cross-vocabulary": Case(_cross_vocabulary, by_text_alone=True),
    "skip": Case(_skip, by_text_alone=True),
    "jacobi": Case(lambda world: JacobiDrafter(world.decoder().kernels), by_text_alone=False),
    "fallback": Case(lambda world: FallbackDrafter([SuffixDrafter(), _other_model(world)]), by_text_alone=True),
    "merge": Case(
        lambda world: MergeDrafter([_prediction(world), SuffixDrafter(SharedTexts()), RecycleDrafter()]),
        by_text_alone=False,
        params=PREDICTION,
    ),
    "merge-model": Case(lambda world: MergeDrafter([SuffixDrafter(), _model(world)]), by_text_alone=True),
    "min-survival": Case(lambda world: MinSurvivalDrafter(_model(world), 0.2), by_text_alone=True),
    "supervised": Case(lambda world: SupervisedDrafter(LookupDrafter(), vocab_size=VOCAB_SIZE), by_text_alone=True),
    "supervised-model": Case(lambda world: SupervisedDrafter(_model_tree(world)), by_text_alone=True),
}
"""To add a way of drafting to the contract suite, add it here."""
