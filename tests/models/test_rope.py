import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from foredraft.models.folder_config import config_from_folder
from foredraft.models.rope import RopeConfig, yarn_attention_factor

CASES: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("data").joinpath("rope_expected.json").read_text()
)


def assert_close(rope: RopeConfig, bits: list[int], magnitude: float) -> None:
    """Equal but for the last bit or two: torch's float32 powers are not always the nearest ones."""
    frequencies = rope.inverse_frequencies()
    assert frequencies.dtype == np.float32
    expected = np.array(bits, dtype=np.uint32).view(np.float32)
    np.testing.assert_allclose(frequencies, expected, rtol=4e-7)
    assert rope.magnitude == pytest.approx(magnitude, rel=1e-12)


@pytest.mark.parametrize("name", CASES)
def test_frequencies_are_those_of_transformers(name: str) -> None:
    case = CASES[name]
    config = config_from_folder(case["config"], Path("model"))
    assert_close(config.rope, case["full"], case["full_magnitude"])
    assert (config.local_rope is None) == ("sliding" not in case)
    if config.local_rope is not None:
        assert_close(config.local_rope, case["sliding"], case["sliding_magnitude"])


def test_the_cases_differ_where_their_settings_do() -> None:
    # Expected values that were all the same would prove nothing.
    frequencies = {tuple(case["full"]) for case in CASES.values()}
    assert len(frequencies) == len(CASES) - 2  # three cases of yarn differ in magnitude only


def test_frequency_factors_divide() -> None:
    plain = RopeConfig(base=10000.0, dim=8)
    factors = (1.0, 2.0, 4.0, 8.0)
    with_factors = RopeConfig(base=10000.0, dim=8, frequency_factors=factors)
    np.testing.assert_allclose(
        with_factors.inverse_frequencies(), plain.inverse_frequencies() / np.array(factors), rtol=1e-7
    )


def test_plain_frequencies_are_the_nearest_float32() -> None:
    frequencies = RopeConfig(base=10000.0, dim=4).inverse_frequencies()
    np.testing.assert_array_equal(frequencies, np.array([1.0, 0.01], dtype=np.float32))


def test_magnitudes() -> None:
    assert RopeConfig(base=10000.0, dim=8, attention_factor=3.0).magnitude == 1.0
    assert yarn_attention_factor(0.5) == 1.0
    assert yarn_attention_factor(np.e) == pytest.approx(1.1)
