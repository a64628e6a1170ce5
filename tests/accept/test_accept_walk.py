"""Exactness without a model: the walk, checked on every small tree, and the distribution of what it emits."""

import itertools
import math
from dataclasses import dataclass, field

import numpy as np
import pytest
from helpers.drafting import View, budgets

from foredraft.accept import Accepted, walk
from foredraft.sampling import Noise, SamplingParams, pick
from foredraft.testing import DistDrafter, OracleDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.tree import DraftTree

PICTURE = DraftTree(tokens=(0, 1, 2, 3, 4, 5, 6), parents=(-1, 0, 0, 1, 2, 2, 4))


@pytest.mark.parametrize(
    ("target", "path", "bonus"),
    [
        ({0: 2, 2: 4, 4: 9}, (2, 4), 9),
        ({0: 8}, (), 8),
        ({0: 1, 1: 3, 3: 7}, (1, 3), 7),
        ({0: 2, 2: 3}, (2,), 3),  # 3 stands elsewhere in the tree, but not below this node
        ({0: 2, 2: 4, 4: 6, 6: 6}, (2, 4, 6), 6),
        ({0: -1}, (), -1),
    ],
)
def test_the_walk_follows_the_target_and_asks_only_along_the_path(target, path, bonus):
    asked = []

    def target_token(node):
        asked.append(node)
        return target[node]

    accepted = walk(PICTURE, target_token)
    assert accepted == Accepted(path=path, bonus=bonus)
    assert accepted.num_accepted == len(path)
    assert accepted.tokens(PICTURE) == (*(PICTURE.tokens[node] for node in path), bonus)
    assert asked == [0, *path]


def test_without_a_draft_the_round_emits_the_bonus():
    assert walk(DraftTree.chain(5), lambda node: 7) == Accepted(path=(), bonus=7)


def small_trees(max_nodes, vocab_size):
    for num_nodes in range(1, max_nodes + 1):
        for parents in itertools.product(*(range(node) for node in range(1, num_nodes))):
            for tokens in itertools.product(range(vocab_size), repeat=num_nodes - 1):
                if len(set(zip(parents, tokens, strict=True))) == num_nodes - 1:
                    yield DraftTree(tokens=(0, *tokens), parents=(-1, *parents))


def test_on_every_small_tree_the_emitted_tokens_are_those_of_plain_decoding():
    """All trees of up to 4 nodes, all targets: the tokens the target says, as far as the tree goes."""
    num_cases = 0
    for tree in small_trees(4, 3):
        texts = [tuple(tree.tokens[i] for i in tree.path(node)) for node in range(tree.num_nodes)]
        for answers in itertools.product(range(3), repeat=tree.num_nodes):
            after = dict(zip(texts, answers, strict=True))
            plain: tuple[int, ...] = ()
            while plain in after:
                plain = (*plain, after[plain])
            accepted = walk(tree, answers.__getitem__)
            assert accepted.tokens(tree) == plain
            num_cases += 1
    assert num_cases > 5000


# --- A whole decode, round by round ---


@dataclass
class Run:
    output: list[int] = field(default_factory=list)
    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted: int = 0


def decode(model, drafter, prompt, params, num_tokens, *, budget=8, accept=walk):
    """Draft, verify and accept until there are `num_tokens` tokens; the last round may add some more."""
    sequence, run = View(list(prompt), 0, len(prompt), params), Run()
    while len(sequence.tokens) - len(prompt) < num_tokens:
        (tree,) = drafter.propose([sequence], budgets(budget))
        accepted = accept(tree, target_of(model, sequence.tokens, tree, params))
        sequence.tokens.extend(accepted.tokens(tree))
        run.num_rounds += 1
        run.num_draft_tokens += tree.num_draft_tokens
        run.num_accepted += accepted.num_accepted
    drafter.end(sequence.id)
    run.output = sequence.tokens[len(prompt) :][:num_tokens]
    return run


def target_of(model, tokens, tree, params):
    """The target's token after each node, from the logits after that node and the noise of its position."""

    def target_token(node):
        path = [tree.tokens[i] for i in tree.path(node)]
        return model.next_token([*tokens, *path], params)

    return target_token


V = 24
TARGET = TableModel(vocab_size=V, seed=1)
OTHER = TableModel(vocab_size=V, seed=2)
PROMPT = (3, 1, 4)
GREEDY = SamplingParams()
SAMPLED = [
    SamplingParams(temperature=1.0, seed=5),
    SamplingParams(temperature=0.7, top_k=6, seed=-2),
    SamplingParams(temperature=1.5, top_p=0.9, min_p=0.02, seed=2**64 - 1),
]


def drafters(params, num_tokens):
    output = TARGET.generate(PROMPT, params, num_tokens + 20)
    rng = np.random.default_rng(0)
    ragged = [rng.integers(0, V, size=rng.integers(0, 7)).tolist() for _ in range(num_tokens)]
    invalid = [[-1], [V], [V + 5, 3], [], [0, -1, V]] * num_tokens
    return {
        "nothing": ScriptedDrafter([]),
        "oracle": OracleDrafter(output),
        "wrong": WrongDrafter(TARGET),
        "ragged": ScriptedDrafter(ragged),
        "not in the vocabulary": ScriptedDrafter(invalid),
        "the target itself": DistDrafter(TARGET, (1,) * 6),
        "the target, as a tree": DistDrafter(TARGET, (3, 2, 1)),
        "another model": DistDrafter(OTHER, (1,) * 4),
        "another model, two wide": DistDrafter(OTHER, (2, 2)),
        "another model, bushy": DistDrafter(OTHER, (V, 1, 1)),
    }


@pytest.mark.parametrize("params", [GREEDY, *SAMPLED])
@pytest.mark.parametrize("budget", [0, 1, 4, 40])
def test_no_drafter_tree_or_budget_changes_the_output(params, budget):
    plain = TARGET.generate(PROMPT, params, 60)
    for name, drafter in drafters(params, 60).items():
        run = decode(TARGET, drafter, PROMPT, params, 60, budget=budget)
        assert run.output == plain, name
        assert run.num_accepted <= run.num_draft_tokens <= budget * run.num_rounds, name


@pytest.mark.parametrize("params", [GREEDY, *SAMPLED])
def test_all_drafts_of_the_oracle_are_accepted_and_none_of_the_wrong_drafter(params):
    known = drafters(params, 60)
    for name in ("oracle", "the target itself"):
        run = decode(TARGET, known[name], PROMPT, params, 60, budget=4)
        assert run.num_accepted == run.num_draft_tokens == 4 * run.num_rounds
        assert run.num_rounds == 12
    run = decode(TARGET, known["wrong"], PROMPT, params, 60, budget=4)
    assert (run.num_accepted, run.num_rounds, run.num_draft_tokens) == (0, 60, 240)


@pytest.mark.parametrize("budget", [1, 4])
def test_a_target_that_leaves_no_choice_says_the_same_at_temperature_1(budget):
    model = TableModel(vocab_size=V, seed=3, one_hot=True)
    for params in (GREEDY, SamplingParams(temperature=1.0, seed=0)):
        plain = model.generate(PROMPT, params, 40)
        assert plain == model.generate(PROMPT, GREEDY, 40)
        for drafter in (WrongDrafter(model), DistDrafter(OTHER), OracleDrafter(plain)):
            assert decode(model, drafter, PROMPT, params, 40, budget=budget).output == plain


def test_top_k_1_is_greedy_at_any_temperature_and_drafts_as_well_as_greedy():
    one = SamplingParams(temperature=1.0, top_k=1, seed=9)
    greedy = decode(TARGET, DistDrafter(OTHER), PROMPT, GREEDY, 200)
    sampled = decode(TARGET, DistDrafter(OTHER), PROMPT, one, 200)
    assert sampled == greedy


def test_no_token_outside_the_nucleus_is_ever_emitted():
    params = SamplingParams(temperature=1.0, top_p=0.3, seed=4)
    output = decode(TARGET, WrongDrafter(TARGET), PROMPT, params, 1000, budget=2).output
    tokens = list(PROMPT)
    for token in output:
        assert TARGET.probs(tokens, params)[token] > 0
        tokens.append(token)


# --- The distribution of the output over seeds ---

SMALL_V = 5
SMALL_TARGET = TableModel(vocab_size=SMALL_V, seed=6, scale=0.7)
SMALL_OTHER = TableModel(vocab_size=SMALL_V, seed=7, scale=0.7)
NUM_SEEDS = 2000


def chi_square_of_pairs(drafter, params, accept):
    """How far the first two tokens, over many seeds, are from the exact distribution, in deviations."""
    exact = np.zeros((SMALL_V, SMALL_V))
    first = SMALL_TARGET.probs(PROMPT, params(0))
    for token in range(SMALL_V):
        exact[token] = first[token] * SMALL_TARGET.probs([*PROMPT, token], params(0))
    counts = np.zeros_like(exact)
    for seed in range(NUM_SEEDS):
        run = decode(SMALL_TARGET, drafter, PROMPT, params(seed), 2, accept=accept)
        counts[tuple(run.output)] += 1
    expected = exact * NUM_SEEDS
    likely = expected >= 5
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    freedom = np.count_nonzero(likely) - 1
    spread = 2 / (9 * freedom)  # Wilson and Hilferty: the cube root is nearly normal
    return (math.cbrt(statistic / freedom) - (1 - spread)) / math.sqrt(spread)


def plain_sampling(seed):
    return SamplingParams(temperature=1.0, seed=seed)


def nucleus_sampling(seed):
    return SamplingParams(temperature=0.8, top_p=0.95, seed=seed)


@pytest.mark.parametrize("params", [plain_sampling, nucleus_sampling])
@pytest.mark.parametrize(
    "drafter",
    [
        ScriptedDrafter([]),
        ScriptedDrafter([[0, 0]] * 2),
        DistDrafter(SMALL_OTHER, (1, 1)),
        DistDrafter(SMALL_OTHER, (2, 3)),
        DistDrafter(SMALL_TARGET, (3, 2)),
    ],
    ids=["nothing", "constant", "chain", "tree", "the target's tree"],
)
def test_the_output_has_the_target_s_distribution_whatever_is_drafted(drafter, params):
    assert chi_square_of_pairs(drafter, params, walk) < 4


def trusting(tree, target_token):
    """A rule that is wrong on purpose: it takes a draft on trust, without asking the target, at the root."""
    child = next((node for node in range(1, tree.num_nodes) if tree.parents[node] == 0), None)
    return walk(tree, lambda node: tree.tokens[child] if node == 0 and child else target_token(node))


def lenient(tree, target_token):
    """Wrong on purpose: of two neighbouring tokens, one counts as good enough for the other."""

    def nearly(node):
        token = target_token(node)
        return next((near for near in (token, token ^ 1) if tree.child(node, near)), token)

    return walk(tree, nearly)


@pytest.mark.parametrize("rule", [trusting, lenient])
def test_a_rule_biased_towards_the_drafter_is_found_out(rule):
    assert chi_square_of_pairs(DistDrafter(SMALL_OTHER, (1, 1)), plain_sampling, rule) > 6


def test_a_drafter_with_the_noise_of_the_target_is_accepted_as_often_as_the_theory_says():
    """Two Gumbel-max draws with common noise agree on token i with chance 1 / sum_j max(p_j/p_i, q_j/q_i)."""
    params = SamplingParams(temperature=1.0)
    target_probs, draft_probs = SMALL_TARGET.probs(PROMPT, params), SMALL_OTHER.probs(PROMPT, params)
    theory = sum(
        1 / np.maximum(target_probs / target_probs[i], draft_probs / draft_probs[i]).sum() for i in range(SMALL_V)
    )
    n = 6000
    agree = [
        pick(SMALL_TARGET.logits(PROMPT), temperature=1.0, noise=Noise(seed, 0, 3))
        == pick(SMALL_OTHER.logits(PROMPT), temperature=1.0, noise=Noise(seed, 0, 3))
        for seed in range(n)
    ]
    deviation = math.sqrt(theory * (1 - theory) / n)
    assert abs(np.mean(agree) - theory) < 4 * deviation
    independent = float(target_probs @ draft_probs)
    assert theory - independent > 20 * deviation


def test_seeds_and_sample_indices_give_different_texts():
    params = SamplingParams(temperature=1.0)
    texts = {tuple(TARGET.generate(PROMPT, params.with_seed(), 20)) for _ in range(30)}
    assert len(texts) == 30
    seeded = SamplingParams(temperature=1.0, seed=1)
    samples = {tuple(TARGET.generate(PROMPT, seeded, 20, sample_index=index)) for index in range(30)}
    assert len(samples) == 30
