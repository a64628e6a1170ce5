"""The numbers that rules and drafters decide by: where they come from, and what falls on the borders."""

import hypothesis.strategies as st
import numpy as np
import pytest
from hypothesis import given

from foredraft.accept import SeededChance
from foredraft.sampling import Noise, SamplingParams, draw, filtered_probs
from foredraft.sampling.uniforms import Stream, draw_index, uniform

ALMOST_1 = 1.0 - 2.0**-53


def numbers(stream: Stream, *, events: int = 50, positions: int = 40) -> np.ndarray:
    return np.array([[uniform(stream, 7, 0, p, e) for e in range(events)] for p in range(positions)])


def correlation(a: np.ndarray, b: np.ndarray) -> float:
    return float(np.corrcoef(a.ravel(), b.ravel())[0, 1])


def test_the_bits_stay_what_they_are() -> None:
    """Kind: a seed gives another text after an update."""
    assert uniform(Stream.ACCEPT, 0, 0, 0, 0) == 0.38757116322141594
    assert uniform(Stream.DRAFT, -1, 2, 3, 4) == uniform(Stream.DRAFT, 2**64 - 1, 2, 3, 4) == 0.5191082778468731


def test_the_numbers_are_uniform() -> None:
    values = numbers(Stream.ACCEPT)
    assert 0 <= values.min() < values.max() < 1
    assert abs(values.mean() - 0.5) < 4 / np.sqrt(12 * values.size)
    assert abs(np.var(values) - 1 / 12) < 0.003
    counts = np.histogram(values, bins=20, range=(0, 1))[0]
    assert ((counts - 100) ** 2 / 100).sum() < 45  # 19 degrees of freedom


def test_no_two_streams_places_or_events_share_a_number() -> None:
    """Kind: the tokens of one step share a random number, or the rule decides by the drafter's."""
    accept, drafted = numbers(Stream.ACCEPT), numbers(Stream.DRAFT)
    noise = np.array([Noise(7, 0, p)(np.arange(50)) for p in range(40)])
    bound = 4 / np.sqrt(accept.size)
    for one, other in [
        (accept, drafted),
        (accept, noise),
        (drafted, noise),
        (accept[1:], accept[:-1]),
        (accept[:, 1:], accept[:, :-1]),
        (drafted[1:, 1:], drafted[:-1, :-1]),
        (drafted[1:, :-1], drafted[:-1, 1:]),  # the same place of the text in the next round
    ]:
        assert abs(correlation(one, other)) < bound
    assert len(np.unique(np.concatenate([accept, drafted]))) == 2 * accept.size
    others = {uniform(Stream.ACCEPT, *key, 5) for key in [(7, 0, 3), (8, 0, 3), (7, 1, 3), (7 + 2**32, 0, 3)]}
    assert len(others) == 4


def test_what_cannot_be_never_happens_and_what_must_be_always_does(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a token of probability 0 is accepted when the number is exactly 0."""
    for number in (0.0, 0.5, ALMOST_1):
        monkeypatch.setattr("foredraft.accept.base.uniform", lambda *key, number=number: number)
        chance = SeededChance(0, 0, 0)
        assert not chance.happens(0.0)
        assert chance.happens(1.0)
        assert chance.happens(1.7)
        assert chance.happens(0.5) == (number < 0.5)
        assert chance.draw(np.array([0.0, 0.0, 3.0, 0.0])) == 2


@pytest.mark.parametrize(
    ("weights", "u", "index"),
    [
        ([0, 1, 0, 1, 0], 0.0, 1),
        ([0, 1, 0, 1, 0], 0.5, 3),
        ([0, 1, 0, 1, 0], 0.5 - 1e-12, 1),
        ([0, 1, 0, 1, 0], ALMOST_1, 3),
        ([1, 0], ALMOST_1, 0),
        ([1e-300, 0], ALMOST_1, 0),
        ([0.1] * 10 + [0.0], ALMOST_1, 9),
        ([5], 0.0, 0),
    ],
)
def test_the_borders_of_a_draw(weights: list[float], u: float, index: int) -> None:
    assert draw_index(np.array(weights, dtype=float), u) == index


@given(st.lists(st.sampled_from([0.0, 1e-12, 0.1, 0.3, 1.0]), min_size=1).filter(any), st.floats(0, ALMOST_1))
def test_a_draw_never_falls_on_a_weight_of_0(weights: list[float], u: float) -> None:
    assert weights[draw_index(np.array(weights), u)] > 0


def test_nothing_can_be_drawn_from_nothing() -> None:
    with pytest.raises(ValueError, match="nothing to draw"):
        draw_index(np.zeros(3), 0.5)


class View:
    """A sequence."""

    tokens = [1, 2, 3]  # noqa: RUF012
    sample_index = 0
    processors = None

    def __init__(self, **params: object) -> None:
        self.params = SamplingParams(**params)


LOGITS = np.array([0.5, 2.0, -1.0, 1.0, 0.0], dtype=np.float32)


def test_a_drafter_draws_under_the_options_of_the_request() -> None:
    """Kind: tokens are drafted that the request's filters exclude, or a wrong distribution is named."""
    for params in ({"top_k": 1}, {"top_k": 3}, {"top_p": 0.6}, {"min_p": 0.3}, {"temperature": 0.4}):
        view = View(**{"temperature": 1.0, "seed": 3} | params)
        exact = filtered_probs(LOGITS, view.params)
        drawn = draw(LOGITS, view, count=5, first_event=0, vocab_size=5)
        assert {token for token, _ in drawn} == set(np.flatnonzero(exact).tolist())
        np.testing.assert_allclose(drawn[0].draft_probs_V, exact, atol=1e-12)
        left = exact.copy()
        for token, probs in drawn:
            np.testing.assert_allclose(probs, left / left.sum(), atol=1e-12)
            left[token] = 0.0


def test_a_draw_from_some_tokens_of_a_vocabulary() -> None:
    token_ids = np.array([2, 3, 7, 11, 30])
    view = View(temperature=1.0, seed=3)
    [(token, probs)] = draw(LOGITS, view, count=1, first_event=0, vocab_size=40, token_ids=token_ids)
    assert token in token_ids.tolist()
    assert probs.shape == (40,)
    assert np.flatnonzero(probs).tolist() == token_ids.tolist()


def test_draws_follow_their_distribution_over_seeds() -> None:
    exact = filtered_probs(LOGITS, SamplingParams(temperature=1.0))
    drawn = [draw(LOGITS, View(temperature=1.0, seed=s), count=1, first_event=4, vocab_size=5) for s in range(4000)]
    counts = np.bincount([token for [(token, _)] in drawn], minlength=5)
    assert ((counts - 4000 * exact) ** 2 / (4000 * exact)).sum() < 25  # 4 degrees of freedom


def test_at_temperature_0_nothing_is_drawn() -> None:
    with pytest.raises(ValueError, match="temperature 0"):
        draw(LOGITS, View(), count=1, first_event=0, vocab_size=5)
