import math

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from foredraft.sampling.noise import Noise, gumbel, philox4x32, uniform_words

MASK = 0xFFFFFFFF


def philox_by_the_paper(counter, key):
    """One counter at a time with Python's integers: the rounds as the paper draws them."""
    left0, right0, left1, right1 = counter[1], counter[0], counter[3], counter[2]
    for number in range(10):
        k0 = (key[0] + number * 0x9E3779B9) & MASK
        k1 = (key[1] + number * 0xBB67AE85) & MASK
        high0, low0 = divmod(right0 * 0xD2511F53, 1 << 32)
        high1, low1 = divmod(right1 * 0xCD9E8D57, 1 << 32)
        right0, left0, right1, left1 = high1 ^ left0 ^ k0, low1, high0 ^ left1 ^ k1, low0
    return [right0, left0, right1, left1]


# The vectors published for philox4x32-10 with the Random123 library.
KNOWN_ANSWERS = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((MASK,) * 4, (MASK,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


@pytest.mark.parametrize(("counter", "key", "words"), KNOWN_ANSWERS)
def test_philox_gives_the_published_words(counter, key, words):
    assert tuple(philox4x32(np.array(counter, dtype=np.uint32), key).tolist()) == words
    assert tuple(philox_by_the_paper(counter, key)) == words


words_32 = st.integers(0, MASK)


@given(st.lists(st.tuples(*[words_32] * 4), min_size=1, max_size=4), st.tuples(words_32, words_32))
def test_philox_equals_the_scalar_version(counters, key):
    found = philox4x32(np.array(counters, dtype=np.uint32), key)
    assert found.tolist() == [philox_by_the_paper(counter, key) for counter in counters]


@given(
    seed=st.integers(-(2**63), 2**64 - 1),
    choice=words_32,
    position=words_32,
    token_ids=st.lists(st.one_of(st.integers(0, 40), words_32), max_size=12),
)
def test_the_words_follow_the_documented_recipe(seed, choice, position, token_ids):
    key = (seed % 2**64 % 2**32, seed % 2**64 // 2**32)
    expected = [
        philox_by_the_paper((token_id // 4, position, choice, 0x666F7264), key)[token_id % 4] for token_id in token_ids
    ]
    found = uniform_words(seed, choice, position, np.array(token_ids, dtype=np.int64))
    assert found.tolist() == expected
    assert found.dtype == np.uint32
    noise = gumbel(seed, choice, position, np.array(token_ids, dtype=np.int64))
    formula = [-math.log(-math.log((word + 0.5) / 2**32)) for word in expected]
    np.testing.assert_allclose(noise, formula, rtol=1e-14, atol=1e-14)


def test_the_noise_of_a_token_does_not_depend_on_the_other_tokens_asked_for():
    whole = gumbel(7, 1, 300, np.arange(5000))
    chosen = np.random.default_rng(0).choice(5000, size=777, replace=False)
    for ids in (
        chosen,
        np.sort(chosen),
        np.arange(3, 4001),
        chosen.reshape(21, 37),
        np.array([4999]),
        chosen[:2],
    ):
        found = gumbel(7, 1, 300, ids)
        assert found.shape == ids.shape
        assert found.tobytes() == whole[ids].tobytes()


def test_the_type_and_the_layout_of_the_ids_do_not_matter():
    ids = np.arange(0, 600, 3)
    expected = gumbel(1, 0, 0, ids).tobytes()
    assert gumbel(1, 0, 0, ids.astype(np.int32)).tobytes() == expected
    assert gumbel(1, 0, 0, ids.astype(np.uint32)).tobytes() == expected
    assert gumbel(1, 0, 0, np.arange(600)[::3]).tobytes() == expected
    assert Noise(1, 0, 0)(ids).tobytes() == expected


def test_the_extreme_words_give_finite_noise(monkeypatch):
    words = np.array([0, MASK], dtype=np.uint32)
    monkeypatch.setattr("foredraft.sampling.noise.uniform_words", lambda *_: words)
    assert gumbel(0, 0, 0, np.arange(2)) == pytest.approx([-3.12999, 22.87386], abs=1e-5)


def test_a_negative_seed_counts_modulo_two_to_the_64():
    ids = np.arange(9)
    assert gumbel(-1, 0, 0, ids).tolist() == gumbel(2**64 - 1, 0, 0, ids).tolist()


@pytest.mark.parametrize(
    ("seed", "choice", "position", "token_ids"),
    [(2**64, 0, 0, [1]), (-(2**63) - 1, 0, 0, [1]), (0, -1, 0, [1]), (0, 0, 2**32, [1]), (0, 0, 0, [3, -1]),
     (0, 0, 0, [2**32])],
)  # fmt: skip
def test_what_does_not_fit_the_recipe_is_refused(seed, choice, position, token_ids):
    with pytest.raises(ValueError, match=r"seed|choice|position|token ids"):
        gumbel(seed, choice, position, np.array(token_ids))


# --- Statistics: each number below is a mean over `n` draws, so it may stray a few times 1 / sqrt(n). ---

NUM_TOKENS, NUM_POSITIONS = 1000, 200


@pytest.fixture(scope="module")
def noise_pv():
    ids = np.arange(NUM_TOKENS)
    return np.stack([gumbel(11, 0, position, ids) for position in range(NUM_POSITIONS)])


def test_mean_variance_and_distribution_are_those_of_a_standard_gumbel(noise_pv):
    n = noise_pv.size
    assert noise_pv.mean() == pytest.approx(0.5772157, abs=5 * math.sqrt(1.645 / n))
    assert noise_pv.var() == pytest.approx(math.pi**2 / 6, rel=0.02)
    distribution = np.exp(-np.exp(-np.sort(noise_pv.ravel())))
    distance = np.abs(distribution - (np.arange(n) + 0.5) / n).max()
    assert distance < 2.0 / math.sqrt(n)  # Kolmogorov-Smirnov, p < 1e-3 if it fails


def correlation(a, b):
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


@pytest.mark.parametrize("distance", [1, 2, 3, 4, 7])
def test_neighbouring_positions_and_tokens_are_uncorrelated(noise_pv, distance):
    limit = 5 / math.sqrt(noise_pv.size)
    assert abs(correlation(noise_pv[distance:], noise_pv[:-distance])) < limit
    assert abs(correlation(noise_pv[:, distance:], noise_pv[:, :-distance])) < limit


def test_neighbouring_choices_and_seeds_are_uncorrelated():
    ids = np.arange(100_000)
    first = gumbel(3, 0, 5, ids)
    limit = 5 / math.sqrt(ids.size)
    for other in (
        gumbel(3, 1, 5, ids),
        gumbel(4, 0, 5, ids),
        gumbel(3 + 2**32, 0, 5, ids),
        gumbel(3, 5, 0, ids),
    ):
        assert abs(correlation(first, other)) < limit


def test_the_correlation_check_can_fail(noise_pv):
    assert correlation(noise_pv, noise_pv + noise_pv[:, ::-1]) > 0.5


def test_every_bit_of_the_words_is_fair():
    words = uniform_words(5, 0, 9, np.arange(100_000))
    for bit in range(32):
        assert (words >> np.uint32(bit) & 1).mean() == pytest.approx(0.5, abs=5 * 0.5 / math.sqrt(words.size))
