"""The rules by name, and the lenient ones: what they keep, and what they say it cost."""

import math

import numpy as np
import pytest
from helpers.engines import make_engine, output, run, table_decoder

from foredraft.accept import Threshold, Typical, lenient, make_rule
from foredraft.drafters.base import Drafter
from foredraft.engine import Completion, completion_of
from foredraft.errors import ForedraftError, OptionError
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, TableModel, WrongDrafter
from foredraft.tree import DraftTree

PROBS = np.array([0.05, 0.4, 0.3, 0.2, 0.05, 0.0])


@pytest.mark.parametrize(
    ("good_enough", "kept"),
    [
        (Threshold(eps=0.2), {1, 2, 3}),
        (Threshold(eps=0.21), {1, 2}),
        (Threshold(eps=1.0), set()),
        (Threshold(top_k=3, gap=math.log(2)), {1, 2, 3}),
        (Threshold(top_k=2, gap=math.log(2)), {1, 2}),
        (Threshold(top_k=6, gap=0.5), {1, 2}),
        (Threshold(top_k=4, gap=99), {0, 1, 2, 3}),  # of the two equal ones the first
        (Threshold(top_k=1, gap=0), {1}),
        (Threshold(eps=0.35, top_k=3, gap=0.8), {1, 2, 3}),
        (Typical(eps=0.3, delta=1.0), {1, 2}),  # exp(-entropy) is 0.259
        (Typical(eps=0.3, delta=0.5), {1, 2, 3}),
        (Typical(eps=0.05, delta=1.0), {1, 2, 3}),  # more than, not as much
        (Typical(eps=0.04, delta=1.0), {0, 1, 2, 3, 4}),
    ],
)
def test_what_is_good_enough(good_enough: Threshold | Typical, kept: set[int]) -> None:
    assert {token for token in range(PROBS.size) if good_enough(PROBS, token)} == kept


def test_what_has_no_probability_is_never_kept() -> None:
    """Kind: a token that the filters exclude is accepted."""
    for good_enough in (Typical(1e-9, 1e-9), Threshold(eps=1e-9), Threshold(top_k=6, gap=1e9)):
        assert not good_enough(PROBS, 5)


def test_the_walk_of_a_lenient_rule() -> None:
    """The target's own token where the tree has it, else the likeliest that is good enough."""
    tree = DraftTree(tokens=(0, 2, 1, 3, 3, 4), parents=(-1, 0, 0, 0, 2, 4))
    rows = {0: PROBS, 2: np.array([0.1, 0.1, 0.1, 0.7, 0.0, 0.0]), 4: np.array([0.9, 0.0, 0.0, 0.0, 0.1, 0.0])}
    own = {0: 0, 2: 3, 4: 0}
    accepted = lenient(tree, own.__getitem__, rows.__getitem__, rows.__getitem__, Threshold(eps=0.2))
    assert (accepted.path, accepted.bonus) == ((2, 4), 0)
    assert [(choice.token, choice.own, choice.differs) for choice in accepted.choices] == [
        (1, 0, True),
        (3, 3, False),
        (0, 0, False),
    ]
    assert accepted.choices[0].logprob == pytest.approx(math.log(0.4))
    assert accepted.choices[0].own_logprob == pytest.approx(math.log(0.05))
    assert accepted.tokens(tree) == tuple(choice.token for choice in accepted.choices)
    own |= {0: 3, 3: 1}  # in the tree: it is taken, though 1 is likelier
    rows[3] = PROBS
    assert lenient(tree, own.__getitem__, rows.__getitem__, rows.__getitem__, Threshold(eps=0.2)).path == (3,)


# --- in rounds ---

V = 24
TARGET = TableModel(2, V, seed=1)
OTHER = TableModel(2, V, seed=2)
PROMPT = [3, 1, 4]


def completed(rule: str, drafter: Drafter, **params: object) -> Completion:
    decoder, _ = table_decoder(TARGET)
    engine = make_engine(decoder, drafter, rule=make_rule(rule), num_draft_tokens=8)
    [done] = run(engine, [PROMPT], SamplingParams(**{"max_tokens": 200, "ignore_eos": True} | params))
    return completion_of([done], methods=["x"], load_s=0.0, rule=make_rule(rule))


@pytest.mark.parametrize("rule", ["typical", "threshold:eps=0.05", "threshold:top_k=4,gap=3"])
@pytest.mark.parametrize("params", [{"temperature": 1.0, "seed": 1}, {"temperature": 0.7, "top_k": 9, "seed": 2}, {}])
def test_a_lenient_rule_is_named_lossy_and_says_what_it_cost(rule: str, params: dict[str, object]) -> None:
    """Kind: a rule that changes the text is presented as lossless."""
    done = completed(rule, DistDrafter(OTHER, (2, 2)), **params)
    exact_here = rule == "typical" and not params
    speculation = done.speculation
    assert speculation.lossless == exact_here
    assert speculation.equality == ("path" if exact_here else "none")
    assert speculation.acceptance == make_rule(rule).name
    record = done.to_json_dict()["speculation"]
    if exact_here:
        assert record["cost"] is None
        return
    assert record["cost"] == {
        "share_different": speculation.cost.share_different,
        "mean_logprob": speculation.cost.mean_logprob,
        "mean_own_logprob": speculation.cost.mean_own_logprob,
    }
    # The same, from the tokens and the table alone.
    tokens, plain = list(PROMPT), SamplingParams(temperature=1.0)
    different, logprobs, own_logprobs = 0, [], []
    for token in done.token_ids:
        own = TARGET.next_token(tokens, SamplingParams(**params))
        probs = TARGET.probs(tokens, plain)
        different += token != own
        logprobs.append(math.log(probs[token]))
        own_logprobs.append(math.log(probs[own]))
        tokens.append(token)
    assert 0 < different < 200
    assert speculation.cost.share_different == pytest.approx(different / 200)
    assert speculation.cost.mean_logprob == pytest.approx(np.mean(logprobs))
    assert speculation.cost.mean_own_logprob == pytest.approx(np.mean(own_logprobs))
    strict = completed("coupled", DistDrafter(OTHER, (2, 2)), **params)
    assert speculation.num_accepted_tokens > strict.speculation.num_accepted_tokens
    assert (strict.speculation.cost, strict.speculation.acceptance, strict.speculation.equality) == (
        None,
        "coupled",
        "path",
    )


def test_a_lenient_rule_keeps_to_the_filters() -> None:
    params = SamplingParams(temperature=1.0, top_k=2, seed=3)
    done = completed("threshold:eps=0.0001", WrongDrafter(TARGET), temperature=1.0, top_k=2, seed=3)
    tokens = list(PROMPT)
    for token in done.token_ids:
        assert TARGET.probs(tokens, params)[token] > 0
        tokens.append(token)


def test_a_rule_that_asks_for_certainty_changes_nothing() -> None:
    for params in ({}, {"temperature": 1.0, "seed": 4}):
        done = completed("threshold:eps=1", DistDrafter(OTHER, (2, 2)), **params)
        assert done.speculation.cost.share_different == 0.0
        assert list(done.token_ids) == TARGET.generate(PROMPT, SamplingParams(**params), 200)


def test_only_the_tokens_kept_are_counted() -> None:
    """The cost of what was accepted beyond the end of a text is nobody's."""
    for max_tokens in (1, 2, 3, 7):
        decoder, _ = table_decoder(TARGET)
        rule = make_rule("threshold:eps=0.01")
        engine = make_engine(decoder, DistDrafter(OTHER, (1,) * 6), rule=rule, num_draft_tokens=6)
        [done] = run(engine, [PROMPT], SamplingParams(max_tokens=max_tokens, temperature=1.0, seed=1))
        assert len(done.counts.choices) == len(output(done))


# --- names ---


@pytest.mark.parametrize(
    ("text", "name"),
    [
        ("coupled", "coupled"),
        ("rejection", "rejection"),
        ("block", "block"),
        ("tree", "tree"),
        ("traversal", "traversal"),
        ("typical", "typical:eps=0.09,delta=0.3"),
        ("typical:0.3,0.09", "typical:eps=0.3,delta=0.09"),
        ("typical:delta=0.5", "typical:eps=0.09,delta=0.5"),
        ("threshold:0.1", "threshold:eps=0.1"),
        ("threshold:eps=0.1", "threshold:eps=0.1"),
        ("threshold:gap=1.5,top_k=3", "threshold:top_k=3,gap=1.5"),
        ("threshold:0.2,3,1", "threshold:eps=0.2,top_k=3,gap=1"),
    ],
)
def test_names(text: str, name: str) -> None:
    rule = make_rule(text)
    assert rule.name == name
    assert make_rule(rule.name) == rule


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("lossy", ["'lossy'", "coupled, rejection, block, tree, traversal, typical, threshold"]),
        ("", ["''", "coupled"]),
        ("coupled:1", ["coupled", "no settings"]),
        ("block:", ["block", "no settings"]),
        ("threshold", ["eps", "top_k"]),
        ("threshold:", ["eps"]),
        ("threshold:top_k=3", ["gap"]),
        ("threshold:gap=3", ["top_k"]),
        ("threshold:eps=0", ["eps", "above 0", "'0'"]),
        ("threshold:eps=1.1", ["eps", "'1.1'"]),
        ("threshold:eps=nan", ["eps", "'nan'"]),
        ("threshold:eps=x", ["eps", "'x'"]),
        ("threshold:eps=0.1,eps=0.2", ["once"]),
        ("threshold:epsilon=0.1", ["eps, top_k, gap"]),
        ("threshold:top_k=2.5,gap=1", ["top_k", "whole number"]),
        ("threshold:top_k=0,gap=1", ["top_k", "'0'"]),
        ("threshold:top_k=1,gap=-1", ["gap", "'-1'"]),
        ("threshold:top_k=1,gap=inf", ["gap", "'inf'"]),
        ("threshold:0.1,2,3,4", ["eps, top_k, gap"]),
        ("typical:0.1,0.2,0.3", ["eps, delta"]),
        ("typical:delta=2", ["delta", "'2'"]),
        (5, ["--acceptance", "5"]),
    ],
)
def test_names_that_make_no_sense(text: object, parts: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        make_rule(text)
    message = str(caught.value)
    assert "\n" not in message
    assert "--acceptance" in message
    assert all(part in message for part in parts), message


def test_draws_over_another_vocabulary_are_a_fault_of_the_drafter() -> None:
    """Kind: what was drawn outside the target's vocabulary is dropped in silence, which biases what is left."""

    class Wider(DistDrafter):
        def draft(self, sequence, budget):
            return DraftTree((sequence.tokens[-1], 1), (-1, 0), draft_probs=(None, np.eye(V + 1)[1]))

    with pytest.raises(ForedraftError, match="draft_probs"):
        completed("rejection", Wider(OTHER), temperature=1.0, seed=1)
