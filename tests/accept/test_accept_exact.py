"""The rules that are equal in distribution, integrated exactly: all draws, all decisions."""

import itertools
from collections import defaultdict
from collections.abc import Callable

import numpy as np
import pytest
from helpers.chances import Course, courses, distribution

from foredraft.accept import Accepted, block, rejection, traversal
from foredraft.errors import ForedraftError
from foredraft.sampling import SamplingParams, filtered_probs
from foredraft.testing import TableModel
from foredraft.tree import DraftTree

Context = tuple[int, ...]
Probs = Callable[[Context], np.ndarray]


def table(vocab_size: int, seed: int, *, zeros: float = 0.0, one_hot: bool = False) -> Probs:
    """A distribution for each context; some tokens may have no chance, as after a filter."""
    known: dict[Context, np.ndarray] = {}

    def probs(context: Context) -> np.ndarray:
        if context not in known:
            random = np.random.default_rng([seed, len(context), *context])
            row = random.gamma(0.7, size=vocab_size) + 1e-3
            row[random.random(vocab_size) < zeros] = 0.0
            if one_hot or not row.any():
                row = np.eye(vocab_size)[int(random.integers(vocab_size))]
            known[context] = row / row.sum()
        return known[context]

    return probs


def texts(tree: DraftTree) -> list[Context]:
    return [tuple(tree.tokens[i] for i in tree.path(node)) for node in range(tree.num_nodes)]


def drafted_chain(course: Course, draft: Probs, length: int) -> DraftTree:
    """A chain drawn token by token, as a model drafts."""
    tokens: Context = ()
    rows: list[np.ndarray | None] = [None]
    for _ in range(length):
        rows.append(draft(tokens))
        tokens = (*tokens, course.draw(draft(tokens)))
    return DraftTree((0, *tokens), tuple(range(-1, length)), draft_probs=tuple(rows))


def drafted_tree(course: Course, draft: Probs, shape: tuple[int, ...]) -> DraftTree:
    """A tree whose siblings are drawn without replacement; fewer where the drafter has no other token."""
    tokens, parents, rows, found = [0], [-1], [None], [()]
    level = [0]
    for num_children in shape:
        below = []
        for parent in level:
            row = draft(found[parent])
            for _ in range(min(num_children, np.count_nonzero(row))):
                token = course.draw(row)
                below.append(len(tokens))
                tokens.append(token)
                parents.append(parent)
                rows.append(row / row.sum())
                found.append((*found[parent], token))
                row = np.where(np.arange(row.size) == token, 0.0, row)
        level = below
    return DraftTree(tuple(tokens), tuple(parents), draft_probs=tuple(rows))


def emitted(tree: DraftTree, target: Probs, rule: Callable[..., Accepted], course: Course) -> Context:
    at = texts(tree)
    return rule(tree, lambda node: target(at[node]), course).tokens(tree)


def assert_equal_in_distribution(found: dict[Context, float], target: Probs, vocab_size: int, depth: int) -> None:
    """Each prefix of what rounds emit is as likely as in plain decoding.

    A round may emit fewer tokens; those that follow come from the target's own distribution in later rounds, which is
    what makes up the rest of a prefix here.
    """
    assert sum(found.values()) == pytest.approx(1.0, abs=1e-12)
    for length in range(1, depth + 1):
        got: dict[Context, float] = defaultdict(float)
        for tokens, probability in found.items():
            missing = length - len(tokens)
            for rest in itertools.product(range(vocab_size), repeat=max(missing, 0)):
                text = (*tokens, *rest)[:length]
                got[text] += probability * chain_probability(target, text, len(tokens))
        for text in itertools.product(range(vocab_size), repeat=length):
            assert got.get(text, 0.0) == pytest.approx(chain_probability(target, text, 0), abs=1e-12)


def chain_probability(target: Probs, text: Context, start: int) -> float:
    probability = 1.0
    for index in range(min(start, len(text)), len(text)):
        probability *= target(text[:index])[text[index]]
    return probability


PAIRS = {
    "alike": (table(3, 1), table(3, 2)),
    "filtered": (table(4, 3, zeros=0.4), table(4, 4, zeros=0.3)),
    "the same": (table(3, 5), table(3, 5)),
    "a sure drafter": (table(3, 6), table(3, 7, one_hot=True)),
    "a sure target": (table(3, 8, one_hot=True), table(3, 9)),
}


@pytest.mark.parametrize("rule", [rejection, block])
@pytest.mark.parametrize("length", [0, 1, 2, 3])
@pytest.mark.parametrize("pair", PAIRS)
def test_chains(rule: Callable[..., Accepted], length: int, pair: str) -> None:
    """Kind: outputs are biased to the drafter, in the first token or in a later one."""
    target, draft = PAIRS[pair]
    size = target(()).size
    found = distribution(lambda course: emitted(drafted_chain(course, draft, length), target, rule, course))
    assert_equal_in_distribution(found, target, size, length + 1)


@pytest.mark.parametrize("seed", range(6))
@pytest.mark.parametrize("rule", [rejection, block])
def test_chains_of_random_tables(rule: Callable[..., Accepted], seed: int) -> None:
    target, draft = table(5, seed, zeros=0.2), table(5, seed + 100, zeros=0.2)
    found = distribution(lambda course: emitted(drafted_chain(course, draft, 2), target, rule, course))
    assert_equal_in_distribution(found, target, 5, 3)


@pytest.mark.parametrize("shape", [(2,), (3,), (4,), (2, 2), (3, 1), (1, 3), (2, 1, 1)])
@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rule", [rejection, traversal])
def test_trees_drawn_without_replacement(rule: Callable[..., Accepted], shape: tuple[int, ...], seed: int) -> None:
    """Kind: siblings are taken for draws of their own, so that later ones are accepted too often."""
    target, draft = table(4, seed, zeros=0.15), table(4, seed + 50, zeros=0.15)
    if len(shape) > 1:
        target, draft = table(3, seed), table(3, seed + 50)
    found = distribution(lambda course: emitted(drafted_tree(course, draft, shape), target, rule, course))
    assert_equal_in_distribution(found, target, target(()).size, len(shape) + 1)


@pytest.mark.parametrize("rule", [rejection, block])
@pytest.mark.parametrize("tokens", [(0, 1, 2), (2, 2, 0), (1,), (2, 0)])
def test_chains_that_were_not_drawn(rule: Callable[..., Accepted], tokens: Context) -> None:
    """Kind: a draft by argmax, lookup or beam search is judged by a softmax it was not drawn from."""
    target = table(3, 20)
    tree = DraftTree.chain(0, tokens)
    found = distribution(lambda course: emitted(tree, target, rule, course))
    assert_equal_in_distribution(found, target, 3, len(tokens) + 1)


@pytest.mark.parametrize("rule", [rejection, traversal])
def test_trees_of_children_that_were_not_drawn(rule: Callable[..., Accepted]) -> None:
    """Kind: a tree of the likeliest tokens at a temperature above 0."""
    target = table(4, 21)
    tree = DraftTree((0, 1, 2, 3, 0, 1, 1, 2), (-1, 0, 0, 0, 1, 1, 2, 4))
    found = distribution(lambda course: emitted(tree, target, rule, course))
    assert_equal_in_distribution(found, target, 4, 4)


def test_a_row_that_was_left_out_costs_acceptance_only() -> None:
    """Kind: where the distribution of a draw is missing, another rule is applied in silence.

    A token without one is judged as one that was not drawn, which is exact for any token whatever made it.
    """
    target, draft = table(4, 22), table(4, 23)

    def run(course: Course, *, missing: tuple[int, ...]) -> tuple[Context, int]:
        tree = drafted_chain(course, draft, 2)
        rows = tuple(None if node in missing else row for node, row in enumerate(tree.draft_probs))
        tree = DraftTree(tree.tokens, tree.parents, draft_probs=rows)
        at = texts(tree)
        accepted = rejection(tree, lambda node: target(at[node]), course)
        return accepted.tokens(tree), accepted.num_accepted

    means = []
    for missing in ((), (1,), (2,), (1, 2)):
        found = distribution(lambda course, missing=missing: run(course, missing=missing))
        texts_only: dict[Context, float] = defaultdict(float)
        for (tokens, _), probability in found.items():
            texts_only[tokens] += probability
        assert_equal_in_distribution(texts_only, target, 4, 3)
        means.append(sum(number * probability for (_, number), probability in found.items()))
    assert means[0] > max(means[1:3])
    assert min(means[1:3]) > means[3]


@pytest.mark.parametrize("rule", [rejection, traversal])
def test_mixed_children_of_one_node(rule: Callable[..., Accepted]) -> None:
    """One child was looked up, the next was drawn among the other tokens."""
    target, draft = table(4, 24), table(4, 25)

    def run(course: Course) -> Context:
        row = np.where(np.arange(4) == 2, 0.0, draft(()))
        row = row / row.sum()
        tree = DraftTree((0, 2, course.draw(row)), (-1, 0, 0), draft_probs=(None, None, row))
        return emitted(tree, target, rule, course)

    assert_equal_in_distribution(distribution(run), target, 4, 2)


# --- what a wrong rule or a wrong drafter looks like ---


def looks_wrong(run: Callable[[Course], Context], target: Probs, vocab_size: int, depth: int) -> bool:
    try:
        assert_equal_in_distribution(distribution(run), target, vocab_size, depth)
    except AssertionError:
        return True
    return False


@pytest.mark.parametrize("rule", [rejection, block])
def test_the_integration_finds_biased_drafting(rule: Callable[..., Accepted]) -> None:
    """The controls: each must fail, or the tests above show nothing."""
    target, draft = table(3, 30), table(3, 31)

    def argmax_named_a_draw(course: Course) -> Context:
        tree = DraftTree((0, int(draft(()).argmax())), (-1, 0), draft_probs=(None, draft(())))
        return emitted(tree, target, rule, course)

    def from_another_distribution(course: Course) -> Context:
        tree = DraftTree((0, course.draw(draft(()))), (-1, 0), draft_probs=(None, np.full(3, 1 / 3)))
        return emitted(tree, target, rule, course)

    def dropped_where_unlikely(course: Course) -> Context:
        tree = drafted_chain(course, draft, 2)
        likely = [0, *(n for n in (1, 2) if all(tree.draft_probs[i][tree.tokens[i]] > 0.3 for i in range(1, n + 1)))]
        return emitted(tree.restricted(likely), target, rule, course)

    for run in (argmax_named_a_draw, from_another_distribution, dropped_where_unlikely):
        assert looks_wrong(run, target, 3, 3), run.__name__
    assert not looks_wrong(lambda c: emitted(drafted_chain(c, draft, 2), target, rule, c), target, 3, 3)


@pytest.mark.parametrize("rule", [rejection, traversal])
def test_the_integration_finds_siblings_taken_for_independent_draws(rule: Callable[..., Accepted]) -> None:
    target, draft = table(4, 32), table(4, 33)

    def run(course: Course) -> Context:
        tree = drafted_tree(course, draft, (3,))
        tree = DraftTree(tree.tokens, tree.parents, draft_probs=(None, *[draft(())] * 3))
        return emitted(tree, target, rule, course)

    assert looks_wrong(run, target, 4, 2)


# --- how much is accepted ---


def mean_accepted(target: Probs, draft: Probs, length: int, rule: Callable[..., Accepted]) -> float:
    def run(course: Course) -> int:
        tree = drafted_chain(course, draft, length)
        at = texts(tree)
        return rule(tree, lambda node: target(at[node]), course).num_accepted

    return sum(number * probability for number, probability in courses(run))


@pytest.mark.parametrize("seed", range(8))
def test_block_accepts_at_least_as_much_as_rejection(seed: int) -> None:
    target, draft = table(3, seed), table(3, seed + 70)
    one = [mean_accepted(target, draft, 1, rule) for rule in (rejection, block)]
    assert one[0] == pytest.approx(one[1], abs=1e-12)
    assert one[0] == pytest.approx(np.minimum(target(()), draft(())).sum(), abs=1e-12)
    for length in (2, 3):
        by_token, as_block = (mean_accepted(target, draft, length, rule) for rule in (rejection, block))
        assert as_block > by_token - 1e-12
    assert as_block > by_token + 1e-3


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("shape", [(2, 1), (2, 2), (3, 1), (2, 1, 1)])
def test_judging_a_tree_from_its_ends_accepts_at_least_as_much(seed: int, shape: tuple[int, ...]) -> None:
    target, draft = table(3, seed), table(3, seed + 90)
    means = []
    for rule in (rejection, traversal):

        def run(course: Course, rule: Callable[..., Accepted] = rule) -> int:
            tree = drafted_tree(course, draft, shape)
            at = texts(tree)
            return rule(tree, lambda node: target(at[node]), course).num_accepted

        means.append(sum(number * probability for number, probability in courses(run)))
    assert means[1] > means[0] - 1e-12


@pytest.mark.parametrize("alike", [0.0, 0.5, 0.8, 0.95])
@pytest.mark.parametrize(("vocab_size", "scale"), [(5, 0.8), (16, 1.0), (64, 1.5)])
def test_sharing_the_noise_costs_little_against_the_optimum(vocab_size: int, scale: float, alike: float) -> None:
    """Two draws with common Gumbel noise agree on i with chance 1 / sum_j max(p_j/p_i, q_j/q_i)."""
    models = [TableModel(1, vocab_size, seed=seed, scale=scale) for seed in (6, 7)]
    gaps, params = [], SamplingParams(temperature=1.0)
    for token in range(vocab_size):
        logits, others = (model.logits([token]).astype(float) for model in models)
        target_probs = filtered_probs(logits, params)
        draft_probs = filtered_probs(alike * logits + (1 - alike) * others, params)
        ratios = [np.maximum(target_probs / p, draft_probs / q) for p, q in zip(target_probs, draft_probs, strict=True)]
        coupled = sum(1 / ratio.sum() for ratio in ratios)
        gaps.append(np.minimum(target_probs, draft_probs).sum() - coupled)
    assert min(gaps) > 0
    assert np.mean(gaps) < 0.05


def test_more_children_accept_more() -> None:
    target, draft = table(4, 40), table(4, 41)

    def accepted(width: int) -> float:
        def run(course: Course) -> int:
            tree = drafted_tree(course, draft, (width,))
            return rejection(tree, lambda node: target(texts(tree)[node]), course).num_accepted

        return sum(number * probability for number, probability in courses(run))

    rates = [accepted(width) for width in (1, 2, 3, 4)]
    assert rates == sorted(rates)
    assert rates[3] == pytest.approx(1.0, abs=1e-12)  # all tokens are there
    assert rates[1] > rates[0] + 0.05


# --- what is no draw at all ---


def test_distributions_that_cannot_be_what_a_token_was_drawn_from() -> None:
    course = Course([])
    for row in ([0.0, 1.0, 0.0], [0.5, 0.25, 0.0], [np.nan, 0.5, 0.5], [0.5, 0.5], [0.25] * 4):
        tree = DraftTree((0, 0), (-1, 0), draft_probs=(None, np.array(row)))
        for rule in (rejection, block):
            with pytest.raises(ForedraftError, match="draft_probs of node 1"):
                rule(tree, lambda node: np.full(3, 1 / 3), course)
    with pytest.raises(ValueError, match="one entry of draft_probs for each token"):
        DraftTree((0, 1, 2), (-1, 0, 1), draft_probs=(None, np.eye(3)[1]))


def test_a_block_is_a_chain() -> None:
    tree = DraftTree((0, 1, 2), (-1, 0, 0))
    with pytest.raises(ValueError, match="branches"):
        block(tree, lambda node: np.full(3, 1 / 3), Course([]))
