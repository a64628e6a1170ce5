import numpy as np
import pytest

from foredraft.planner.survival import Survival


def taught(truth: dict[float, float], *, number: int = 4000, seed: int = 0) -> Survival:
    """A survival that has seen tokens of each confidence be right with the probability given."""
    survival, random = Survival(), np.random.default_rng(seed)
    for number_, confidence in enumerate(random.choice(list(truth), number).tolist()):
        survival.learn(number_ // 40, confidence, 1, right=bool(random.random() < truth[confidence]))
        if number_ % 40 == 39:
            survival.end(number_ // 40)
    return survival


def test_chances_come_to_what_happens() -> None:
    truth = {0.99: 0.7, 0.6: 0.65, 0.3: 0.05}
    survival = taught(truth)
    for confidence, rate in truth.items():
        assert survival.chance(10**6, confidence, 1) == pytest.approx(rate, abs=0.07)


def test_chances_are_calibrated_while_they_are_learned() -> None:
    """Of the tokens in each tenth of chance as many are right as expected; all in all but for 8 % (Naeini et al.)."""
    truth, survival, random = {0.99: 0.7, 0.6: 0.65, 0.3: 0.05}, Survival(), np.random.default_rng(1)
    tenths = np.zeros((10, 2))
    for number, confidence in enumerate(random.choice(list(truth), 4000).tolist()):
        chance, right = survival.chance(number // 40, confidence, 1), bool(random.random() < truth[confidence])
        tenths[min(int(10 * chance), 9)] += chance, right
        survival.learn(number // 40, confidence, 1, right=right, expected=chance)
    assert abs(tenths[:, 0] - tenths[:, 1]).sum() / 4000 < 0.08


def test_before_anything_is_seen_the_drafter_is_nearly_believed() -> None:
    survival = Survival()
    assert survival.is_empty
    chances = [survival.chance(0, confidence, 1) for confidence in (0.1, 0.5, 0.9, 1.0)]
    assert chances == sorted(chances)
    assert 0.75 < chances[-1] < 1.0


def test_a_sequence_of_its_own_kind_is_noticed_soon_and_stays_alone() -> None:
    survival = taught({0.9: 0.9})
    usual = survival.chance(-1, 0.9, 1)
    for _ in range(8):
        survival.learn(-1, 0.9, 1, right=False)
    assert survival.chance(-1, 0.9, 1) < 0.7 * usual
    assert survival.chance(-2, 0.9, 1) > 0.95 * usual
    for _ in range(40):
        survival.learn(-1, 0.9, 1, right=True)
    assert survival.chance(-1, 0.9, 1) > 0.9 * usual
    survival.end(-1)
    survival.end(-1)
    assert survival.chance(-1, 0.9, 1) == survival.chance(-2, 0.9, 1)


def test_depth_matters_where_it_was_seen_to() -> None:
    survival, random = Survival(), np.random.default_rng(1)
    for _ in range(2000):
        survival.learn(0, 0.8, 1, right=bool(random.random() < 0.9))
        survival.learn(0, 0.8, 6, right=bool(random.random() < 0.4))
    survival.end(0)
    assert survival.chance(0, 0.8, 1) == pytest.approx(0.9, abs=0.08)
    assert survival.chance(0, 0.8, 6) == pytest.approx(0.4, abs=0.08)


def test_chances_stay_chances() -> None:
    survival, random = Survival(), np.random.default_rng(2)
    for _ in range(3000):
        confidence, depth = float(random.random()), int(random.integers(1, 20))
        chance = survival.chance(int(random.integers(3)), confidence, depth)
        assert 0.0 < chance < 1.0
        survival.learn(int(random.integers(3)), confidence, depth, right=bool(random.random() < 0.02))


def test_old_counts_fade() -> None:
    """Kind: after a thousand wrong tokens a drafter that is right now is not believed for another thousand."""
    survival = taught({0.9: 0.02}, number=3000)
    for number in range(600):
        survival.learn(-number, 0.9, 1, right=True)
        survival.end(-number)
    assert survival.chance(1, 0.9, 1) > 0.5
