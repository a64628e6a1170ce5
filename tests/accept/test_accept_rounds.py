"""The rules in real rounds: many tokens of a table whose distribution is known, drafted by a table that is another."""

import math
from collections.abc import Sequence

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, table_decoder

from foredraft.accept import make_rule
from foredraft.drafters.base import Drafter
from foredraft.drafters.model import ModelDrafter
from foredraft.engine import Output, completion_of
from foredraft.sampling import Drawing, SamplingParams
from foredraft.sampling.uniforms import Stream, draw_index, uniform
from foredraft.testing import DistDrafter, ScriptedDrafter, TableModel, WrongDrafter
from foredraft.tree import DraftTree

V = 5
TARGET = TableModel(1, V, seed=6, scale=0.8)
OTHER = TableModel(1, V, seed=7, scale=0.8)
PROMPT = [0, 1, 2]
NUM_SEQUENCES, NUM_TOKENS = 20, 500
PLAIN = SamplingParams(temperature=1.0)
NUCLEUS = SamplingParams(temperature=0.8, top_p=0.9)


def sampled(
    rule: str,
    drafter: Drafter,
    *,
    params: SamplingParams = PLAIN,
    first_seed: int = 0,
    num_sequences: int = NUM_SEQUENCES,
) -> list[Output]:
    """Sequences with seeds of their own, all to their ends."""
    decoder, _ = table_decoder(TARGET, length=NUM_TOKENS + len(PROMPT))
    engine = make_engine(decoder, drafter, rule=make_rule(rule), max_running=20, num_draft_tokens=6)
    several = [
        SamplingParams(
            temperature=params.temperature, top_p=params.top_p, seed=seed, max_tokens=NUM_TOKENS, ignore_eos=True
        )
        for seed in range(first_seed, first_seed + num_sequences)
    ]
    return run(engine, [PROMPT] * num_sequences, several)


def deviation(outputs: Sequence[Sequence[int]], params: SamplingParams) -> float:
    """How far the tokens, each after the token before it, are from the exact distribution, in standard deviations."""
    counts = np.zeros((V, V))
    for tokens in outputs:
        np.add.at(counts, ([PROMPT[-1], *tokens[:-1]], tokens), 1)
    exact = np.stack([TARGET.probs([token], params) for token in range(V)])
    assert counts[exact == 0].sum() == 0
    expected = exact * counts.sum(axis=1, keepdims=True)
    likely = expected >= 5
    statistic = ((counts - expected)[likely] ** 2 / expected[likely]).sum()
    freedom = int(np.count_nonzero(likely) - likely.any(axis=1).sum())
    spread = 2 / (9 * freedom)  # Wilson and Hilferty: the cube root is nearly normal
    return float((math.cbrt(statistic / freedom) - (1 - spread)) / math.sqrt(spread))


@pytest.mark.parametrize(
    ("rule", "shape", "params"),
    [
        ("rejection", (1,) * 3, PLAIN),
        ("block", (1,) * 3, PLAIN),
        ("tree", (2, 2), PLAIN),
        ("tree", (3, 1), NUCLEUS),
        ("traversal", (2, 2), PLAIN),
    ],
)
def test_tokens_have_the_target_s_distribution(rule: str, shape: tuple[int, ...], params: SamplingParams) -> None:
    """Kind: drafting biases the text. 50,000 tokens in all; the next test shows that a part of them would do."""
    drafter = DistDrafter(OTHER, shape, drawing="independent")
    several = sampled(rule, drafter, params=params)
    assert deviation([output(done) for done in several], params) < 4
    accepted = sum(done.counts.num_accepted_tokens for done in several)
    assert accepted > 0.3 * sum(done.counts.num_rounds for done in several)


class Argmax(DistDrafter):
    """Wrong on purpose: proposes the likeliest token and says that it was drawn."""

    def _children(self, sequence, path, num_children, *, first_event):
        probs = self._model.probs([*sequence.tokens, *path], sequence.params)
        return [(int(probs.argmax()), probs)]


class Uniform(DistDrafter):
    """Wrong on purpose: draws from one distribution and names another."""

    def _children(self, sequence, path, num_children, *, first_event):
        drawn = super()._children(sequence, path, num_children, first_event=first_event)
        return [(token, np.full(V, 1 / V)) for token, _ in drawn]


class Pruned(DistDrafter):
    """Wrong on purpose, as a planner would be that goes by the confidence in what was drawn: drops unlikely tokens."""

    def draft(self, sequence, budget):
        tree = super().draft(sequence, budget)
        return tree if not budget or tree.draft_probs[1][tree.tokens[1]] > 0.3 else DraftTree.chain(tree.tokens[0])


class OneNumber(DistDrafter):
    """Wrong on purpose: draws with the numbers that the rule decides by."""

    def _children(self, sequence, path, num_children, *, first_event):
        probs = self._model.probs([*sequence.tokens, *path], sequence.params)
        u = uniform(Stream.ACCEPT, sequence.params.seed, 0, len(sequence.tokens), first_event - 1)
        return [(draw_index(probs, u), probs)]


@pytest.mark.parametrize("wrong", [Argmax, Uniform, Pruned, OneNumber])
@pytest.mark.parametrize("rule", ["rejection", "block"])
def test_a_drafter_that_names_a_wrong_distribution_is_found_out(wrong: type[DistDrafter], rule: str) -> None:
    """The controls: each must fail, or the test above shows nothing."""
    several = sampled(rule, wrong(OTHER, (1, 1), drawing="independent"), num_sequences=6)
    assert deviation([output(done) for done in several], PLAIN) > 6


@pytest.mark.parametrize(
    "drafter",
    [
        ScriptedDrafter([[0, 3, 1]] * NUM_TOKENS),
        DistDrafter(OTHER, (2, 1), drawing="coupled"),
        DistDrafter(TARGET, (1, 1), drawing="coupled"),
        WrongDrafter(TARGET),
    ],
    ids=["constant", "likeliest after noise", "the target with its noise", "what the target will not say"],
)
@pytest.mark.parametrize("rule", ["rejection", "block", "tree", "traversal"])
def test_drafts_of_any_origin_are_exact_where_nothing_was_drawn(rule: str, drafter: Drafter) -> None:
    """Kind: drafts by argmax, lookup, beam search, or with another's noise are judged as draws."""
    several = sampled(rule, drafter, first_seed=100, num_sequences=2)
    assert deviation([output(done) for done in several], PLAIN) < 4


class Counting(DistDrafter):
    """Sums up what the theory says of each draft, and how many were accepted."""

    def __init__(self) -> None:
        super().__init__(OTHER, (1,), drawing="independent")
        rows = [[table.probs([token], PLAIN) for token in range(V)] for table in (TARGET, OTHER)]
        self.chances = np.minimum(*rows).sum(axis=1)
        self.expected = self.variance = self.accepted = 0.0

    def observe(self, sequences, outcomes):
        for outcome in outcomes:
            if outcome.num_draft_tokens:
                chance = self.chances[outcome.tree.tokens[0]]
                self.expected += chance
                self.variance += chance * (1 - chance)
                self.accepted += outcome.num_accepted_tokens


def test_rejection_accepts_the_overlap_of_the_two_distributions() -> None:
    """Kind: greedy drafts and matching of samples lose acceptance as the temperature rises."""
    drafter = Counting()
    sampled("rejection", drafter, num_sequences=12)
    assert abs(drafter.accepted - drafter.expected) < 3 * math.sqrt(drafter.variance)
    assert drafter.variance > 400


@pytest.mark.parametrize("rule", ["rejection", "block", "tree", "traversal"])
def test_the_same_seed_says_the_same(rule: str) -> None:
    """Kind: the answer depends on the neighbours in the batch, or on what ran before."""
    drafter = DistDrafter(OTHER, (1, 1, 1), drawing="independent")
    texts = [output(done) for done in sampled(rule, drafter, num_sequences=4)]
    assert [output(sampled(rule, drafter, first_seed=seed, num_sequences=1)[0]) for seed in range(4)] == texts
    assert len({tuple(tokens) for tokens in texts}) == 4


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block", "tree", "traversal", "typical"])
def test_at_temperature_0_every_rule_says_what_plain_decoding_says(rule: str) -> None:
    """Kind: another rule or another shape of the tree gives another greedy text."""
    params = SamplingParams(max_tokens=60, ignore_eos=True)
    plain = TARGET.generate(PROMPT, params, 60)
    for shape in ((1,), (1, 1, 1, 1), (3,), (2, 2), (3, 1, 1)):
        decoder, _ = table_decoder(TARGET)
        engine = make_engine(decoder, DistDrafter(OTHER, shape, drawing="independent"), rule=make_rule(rule))
        [done] = run(engine, [PROMPT], params)
        assert output(done) == plain
        speculation = completion_of([done], methods=["x"], load_s=0.0, rule=make_rule(rule)).speculation
        assert (speculation.equality, speculation.lossless, speculation.cost) == ("path", True, None)


def test_a_rule_for_chains_uses_the_first_chain_of_a_tree() -> None:
    for rule in ("rejection", "block"):
        several = sampled(rule, DistDrafter(OTHER, (2, 2), drawing="independent"), num_sequences=4)
        assert deviation([output(done) for done in several], PLAIN) < 4
        counts = several[0].counts
        assert len(counts.accepted_per_position) == 2


def test_a_draft_model_draws_and_says_from_what() -> None:
    """The drafter that users have, with a vocabulary cut short, in chains and in trees."""
    for rule, num_branches, token_ids in (
        ("rejection", 1, None),
        ("block", 1, [0, 2, 3]),
        ("tree", 2, None),
        ("traversal", 2, None),
    ):
        decoder, _ = table_decoder(OTHER if token_ids is None else Shortened(token_ids), length=600)
        ids = None if token_ids is None else np.array(token_ids, np.int32)
        drafter = ModelDrafter(decoder, vocab_size=V, token_ids=ids, num_branches=num_branches, draws_over=V)
        several = sampled(rule, drafter, num_sequences=4)
        assert deviation([output(done) for done in several], PLAIN) < 4
        accepted = sum(done.counts.num_accepted_tokens for done in several)
        rounds = sum(done.counts.num_rounds for done in several)
        assert accepted > 0.4 * rounds


class Shortened(TableModel):
    """The other table with the logits of some tokens only."""

    def __init__(self, token_ids: list[int]) -> None:
        super().__init__(1, V, seed=7, scale=0.8)
        self._token_ids = token_ids

    def logits(self, tokens):
        row = super().logits(tokens)
        return np.concatenate([row[self._token_ids], row[: V - len(self._token_ids)]])


@pytest.mark.parametrize("rule", ["rejection", "block", "tree", "traversal", "typical", "threshold:eps=0.2"])
def test_top_k_1_is_greedy_under_every_rule_and_accepted_as_often(rule: str) -> None:
    """Kind: the options of sampling are applied to what is sampled, but not to what drafts are judged by."""
    found = []
    for params in ({"temperature": 1.0, "top_k": 1, "seed": 9}, {}):
        decoder, _ = table_decoder(TARGET)
        engine = make_engine(decoder, DistDrafter(OTHER, (1, 1), drawing="independent"), rule=make_rule(rule))
        [done] = run(engine, [PROMPT], SamplingParams(max_tokens=200, ignore_eos=True, **params))
        found.append((output(done), done.counts.num_accepted_tokens))
    assert found[0][0] == TARGET.generate(PROMPT, SamplingParams(), 200)
    if not rule.startswith("threshold"):  # at temperature 0 this one goes by temperature 1
        assert found[0] == found[1]


def test_coupled_acceptance_is_close_to_the_optimum() -> None:
    """Kind: drafts that do not share the target's noise lose acceptance as the temperature rises."""
    shared, alone = (sampled("coupled", DistDrafter(OTHER, (1,), drawing=d), num_sequences=8) for d in _DRAWINGS)
    rows = [[table.probs([token], PLAIN) for token in range(V)] for table in (TARGET, OTHER)]
    optimum = np.minimum(*rows).sum(axis=1)

    def rate(several: Sequence[Output]) -> float:
        counts = [done.counts for done in several]
        return sum(one.num_accepted_tokens for one in counts) / sum(one.num_draft_tokens for one in counts)

    assert rate(shared) > optimum.mean() - 0.1
    assert rate(alone) < rate(shared) - 0.1


_DRAWINGS: tuple[Drawing, ...] = ("coupled", "independent")
