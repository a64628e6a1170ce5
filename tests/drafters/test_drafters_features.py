"""Hidden states as drafters are told of them: of every committed token, once, and bit for bit those of a plain pass."""

from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, tiny_decoder

from foredraft.cache import PagedCache
from foredraft.drafters.base import DrafterSpec, Outcome, PromptFeatures, SequenceView
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.models.load import exposing
from foredraft.sampling import SamplingParams
from foredraft.testing import OracleDrafter
from foredraft.tree import Budget, DraftTree

LAYERS = (0, 1)
PARAMS = SamplingParams(max_tokens=40, temperature=0.7, seed=5, ignore_eos=True)
PROMPTS = [[i * 7 % 250 for i in range(100)], [5], [9, 8, 7] * 6]


class Recording(OracleDrafter):
    """Keeps the hidden states it is told of, by sequence and place; proposes what is right half of the way."""

    def __init__(self, outputs: dict[int, list[int]], *, whole_prompts: bool = False) -> None:
        super().__init__(outputs)
        self.spec = DrafterSpec(name="recording", layers=LAYERS, needs_prompt_features=whole_prompts)
        self.told: dict[int, dict[int, list[np.ndarray]]] = {}
        self.tokens: dict[int, list[int]] = {}

    def propose(self, sequences: Sequence[SequenceView], budgets: Sequence[Budget]) -> list[DraftTree]:
        """A branch that is wrong before the one that is right, so that accepted nodes do not lie in a row."""
        for sequence in sequences:
            assert max(self.told.get(sequence.id, {-1: []})) in (len(sequence.tokens) - 2, -1)
        trees = super().propose(sequences, budgets)
        return [_with_a_wrong_branch(tree) if tree.num_draft_tokens > 2 else tree for tree in trees]

    def begin(self, sequence: SequenceView, features: PromptFeatures) -> None:
        super().begin(sequence, features)
        places = range(features.start, features.start + features.num_tokens)
        self._keep(sequence, places, [features.hidden_ND[layer] for layer in LAYERS])

    def observe(self, sequences: Sequence[SequenceView], outcomes: Sequence[Outcome]) -> None:
        super().observe(sequences, outcomes)
        for sequence, outcome in zip(sequences, outcomes, strict=True):
            assert all(len(outcome.hidden_ND[layer]) == outcome.tree.num_nodes for layer in LAYERS)
            nodes = [0, *outcome.path]
            root = len(sequence.tokens) - len(outcome.path) - 1
            if sequence.tokens[root - 1 :][: len(nodes)] == [outcome.tree.tokens[node] for node in nodes]:
                root -= 1  # there is a bonus
            self._keep(sequence, range(root, root + len(nodes)), [outcome.hidden_ND[layer][nodes] for layer in LAYERS])

    def _keep(self, sequence: SequenceView, places: range, hidden: list[np.ndarray]) -> None:
        told = self.told.setdefault(sequence.id, {})
        for index, place in enumerate(places):
            assert place not in told, "a token was told twice"
            told[place] = [states_ND[index].copy() for states_ND in hidden]
        self.tokens[sequence.id] = list(sequence.tokens)


def _with_a_wrong_branch(tree: DraftTree) -> DraftTree:
    right = tree.tokens[1:-1]
    wrong = (right[0] + 1) % 250
    return DraftTree((tree.tokens[0], wrong, *right), (-1, 0, 0, *range(2, len(right) + 1)))


def exact_states(decoder: CachedDecoder, tokens: Sequence[int]) -> list[np.ndarray]:
    """Of a pass over the whole text, in a cache of its own."""
    config, cache = decoder.config, decoder.cache
    own = PagedCache(
        config.num_layers,
        config.num_kv_heads,
        cache.storage.values.shape[-1],
        decoder.kernels.cache_dtype,
        num_positions=512,
    )
    looking = CachedDecoder(config, decoder.compiled, decoder.kernels, hidden_layers=LAYERS, cache=own)
    root, *rest = tokens
    states = looking.forward([Entry(own.open(), DraftTree.chain(root, tuple(rest)), "none")]).hidden_of(0)
    return [states[layer].copy() for layer in LAYERS]


def check(drafter: Recording, decoder: CachedDecoder, number: int, *, first: int) -> None:
    """All from the first place up to the root, and each as in a plain pass."""
    told, tokens = drafter.told[number], drafter.tokens[number]
    assert sorted(told) == list(range(first, len(tokens) - 1))
    exact = exact_states(decoder, tokens)
    for place, states in told.items():
        for found, layer in zip(states, exact, strict=True):
            assert found.tobytes() == layer[place].tobytes()


@pytest.mark.parametrize("format", ["F32", "Q4_0"])
@pytest.mark.parametrize("wrapped", [False, True])
def test_every_committed_token_is_told_once_with_the_states_of_a_plain_pass(format: str, wrapped: bool) -> None:
    """Whatever is drafted and rejected, and in whatever chunks the prompts were computed."""
    plain = [output(done) for done in run(make_engine(tiny_decoder("llama", format)), PROMPTS, PARAMS)]
    drafter = Recording(dict(enumerate(plain)))
    decoder = exposing(tiny_decoder("llama", format), LAYERS)
    outer = FallbackDrafter([SupervisedDrafter(drafter), LookupDrafter()]) if wrapped else drafter
    outputs = run(make_engine(decoder, outer, max_batched_tokens=32), PROMPTS, PARAMS)
    assert [output(done) for done in outputs] == plain
    assert sum(done.counts.num_accepted_tokens for done in outputs) > 40
    assert sum(done.counts.num_draft_tokens - done.counts.num_accepted_tokens for done in outputs) > 10
    for number in range(len(PROMPTS)):
        check(drafter, decoder, number, first=0)


@pytest.mark.parametrize("whole_prompts", [False, True])
def test_a_hit_in_the_prefix_cache_means_no_features_unless_they_are_needed(whole_prompts: bool) -> None:
    prompts = [PROMPTS[0], [*PROMPTS[0], 3, 4], PROMPTS[0][:97]]
    plain = [output(done) for prompt in prompts for done in run(make_engine(tiny_decoder()), [prompt], PARAMS)]
    drafter = Recording(dict(enumerate(plain)), whole_prompts=whole_prompts)
    decoder = exposing(tiny_decoder(), LAYERS)
    engine = make_engine(decoder, drafter)
    for number, prompt in enumerate(prompts):
        [done] = run(engine, [prompt], PARAMS)
        assert output(done) == plain[number]
        found = 0 if whole_prompts or number == 0 else 96  # whole blocks of 16
        check(drafter, decoder, number, first=found)
