import json
from pathlib import Path

import numpy as np
import pytest

from foredraft.planner.calibration import CalibrationStore, calibrate, holds
from foredraft.planner.cost import Calibration, CostModel, continued
from foredraft.testing import SimulatedClock

MEASURED = Calibration((1, 2, 4, 8, 16), (0.020, 0.021, 0.022, 0.030, 0.060), 1e-6, 1e-7)


def test_what_was_measured_is_predicted_and_the_rest_lies_between() -> None:
    model = CostModel(MEASURED)
    for number, seconds in zip(MEASURED.num_tokens, MEASURED.seconds, strict=True):
        assert model.seconds(number) == pytest.approx(seconds)
    assert model.seconds(6) == pytest.approx(0.026)
    assert model.seconds(32) == pytest.approx(0.060 + 16 * 0.030 / 8)
    assert model.seconds(100) > model.seconds(99)
    assert model.seconds(2, num_token_positions=2000, num_positions=1000) == pytest.approx(0.021 + 1e-3 + 2e-4)


def test_a_slower_machine_is_noticed_and_a_hiccup_is_not() -> None:
    """Kind: one disturbed round decides what is drafted from then on."""
    model = CostModel(MEASURED)
    for round_ in range(30):
        model.observe(1, 0.020 if round_ % 7 else 0.200)
    assert model.seconds(1) == pytest.approx(0.020)
    for _ in range(30):
        model.observe(1, 0.030)
    assert model.seconds(1) == pytest.approx(0.030)


def test_where_the_speed_changes_more_tokens_are_hoped_to_cost_little() -> None:
    """Kind: tokens seem dear because only the memory became slower, are not tried, and so go on seeming dear."""
    for seconds in (0.030, 0.012):
        model = CostModel(MEASURED)
        for _ in range(30):
            model.observe(1, seconds)
        in_proportion, compute_alone = 0.030 * seconds / 0.020, max(0.030, seconds)
        assert min(in_proportion, compute_alone) <= model.seconds(8) <= (in_proportion + compute_alone) / 2


def test_what_was_seen_is_remembered_for_when_the_machine_is_as_fast_again() -> None:
    model = CostModel(MEASURED)
    fast, slow = {1: 0.016, 2: 0.019, 8: 0.034}, {1: 0.024, 2: 0.0245, 8: 0.033}
    for _ in range(3):
        for state in (fast, slow):
            for number in (1, 2, 8) * 5:
                model.observe(number, state[number])
    for state in (fast, slow):
        for _ in range(5):
            model.observe(1, state[1])
        for number, seconds in state.items():
            assert model.seconds(number) == pytest.approx(seconds, rel=0.04)


@pytest.mark.parametrize("factor", [0.5, 0.8, 1.5, 2.0])
def test_a_speed_that_only_passes_of_more_tokens_show_is_that_of_one_token_too(factor: float) -> None:
    """Kind: where every round drafts, a plain round is thought to take as long as when the machine was slow."""
    model = CostModel(MEASURED)
    for _ in range(30):
        model.observe(8, factor * 0.030)
    assert model.seconds(1) == pytest.approx(factor * 0.020, rel=0.02)


def test_without_passes_of_one_token_those_of_more_say_how_fast_the_machine_is() -> None:
    model = CostModel(MEASURED)
    for _ in range(40):
        model.observe(8, 0.060)
    assert model.seconds(8) == pytest.approx(0.060, rel=0.05)
    assert model.seconds(16) > 0.07


def test_a_calibration_that_is_wrong_for_some_numbers_is_not_taken_for_a_change_of_speed() -> None:
    """Kind: without passes of one token, those of four and of eight say in turn that the machine is fast and slow."""
    model = CostModel(MEASURED)
    for turn in range(200):
        model.observe(*((4, 0.022), (8, 0.045))[turn % 2])
        if turn > 40:
            assert model.seconds(8) == pytest.approx(0.045, rel=0.07)
            assert model.seconds(4) == pytest.approx(0.022, rel=0.07)


def test_what_was_seen_of_a_number_of_tokens_outweighs_what_was_seen_of_others() -> None:
    model = CostModel(MEASURED)
    for _ in range(20):
        model.observe(1, 0.030)
        model.observe(8, 0.030)
    assert model.seconds(1) == pytest.approx(0.030, rel=0.1)
    assert model.seconds(8) == pytest.approx(0.030, rel=0.15)


def test_what_was_seen_long_ago_is_let_go() -> None:
    """Kind: passes that were slow once are never asked for again, and so never seen to be fast."""
    model = CostModel(MEASURED)
    for _ in range(9):
        model.observe(8, 0.060)
    assert model.seconds(8) == pytest.approx(0.060, rel=0.06)
    for _ in range(1000):
        model.observe(1, 0.020)
    assert model.seconds(8) <= 1.2 * 0.030


def test_more_tokens_are_never_predicted_to_take_less() -> None:
    model = CostModel(MEASURED)
    random = np.random.default_rng(0)
    for _ in range(200):
        model.observe(int(random.integers(1, 20)), float(random.uniform(0.01, 0.1)))
        table = [model.seconds(number) for number in range(1, 81)]
        assert table == sorted(table)


def test_impossible_calibrations_are_refused() -> None:
    for numbers, seconds in [((), ()), ((2,), (0.1,)), ((1, 2), (0.1,)), ((1, 1), (0.1, 0.1)), ((1,), (0.0,))]:
        with pytest.raises(ValueError, match="calibration"):
            Calibration(numbers, seconds)


def fake_pass(num_tokens: int, context: int) -> float:
    return 0.01 + 0.001 * num_tokens + context * (2e-6 + 1e-6 * num_tokens)


def test_calibration_finds_tokens_and_attention() -> None:
    found = calibrate(fake_pass, context=1000)
    assert found.num_tokens == (1, 2, 4, 8, 9, 16)
    assert found.seconds == pytest.approx([0.011, 0.012, 0.014, 0.018, 0.019, 0.026])
    assert found.per_position == pytest.approx(2e-6)
    assert found.per_position_token == pytest.approx(1e-6)
    assert calibrate(fake_pass, context=0).per_position == 0.0


def test_a_disturbed_pass_is_left_out() -> None:
    times = iter([9.0] + [0.01, 5.0, 0.01] * 50)
    found = calibrate(lambda num_tokens, context: next(times), num_tokens=(1, 2), context=0)
    assert max(found.seconds) < 6.0
    assert found.seconds[0] == 0.01


def test_of_two_passes_the_undisturbed_one_counts(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: where there is no time for a third turn, a disturbed second one is what a pass is taken to cost."""
    clock, times = SimulatedClock(), iter([0.1, 0.1, 0.1, 9.0])

    def time_pass(num_tokens: int, context: int) -> float:
        seconds = next(times)
        clock.advance(seconds)
        return seconds

    monkeypatch.setattr("foredraft.planner.calibration.time.perf_counter", clock)
    assert calibrate(time_pass, num_tokens=(1, 2), context=0, budget_s=1.0).seconds == (0.1, 0.1)


def test_attention_never_seems_to_cost_more_than_the_weights() -> None:
    """Kind: a disturbance while the context is measured makes drafts behind every long prompt seem not to pay."""
    found = calibrate(lambda num_tokens, context: 5.0 if context else 0.01, context=1000)
    assert found.per_position <= 0.01 / 1000


def test_what_was_saved_on_a_busy_machine_is_not_believed() -> None:
    """Kind: a calibration that something disturbed decides what is drafted for ever after."""
    found = calibrate(fake_pass, context=1000)
    assert holds(found, fake_pass, context=1000)
    assert holds(found, lambda num_tokens, context: 3.0 * fake_pass(num_tokens, context), context=1000)  # busy now
    assert holds(found, lambda num_tokens, context: fake_pass(num_tokens, context) / 1.2, context=1000)  # not much less
    assert not holds(found, lambda num_tokens, context: fake_pass(num_tokens, context) / 2, context=1000)
    assert not holds(found, lambda num_tokens, context: fake_pass(1, context), context=1000)  # wide passes only
    assert not holds(found, lambda num_tokens, context: fake_pass(num_tokens, 0), context=4000)  # attention only
    assert holds(calibrate(fake_pass, context=0), fake_pass, context=0)


def test_saved_and_found_again(tmp_path: Path) -> None:
    store = CalibrationStore(tmp_path / "new" / "folder")
    key = {"model": ["a.gguf", 12, 34], "threads": 2}
    assert store.load(key) is None
    store.save(key, MEASURED)
    assert store.load(key) == MEASURED
    assert store.load({**key, "threads": 1}) is None
    [file] = (tmp_path / "new" / "folder").iterdir()
    for damage in ("", "{", "[]", "null", json.dumps({"key": key}), file.read_text().replace("0.02", '"x"', 1)):
        file.write_text(damage)
        assert store.load(key) is None
    store.save(key, MEASURED)
    assert store.load(key) == MEASURED


def test_a_folder_that_cannot_be_written_costs_nothing_but_the_memory(tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    store = CalibrationStore(tmp_path / "file" / "below")
    store.save({"a": 1}, MEASURED)
    assert store.load({"a": 1}) is None


def test_passes_of_more_tokens_than_were_measured_cost_whole_groups() -> None:
    """Kind: the flat rise within a group of tokens is taken for that of all further ones, and drafts seem free."""
    measured = Calibration((1, 2, 4, 8, 9, 16), (1.0, 1.0, 1.1, 1.4, 2.2, 2.6))
    cost = CostModel(measured)
    for num_tokens, seconds in ((9, 2.2), (16, 2.6), (17, 3.4), (24, 3.8), (25, 4.6), (32, 5.0), (64, 9.8)):
        assert cost.seconds(num_tokens) == pytest.approx(seconds)
    # What is seen there is learned there.
    for _ in range(20):
        cost.observe(16, 2.6)
        cost.observe(24, 5.0)
    assert cost.seconds(24) == pytest.approx(5.0, rel=0.05)
    assert cost.seconds(16) == pytest.approx(2.6, rel=0.05)
    for left_as_it_is in (((1, 2, 4, 8, 64), (1, 1, 1, 2, 9)), ((1, 3), (1, 2)), ((1,), (1,))):
        calibration = Calibration(left_as_it_is[0], tuple(map(float, left_as_it_is[1])))
        assert continued(calibration) is calibration
