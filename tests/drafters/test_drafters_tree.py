"""Trees from a draft model: which nodes they hold, how many passes they take, and that nothing is lost."""

import math

import numpy as np
import pytest
from helpers.drafting import View
from helpers.engines import make_engine, result, run, table_decoder, tiny_decoder, tiny_tokenizer
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft.drafters.model import ModelDrafter
from foredraft.kernels.reference import ReferenceKernels
from foredraft.sampling import Noise, SamplingParams, coupled_chances, top_perturbed
from foredraft.testing import TableModel
from foredraft.tree import Budget, DraftTree

V = 40
MODEL = TableModel(1000, V, seed=2)  # all of the text counts, so nothing in the cache may be wrong


def survivals(tree: DraftTree) -> list[float]:
    return [math.prod(tree.confidence[above] for above in (0, *tree.path(node))) for node in range(tree.num_nodes)]


def best_tree(view: View, num_tokens: int, num_branches: int) -> dict[tuple[int, ...], float]:
    """The likeliest paths at temperature 0, found by looking at all: tokens to survival."""
    whole = SamplingParams(temperature=1.0)
    found: dict[tuple[int, ...], float] = {}
    edge = {(): 1.0}
    while len(found) < num_tokens:
        path = max(edge, key=lambda path: edge[path])
        survival = edge.pop(path)
        if path:
            found[path] = survival
        probs = MODEL.probs([*view.tokens, *path], whole)
        for token in np.argsort(-probs, kind="stable")[:num_branches].tolist():
            edge[*path, token] = survival * probs[token]
    return found


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_the_likeliest_nodes_are_drafted(seed: int) -> None:
    random = np.random.default_rng(seed)
    num_tokens, num_branches = int(random.integers(1, 14)), int(random.integers(1, 5))
    decoder, _ = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V, num_branches=num_branches)
    view = View(random.integers(V, size=random.integers(1, 40)).tolist())
    for _ in range(3):
        [tree] = drafter.propose([view], [Budget(num_tokens)])
        paths = {tuple(tree.tokens[above] for above in tree.path(node)): node for node in range(1, tree.num_nodes)}
        expected = best_tree(view, num_tokens, num_branches)
        assert paths.keys() == expected.keys()
        for path, node in paths.items():
            assert survivals(tree)[node] == pytest.approx(expected[path])
        node = int(random.integers(tree.num_nodes))
        view.tokens.extend(tree.tokens[above] for above in tree.path(node))
        view.tokens.append(int(random.integers(V)))


@settings(max_examples=30)
@given(seed=st.integers(0, 2**32 - 1))
def test_children_are_the_first_choices_under_the_noise(seed: int) -> None:
    random = np.random.default_rng(seed)
    decoder, _ = table_decoder(MODEL)
    params = SamplingParams(seed=seed, temperature=float(random.choice([0.3, 1.0])), top_k=int(random.choice([0, 5])))
    view = View([1, 2, 3], params=params, sample_index=int(random.integers(3)))
    [tree] = ModelDrafter(decoder, vocab_size=V, num_branches=3).propose([view], [Budget(12)])
    assert tree.num_draft_tokens == 12
    assert not tree.is_chain
    for node in range(tree.num_nodes):
        tokens = [*view.tokens, *(tree.tokens[above] for above in tree.path(node))]
        noise = Noise(seed, view.sample_index, len(tokens))
        expected = top_perturbed(MODEL.logits(tokens), params, noise, 3)
        children = [tree.tokens[child] for child in tree.children(node)]
        assert children == list(expected[: len(children)])
        confidences = [tree.confidence[child] for child in tree.children(node)]
        assert confidences == sorted(confidences, reverse=True)
        assert sum(confidences) <= 1 + 1e-9


def test_one_pass_a_level() -> None:
    decoder, forward = table_decoder(MODEL)
    drafter = ModelDrafter(decoder, vocab_size=V, num_branches=3)
    view = View([1, 2])
    drafter.propose([view], [Budget(3)])
    for num_tokens in (1, 4, 8, 16):
        forward.num_passes = 0
        [tree] = drafter.propose([view], [Budget(num_tokens)])
        assert max(tree.depths) <= forward.num_passes <= max(tree.depths) + 1
    assert len(forward.last_rows) > 1
    # What is accepted of a tree is not run again, though it lay elsewhere in the cache.
    deepest = max(range(tree.num_nodes), key=lambda node: (tree.depths[node], node))
    view.tokens.extend([*(tree.tokens[above] for above in tree.path(deepest)), 9])
    assert drafter.num_uncached_tokens(view) <= 1


def test_a_tree_ends_where_it_does_not_pay() -> None:
    decoder, forward = table_decoder(TableModel(1000, V, seed=2, scale=3.0))
    drafter = ModelDrafter(decoder, vocab_size=V, num_branches=3)
    view = View([1, 2])
    [whole] = drafter.propose([view], [Budget(32)])
    passes = forward.num_passes
    bound = sorted(survivals(whole))[16]
    forward.num_passes = 0
    [cut] = drafter.propose([view], [Budget(32, min_survival=bound)])
    assert min(survivals(cut)[parent] for parent in cut.parents[1:]) >= bound
    assert {node for node in survivals(whole) if node >= bound} <= set(survivals(cut))
    assert forward.num_passes < passes


@pytest.mark.parametrize("temperature", [0.0, 0.5, 1.0])
def test_chances_are_those_of_a_target_that_differs_by_gumbel_noise(temperature: float) -> None:
    """The formula against what it claims, counted over many such targets."""
    random = np.random.default_rng(0)
    logits = (2 * random.standard_normal(12)).astype(np.float32)
    noise = (3, 0, 5)
    params = SamplingParams(temperature=temperature, seed=3)
    ids = np.array(top_perturbed(logits, params, Noise(*noise), 12), np.int32)
    first = ReferenceKernels().token_probability(logits, int(ids[0]), 0.0)
    chances = coupled_chances(first, logits, ids, ids, temperature, noise)
    others = logits + random.gumbel(size=(20000, 12))
    raised = others + temperature * Noise(*noise)(np.arange(12))
    shares = np.bincount(raised.argmax(axis=1), minlength=12) / 20000
    np.testing.assert_allclose(chances, shares[ids], atol=0.015)


@pytest.mark.parametrize("temperature", [0.0, 0.8])
@pytest.mark.parametrize("num_branches", [1, 2, 4])
def test_trees_change_nothing(temperature: float, num_branches: int) -> None:
    """And a drafter that is the target is always right, over many rounds (its cache never falls behind)."""
    prompts = [[1, 2, 3], list(range(40)), [5] * 20]
    params = [SamplingParams(max_tokens=60, temperature=temperature, seed=i, ignore_eos=True) for i in range(3)]
    plain = [result(sequence) for sequence in run(make_engine(tiny_decoder(seed=1)), prompts, params)]
    for seed in (1, 2):
        drafter = ModelDrafter(
            tiny_decoder(seed=seed), vocab_size=tiny_tokenizer().vocab_size, num_branches=num_branches
        )
        done = run(make_engine(tiny_decoder(seed=1), drafter, num_draft_tokens=6), prompts, params)
        assert [result(sequence) for sequence in done] == plain
        if seed == 1 and num_branches == 1:
            for sequence in done:
                assert sequence.counts.num_accepted_tokens == sequence.counts.num_draft_tokens
        if seed == 1:
            assert all(sequence.counts.num_accepted_tokens >= sequence.counts.num_rounds - 1 for sequence in done)
