"""The statistics of `foredraft check`: right samples pass, wrong ones are found out."""

import itertools
from collections import Counter
from dataclasses import replace

import numpy as np
import pytest
from helpers.engines import tiny_file

from foredraft.check import distribution, make_plan
from foredraft.check.compare import plain_logits
from foredraft.check.distribution import (
    CONTROL,
    DistributionTest,
    chi_square,
    chi_square_tail,
    pair_probs,
    planned_tests,
)
from foredraft.check.grid import RULES
from foredraft.config import DraftConfig
from foredraft.errors import OptionError
from foredraft.llm import LLM, SamplingParams
from foredraft.sampling import filtered_probs


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


# Quantiles as printed in tables of the chi-square distribution.
@pytest.mark.parametrize(
    ("statistic", "degrees", "tail"),
    [(3.841, 1, 0.05), (18.307, 10, 0.05), (29.588, 10, 0.001), (124.342, 100, 0.05), (9.342, 10, 0.5)],
)
def test_the_tail_is_that_of_the_tables(statistic: float, degrees: int, tail: float) -> None:
    assert chi_square_tail(statistic, degrees) == pytest.approx(tail, rel=2e-3)


def test_a_statistic_by_hand() -> None:
    probs = {(1, 2): 0.5, (1, None): 0.25, (None, None): 0.25}
    counts = {(1, 2): 6, (1, 7): 1, (3, 3): 1, (9, 2): 0}
    assert chi_square(counts, probs) == pytest.approx((6 - 4) ** 2 / 4 + (1 - 2) ** 2 / 2 + (1 - 2) ** 2 / 2)


def test_probabilities_of_pairs_are_the_models(llm: LLM) -> None:
    params = SamplingParams(temperature=1.0)
    probs = pair_probs(llm, "a b", 20_000)
    assert sum(probs.values()) == pytest.approx(1.0)
    assert all(prob * 20_000 >= 5 for prob in probs.values())
    tokens = llm.tokenizer.encode("a b")
    first_V = filtered_probs(plain_logits(llm, tokens), params)
    pairs = [pair for pair in probs if None not in pair]
    assert pairs
    for first, second in itertools.islice(pairs, 5):
        second_V = filtered_probs(plain_logits(llm, [*tokens, first]), params)
        assert probs[first, second] == pytest.approx(first_V[first] * second_V[second])


def test_what_is_too_rare_for_a_bin_is_not_lost(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    probs_V = np.where(np.arange(275) < 4, 0.2495, 0.002 / 271)
    monkeypatch.setattr(distribution, "plain_logits", lambda *_: np.log(probs_V).astype(np.float32))
    probs = pair_probs(llm, "a b", 500)
    assert len(probs) == 16
    assert sum(probs.values()) == pytest.approx(1.0, abs=1e-9)


def test_samples_of_the_distribution_pass_and_of_another_do_not() -> None:
    rng = np.random.default_rng(0)
    probs = {(i, j): (i + 1) * (j + 1) / 100 for i in range(4) for j in range(4)}
    p_values = []
    for tilt in (0.0, 0.05):
        weights = np.array(list(probs.values())) + tilt * np.eye(16)[0]
        drawn = rng.choice(16, size=500, p=weights / weights.sum())
        counts = Counter((int(k) // 4, int(k) % 4) for k in drawn)
        p_values.append(chi_square_tail(chi_square(counts, probs), 15))
    assert p_values[0] > 0.01
    assert p_values[1] < 1e-4


def test_a_model_that_is_sure_of_everything_is_refused(llm: LLM, monkeypatch: pytest.MonkeyPatch) -> None:
    one_hot = np.where(np.arange(275) == 3, 100.0, 0.0).astype(np.float32)
    monkeypatch.setattr(distribution, "plain_logits", lambda *_: one_hot)
    with pytest.raises(OptionError, match="too sure"):
        pair_probs(llm, "a b", 500)


@pytest.mark.parametrize("rule", ["coupled", "rejection", "block", "tree"])
def test_right_rules_pass(llm: LLM, rule: str) -> None:
    config = DraftConfig(drafters=tiny_file(seed=1), num_draft_tokens=3, acceptance=rule)
    test = DistributionTest(llm, config, 256, control=False)
    result = test.run()
    assert result.holds, result
    assert (result.num_samples, result.control) == (256, False)
    assert result.num_bins > 3


def test_the_control_is_found_out(llm: LLM) -> None:
    config = DraftConfig(drafters=("suffix",), num_draft_tokens=3, acceptance=CONTROL)
    result = DistributionTest(llm, config, 256, control=True).run()
    assert result.holds, result
    assert result.p_value < 1e-4
    assert result.num_accepted_tokens > 128


def test_rules_are_tested_with_copies_and_with_a_model(llm: LLM) -> None:
    plan = make_plan([("lookup",), ("x.gguf",)])
    tests = list(planned_tests(llm, plan))
    assert [(test.config.drafters[0], test.config.acceptance) for test in tests] == [
        *(("suffix", rule) for rule in RULES),
        *(("x.gguf", rule) for rule in RULES),
        ("suffix", CONTROL),
    ]
    assert [test.control for test in tests] == [False] * 2 * len(RULES) + [True]
    assert (tests[0].name, tests[-1].name) == (
        "distribution of suffix:3 (rejection)",
        "control: every draft of suffix kept",
    )
    assert not list(planned_tests(llm, replace(plan, rules=())))
