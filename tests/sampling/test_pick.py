import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from foredraft.errors import ForedraftError
from foredraft.sampling import Noise, SamplingParams, filtered_probs, pick, top_perturbed
from foredraft.sampling.noise import gumbel

OFF = {"top_k": 0, "top_p": 1.0, "min_p": 0.0}
INF = float("inf")


def options(params):
    return {name: getattr(params, name) for name in ("temperature", "top_k", "top_p", "min_p")}


def f32(*values):
    return np.array(values, dtype=np.float32)


def kept_by_the_book(logits, params):
    """Ids the filters keep, by the definitions, token by token."""
    ids = [i for i, logit in enumerate(logits) if logit != -INF]
    ids.sort(key=lambda i: (-logits[i], i))
    z = (logits.astype(np.float64) - max(logits.tolist())) / params.temperature
    weight = dict(enumerate(np.exp(z).tolist()))
    if params.top_k:
        ids = ids[: params.top_k]
    total = 0.0
    for i in ids:
        total += weight[i]
    mass, nucleus = 0.0, []
    for i in ids:
        if params.top_p < 1 and nucleus and mass >= params.top_p * total:
            break
        nucleus.append(i)
        mass += weight[i]
    return [i for i in nucleus if weight[i] >= params.min_p * weight[ids[0]]], z


# Few distinct values, so that ties are common; an excluded token now and then.
logit_rows = (
    st.lists(st.sampled_from([-INF, -3.0, -1.0, -0.5, 0.0, 0.25, 1.0, 2.5, 7.0]), min_size=1, max_size=24)
    .filter(lambda row: max(row) > -INF)
    .map(lambda row: np.array(row, dtype=np.float32))
)
sampled = st.builds(
    SamplingParams,
    temperature=st.sampled_from([0.1, 0.7, 1.0, 2.0]),
    top_k=st.integers(0, 26),
    top_p=st.one_of(st.just(1.0), st.floats(0.01, 1.0)),
    min_p=st.one_of(st.just(0.0), st.floats(0.0, 1.0)),
    seed=st.integers(0, 2**64 - 1),
)


@given(logit_rows, sampled)
def test_the_filters_keep_what_the_definitions_say(logits, params):
    kept, z = kept_by_the_book(logits, params)
    probs = filtered_probs(logits, params)
    assert probs.dtype == np.float64
    assert sorted(kept) == np.flatnonzero(probs).tolist()
    assert probs.sum() == pytest.approx(1.0, abs=1e-12)
    weights = np.exp(z[kept])
    np.testing.assert_allclose(probs[kept], weights / weights.sum(), rtol=1e-12)


@given(logit_rows, sampled, st.integers(0, 500))
def test_the_token_is_the_largest_perturbed_logit_among_those_kept(logits, params, position):
    kept, z = kept_by_the_book(logits, params)
    noise = (params.seed, 0, position)
    perturbed = {i: z[i] + gumbel(*noise, np.array([i]))[0] for i in kept}
    ranked = sorted(kept, key=lambda i: (-perturbed[i], i))
    assert pick(logits, **options(params), noise=noise) == ranked[0]
    assert pick(logits, **options(params), noise=Noise(*noise)) == ranked[0]
    for num_tokens in (1, 2, len(logits), 100):
        assert list(top_perturbed(logits, params, noise, num_tokens)) == ranked[:num_tokens]


@given(logit_rows, st.integers(1, 30))
def test_at_temperature_0_the_largest_logit_wins_and_the_lowest_id_among_equals(logits, num_tokens):
    ranked = sorted((i for i in range(len(logits)) if logits[i] > -INF), key=lambda i: (-logits[i], i))
    greedy = SamplingParams(top_k=3, top_p=0.5, min_p=0.5)
    assert pick(logits, **options(greedy)) == ranked[0]
    assert list(top_perturbed(logits, greedy, None, num_tokens)) == ranked[:num_tokens]
    assert filtered_probs(logits, greedy).tolist() == [float(i == ranked[0]) for i in range(len(logits))]


def test_top_k_keeps_exactly_k_and_the_lowest_ids_among_equals():
    probs = filtered_probs(f32(1, 2, 1, 1, 2, 1), SamplingParams(temperature=1.0, top_k=4))
    assert np.flatnonzero(probs).tolist() == [0, 1, 2, 4]


def test_top_p_keeps_the_token_that_reaches_it_and_no_more():
    logits = np.log(np.array([0.5, 0.25, 0.125, 0.125])).astype(np.float32)
    for top_p, num_kept in ((0.3, 1), (0.49, 1), (0.51, 2), (0.74, 2), (0.76, 3), (0.88, 4), (1.0, 4)):
        probs = filtered_probs(logits, SamplingParams(temperature=1.0, top_p=top_p))
        assert np.count_nonzero(probs) == num_kept, top_p
    # Exactly representable: two of four equal tokens hold a half to the last bit.
    assert np.count_nonzero(filtered_probs(f32(3, 3, 3, 3), SamplingParams(temperature=1.0, top_p=0.5))) == 2


def test_min_p_is_relative_to_the_most_likely_token():
    logits = np.log(np.array([0.6, 0.25, 0.1, 0.05])).astype(np.float32)
    for min_p, num_kept in ((0.05, 4), (0.1, 3), (0.3, 2), (0.5, 1), (1.0, 1)):
        probs = filtered_probs(logits, SamplingParams(temperature=1.0, min_p=min_p))
        assert np.count_nonzero(probs) == num_kept, min_p
    assert np.count_nonzero(filtered_probs(f32(2, 2, 1), SamplingParams(temperature=1.0, min_p=1.0))) == 2


def test_the_filters_see_the_distribution_after_the_temperature():
    logits = np.log(np.array([0.6, 0.3, 0.1])).astype(np.float32)
    assert np.count_nonzero(filtered_probs(logits, SamplingParams(temperature=1.0, top_p=0.55))) == 1
    assert np.count_nonzero(filtered_probs(logits, SamplingParams(temperature=4.0, top_p=0.55))) == 2


def test_each_filter_sees_what_the_one_before_it_left():
    logits = np.log(np.array([0.3, 0.3, 0.2, 0.2])).astype(np.float32)
    # 0.45 needs two of all four tokens, but one of the two that top_k leaves: each then has a half.
    one = filtered_probs(logits, SamplingParams(temperature=1.0, top_k=2, top_p=0.45))
    two = filtered_probs(logits, SamplingParams(temperature=1.0, top_p=0.45))
    assert (np.count_nonzero(one), np.count_nonzero(two)) == (1, 2)


@pytest.mark.parametrize("temperature", [5e-324, 1e-300, 1e-30, 1e-4])
def test_a_tiny_temperature_is_greedy_and_does_not_overflow(temperature):
    logits = f32(-3e38, 1, 3e38, 2.9e38, -INF)
    params = SamplingParams(temperature=temperature, top_p=0.9, min_p=0.01)
    assert pick(logits, **options(params), noise=(0, 0, 0)) == 2
    assert filtered_probs(logits, params).tolist() == [0, 0, 1, 0, 0]
    assert pick(logits, temperature=temperature, noise=(0, 0, 0)) == 2


def test_a_huge_temperature_makes_all_tokens_equally_likely():
    probs = filtered_probs(f32(-30, 0, 30, -INF), SamplingParams(temperature=1e300))
    np.testing.assert_allclose(probs, [1 / 3, 1 / 3, 1 / 3, 0])


@pytest.mark.parametrize("temperature", [0.0, 1.0])
@pytest.mark.parametrize(
    ("logits", "message"),
    [(f32(0, np.nan, 1), "NaN"), (f32(0, INF), "infinite"), (f32(-INF, -INF), "every token is excluded")],
)
def test_logits_that_define_no_distribution_are_refused(temperature, logits, message):
    params = SamplingParams(temperature=temperature)
    for call in (
        lambda: pick(logits, temperature=temperature, noise=(0, 0, 0)),
        lambda: filtered_probs(logits, params),
        lambda: top_perturbed(logits, params, (0, 0, 0), 2),
    ):
        with pytest.raises(ForedraftError, match=message):
            call()


def test_misuse_is_refused():
    with pytest.raises(ValueError, match="noise"):
        pick(f32(0, 1), temperature=1.0)
    for shape in ((0,), (1, 4)):
        with pytest.raises(ValueError, match="one row"):
            pick(np.zeros(shape, dtype=np.float32))


def test_an_excluded_token_is_never_chosen_even_with_a_low_temperature_or_high_noise():
    logits = f32(-INF, 0, -INF, -20)
    params = SamplingParams(temperature=1.0)
    assert all(pick(logits, temperature=1.0, noise=(seed, 0, 0)) in (1, 3) for seed in range(200))
    assert set(top_perturbed(logits, params, (1, 0, 0), 4)) == {1, 3}
    assert pick(logits, temperature=1.0, noise=lambda ids: np.full(ids.shape, -1e300)) == 1


def chi_square(counts, probs):
    """The statistic over its degrees of freedom, as a number of standard deviations (Wilson and Hilferty)."""
    expected = probs * counts.sum()
    likely = expected >= 5
    freedom = np.count_nonzero(likely) - 1
    statistic = float(((counts - expected)[likely] ** 2 / expected[likely]).sum())
    spread = 2 / (9 * freedom)
    return ((statistic / freedom) ** (1 / 3) - (1 - spread)) / math.sqrt(spread)


@pytest.mark.parametrize(
    "params",
    [
        SamplingParams(temperature=1.0),
        SamplingParams(temperature=0.6, top_k=9),
        SamplingParams(temperature=1.5, top_p=0.8),
        SamplingParams(temperature=1.0, top_k=12, top_p=0.95, min_p=0.1),
    ],
)
def test_over_all_seeds_tokens_are_drawn_from_the_filtered_distribution(params):
    logits = np.random.default_rng(2).normal(scale=1.5, size=16).astype(np.float32)
    probs = filtered_probs(logits, params)
    counts = np.bincount([pick(logits, **options(params), noise=(seed, 0, 4)) for seed in range(10_000)], minlength=16)
    assert counts[probs == 0].sum() == 0
    assert chi_square(counts, probs) < 4
    # The check has teeth: the same counts do not fit a distribution a few percent away.
    tilted = probs * np.where(np.arange(16) == probs.argmax(), 1.2, 1.0)
    assert chi_square(counts, tilted / tilted.sum()) > 4


def test_one_seed_over_all_positions_draws_from_the_same_distribution():
    logits = np.random.default_rng(3).normal(size=8).astype(np.float32)
    params = SamplingParams(temperature=1.0)
    counts = np.bincount(
        [pick(logits, temperature=1.0, noise=(9, 0, position)) for position in range(10_000)], minlength=8
    )
    assert chi_square(counts, filtered_probs(logits, params)) < 4


def test_a_row_of_a_whole_vocabulary_is_handled():
    logits = np.random.default_rng(4).normal(size=151_936).astype(np.float32)
    params = SamplingParams(temperature=0.8, top_k=50, top_p=0.9, min_p=0.05)
    kept, _ = kept_by_the_book(logits, params)
    assert np.flatnonzero(filtered_probs(logits, params)).tolist() == sorted(kept)
    assert pick(logits, **options(params), noise=(1, 2, 3)) in kept
    assert (
        pick(logits, temperature=0.8, noise=(1, 2, 3))
        == top_perturbed(logits, SamplingParams(temperature=0.8), (1, 2, 3), 4)[0]
    )
