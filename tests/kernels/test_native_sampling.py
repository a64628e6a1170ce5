"""The compiled choice of tokens against the NumPy reference."""

import functools

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from foredraft import _native
from foredraft.kernels.native import NativeKernels
from foredraft.kernels.reference import ReferenceKernels
from foredraft.sampling.noise import gumbel
from foredraft.sampling.params import SamplingParams
from foredraft.sampling.pick import pick, top_perturbed

KERNELS = [_native.select_kernels(isa) for isa in _native.available_kernels()]
GAP = 1e-9
"""Compared scores differ by more than this, so that the last bit of a logarithm cannot decide."""

with_each_set = pytest.mark.parametrize("kernels", KERNELS, ids=lambda kernels: kernels.name)
rules = st.fixed_dictionaries(
    {
        "temperature": st.sampled_from([0.0, 1e-300, 1e-3, 0.5, 0.8, 1.0, 1.7, 50.0]),
        "top_k": st.sampled_from([0, 1, 2, 5, 40, 10**6]),
        "top_p": st.sampled_from([1.0, 0.999, 0.95, 0.5, 0.1, 1e-9]),
        "min_p": st.sampled_from([0.0, 1e-6, 0.05, 0.5, 1.0]),
    }
)


def native_pick(kernels: _native.Kernels, logits_V, rule, noise, count=1) -> list[int]:  # type: ignore[no-untyped-def]
    names = ("temperature", "top_k", "top_p", "min_p")
    return _native.pick(kernels, logits_V, *(rule[name] for name in names), *noise, count)


def random_logits(seed: int, size: int) -> np.ndarray:
    """Normal logits with ties and excluded tokens among them."""
    random = np.random.default_rng(seed)
    logits = (random.standard_normal(size) * random.choice([0.1, 3.0, 12.0])).astype(np.float32)
    if random.random() < 0.5:
        logits = np.round(logits)  # ties everywhere
    logits[random.random(size) < random.choice([0.0, 0.3])] = -np.inf
    logits[random.integers(size)] = 1.5
    return logits


def decided(logits_V: np.ndarray, rule: dict[str, float], noise: tuple[int, int, int]) -> bool:
    """Whether no two tokens score so much alike, and no mass lies so near a filter, that one bit may decide."""
    if rule["temperature"] == 0.0:
        return True
    ids = np.flatnonzero(logits_V != -np.inf)
    logits = logits_V[ids].astype(np.float64)
    with np.errstate(over="ignore"):
        z = (logits - logits.max()) / rule["temperature"]
    scores = np.sort((z + gumbel(*noise, ids))[np.isfinite(z)])
    weights = np.exp(z[np.argsort(-z, kind="stable")])
    kept = weights[: int(rule["top_k"]) or None]
    borders = [np.cumsum(kept) / kept.sum() - rule["top_p"]] if rule["top_p"] < 1.0 else []
    if rule["min_p"] > 0.0:
        # A weight of exactly 1 passes everywhere, since exp(0) is 1 everywhere.
        borders.append(weights[weights != 1.0] / rule["min_p"] - 1.0)
    return all((np.abs(distances) > GAP).all() for distances in (np.diff(scores), *borders))


@with_each_set
@settings(max_examples=500)
@given(
    rule=rules,
    seed=st.integers(0, 2**64 - 1),
    size=st.sampled_from([1, 2, 3, 16, 17, 300, 1500]),
    noise=st.tuples(st.integers(0, 2**64 - 1), st.integers(0, 2**32 - 1), st.integers(0, 2**32 - 1)),
    count=st.sampled_from([1, 2, 7, 5000]),
)
def test_choices_equal_the_reference(kernels, rule, seed, size, noise, count) -> None:  # type: ignore[no-untyped-def]
    logits = random_logits(seed, size)
    if not decided(logits, rule, noise):
        return
    assert native_pick(kernels, logits, rule, noise) == [pick(logits, **rule, noise=noise)]
    several = native_pick(kernels, logits, rule, noise, count)
    assert several == list(top_perturbed(logits, SamplingParams(**rule), noise, count))


def test_most_random_rows_are_decided() -> None:
    # The test above must not pass by leaving everything out.
    rule = {"temperature": 0.8, "top_k": 40, "top_p": 0.95, "min_p": 0.05}
    num_decided = sum(decided(random_logits(seed, 1500), rule, (seed, 0, 9)) for seed in range(200))
    assert num_decided > 180


@with_each_set
def test_a_vocabulary_of_real_size(kernels: _native.Kernels) -> None:
    rule = {"temperature": 0.9, "top_k": 0, "top_p": 0.9, "min_p": 0.0}
    for seed in range(5):
        logits = (np.random.default_rng(seed).standard_normal(151_936) * 2.0).astype(np.float32)
        noise = (seed, 1, 77)
        assert native_pick(kernels, logits, rule, noise) == [pick(logits, **rule, noise=noise)]


@with_each_set
def test_equal_logits_fall_to_the_lowest_id(kernels: _native.Kernels) -> None:
    logits = np.zeros(100, dtype=np.float32)
    logits[[13, 40, 99]] = 2.0
    rule = {"temperature": 0.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    assert native_pick(kernels, logits, rule, (0, 0, 0)) == [13]
    assert native_pick(kernels, logits, rule, (0, 0, 0), 4) == [13, 40, 99, 0]
    # At a top-k of 2 the first two of the three tied tokens stay, whatever the noise.
    rule |= {"temperature": 1.0, "top_k": 2}
    chosen = {native_pick(kernels, logits, rule, (seed, 0, 0))[0] for seed in range(50)}
    assert chosen == {13, 40}


@settings(max_examples=300)
@given(
    seed=st.integers(0, 2**64 - 1),
    choice=st.integers(0, 2**32 - 1),
    position=st.integers(0, 2**32 - 1),
    token=st.integers(0, 2**32 - 1),
)
def test_noise_is_that_of_the_recipe(seed: int, choice: int, position: int, token: int) -> None:
    expected = gumbel(seed, choice, position, np.array([token]))[0]
    # Two logarithms, each right to a unit in the last place.
    assert _native.gumbel(seed, choice, position, token) == pytest.approx(expected, rel=1e-14, abs=1e-15)


@with_each_set
def test_probability_of_a_token(kernels: _native.Kernels) -> None:
    logits = random_logits(3, 5000)
    for temperature in (0.3, 1.0, 7.0):
        z = logits.astype(np.float64) / temperature
        probs = np.exp(z - z.max()) / np.exp(z - z.max()).sum()
        for token in (0, 17, 4999, int(logits.argmax())):
            found = _native.token_probability(kernels, logits, temperature, token)
            assert found == pytest.approx(probs[token], rel=1e-5)
    assert _native.token_probability(kernels, np.array([1, 3, 2], np.float32), 1e-300, 1) == 1.0


@with_each_set
@pytest.mark.parametrize("bad", [np.nan, np.inf])
@pytest.mark.parametrize("at", [0, 15, 16, 32])
def test_unusable_logits_are_refused(kernels: _native.Kernels, bad: float, at: int) -> None:
    logits = np.zeros(33, dtype=np.float32)
    logits[at] = bad
    for temperature in (0.0, 1.0):
        with pytest.raises(ValueError, match="not a number or infinite"):
            _native.pick(kernels, logits, temperature, 0, 1.0, 0.0, 0, 0, 0, 1)
    with pytest.raises(ValueError, match="not a number or infinite"):
        _native.token_probability(kernels, logits, 1.0, 0)


@with_each_set
def test_no_token_left_is_refused(kernels: _native.Kernels) -> None:
    for logits in (np.full(40, -np.inf, np.float32), np.zeros(0, np.float32)):
        for temperature in (0.0, 1.0):
            with pytest.raises(ValueError, match="every token is excluded"):
                _native.pick(kernels, logits, temperature, 0, 1.0, 0.0, 0, 0, 0, 1)


@pytest.mark.parametrize(
    "change",
    [
        {"temperature": -0.5},
        {"temperature": np.nan},
        {"temperature": np.inf},
        {"top_k": -1},
        {"top_p": 0.0},
        {"top_p": 1.01},
        {"top_p": np.nan},
        {"min_p": -0.1},
        {"min_p": 1.1},
        {"min_p": np.nan},
        {"count": 0},
    ],
)
def test_impossible_rules_are_refused(change: dict[str, float]) -> None:
    rule = {"temperature": 1.0, "top_k": 0, "top_p": 1.0, "min_p": 0.0}
    rule |= {"seed": 0, "choice": 0, "position": 0, "count": 1}
    choose = functools.partial(_native.pick, KERNELS[0], np.zeros(4, np.float32))
    choose(**rule)
    with pytest.raises(ValueError, match="pick: "):
        choose(**rule | change)


@pytest.mark.parametrize("temperature", [0.0, -1.0, np.nan, np.inf])
def test_a_probability_needs_a_temperature(temperature: float) -> None:
    with pytest.raises(ValueError, match="temperature must be above 0"):
        _native.token_probability(KERNELS[0], np.zeros(4, np.float32), temperature, 0)
    with pytest.raises(ValueError, match="no such token"):
        _native.token_probability(KERNELS[0], np.zeros(4, np.float32), 1.0, 4)


def test_a_top_k_beyond_every_integer_of_the_kernels_keeps_all() -> None:
    # 10**30 is a valid top_k of SamplingParams, but does not fit the compiled function's argument.
    logits = random_logits(5, 300)
    kernels = NativeKernels(1)
    for temperature in (0.0, 1.0):
        chosen = [
            kernels.pick(logits, temperature=temperature, top_k=top_k, top_p=1.0, min_p=0.0, noise=(7, 0, 3))
            for top_k in (0, 10**30)
        ]
        assert chosen[0] == chosen[1]


@pytest.mark.parametrize("temperature", [0.0, 0.8, 3.0])
def test_logits_of_some_tokens_only(temperature: float) -> None:
    """Kind: the noise of a shortened vocabulary is that of the places in it, not of the tokens."""
    token_ids = np.array([1, 5, 6, 70, 71, 300, 50_000], dtype=np.int32)
    chosen = set()
    for position in range(60):
        logits_V = np.random.default_rng(position).standard_normal(len(token_ids)).astype(np.float32)
        whole_V = np.full(50_001, -np.inf, dtype=np.float32)
        whole_V[token_ids] = logits_V
        rule = {"temperature": temperature, "top_k": 0, "top_p": 1.0, "min_p": 0.0, "noise": (9, 0, position)}
        for kernels in (NativeKernels(1), ReferenceKernels()):
            some = kernels.pick(logits_V, token_ids=token_ids, count=3, **rule)  # type: ignore[arg-type]
            assert some == kernels.pick(whole_V, count=3, **rule)  # type: ignore[arg-type]
        chosen.add(some[0])
    assert len(chosen) > 3
