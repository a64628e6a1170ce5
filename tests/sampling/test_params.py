import dataclasses

import numpy as np
import pytest

from foredraft.errors import OptionError, UserError
from foredraft.sampling import SamplingParams


def test_the_defaults_are_greedy_with_every_filter_off():
    params = SamplingParams()
    assert params.greedy
    assert (params.max_tokens, params.top_k, params.top_p, params.min_p) == (128, 0, 1.0, 0.0)
    assert (params.seed, params.stop, params.stop_token_ids, params.ignore_eos) == (None, (), (), False)


def test_params_cannot_be_changed_or_given_by_place():
    with pytest.raises(dataclasses.FrozenInstanceError):
        SamplingParams().seed = 1  # type: ignore[misc]
    with pytest.raises(TypeError):
        SamplingParams(5)  # type: ignore[misc]
    with pytest.raises(TypeError, match="length_penalty"):
        SamplingParams(length_penalty=1.3)  # type: ignore[call-arg]


TOKEN_IDS = "--stop-token-ids must be a list of token ids, each an integer of at least 0, got "
NAN, INF = float("nan"), float("inf")
REFUSED = [
    ("max_tokens", 0, "--max-tokens must be an integer of at least 1, got 0"),
    ("max_tokens", -1, "--max-tokens must be an integer of at least 1, got -1"),
    ("max_tokens", 5.0, "--max-tokens must be an integer of at least 1, got 5.0"),
    ("max_tokens", "5", "--max-tokens must be an integer of at least 1, got '5'"),
    ("max_tokens", True, "--max-tokens must be an integer of at least 1, got True"),
    ("temperature", -0.1, "--temperature must be a finite number of at least 0, got -0.1"),
    ("temperature", NAN, "--temperature must be a finite number of at least 0, got nan"),
    ("temperature", INF, "--temperature must be a finite number of at least 0, got inf"),
    ("temperature", "hot", "--temperature must be a finite number of at least 0, got 'hot'"),
    ("temperature", None, "--temperature must be a finite number of at least 0, got None"),
    ("temperature", False, "--temperature must be a finite number of at least 0, got False"),
    ("temperature", 1j, "--temperature must be a finite number of at least 0, got 1j"),
    ("top_k", -2, "--top-k must be an integer of at least 0 (0 or -1: off), got -2"),
    ("top_k", 40.0, "--top-k must be an integer of at least 0 (0 or -1: off), got 40.0"),
    ("top_k", True, "--top-k must be an integer of at least 0 (0 or -1: off), got True"),
    ("top_p", 0.0, "--top-p must be above 0 and at most 1, got 0.0"),
    ("top_p", 1.5, "--top-p must be above 0 and at most 1, got 1.5"),
    ("top_p", -0.5, "--top-p must be above 0 and at most 1, got -0.5"),
    ("top_p", NAN, "--top-p must be above 0 and at most 1, got nan"),
    ("top_p", True, "--top-p must be above 0 and at most 1, got True"),
    ("min_p", 1.01, "--min-p must be between 0 and 1, got 1.01"),
    ("min_p", -0.1, "--min-p must be between 0 and 1, got -0.1"),
    ("min_p", NAN, "--min-p must be between 0 and 1, got nan"),
    ("seed", 1.0, "--seed must be an integer of at most 64 bits, got 1.0"),
    ("seed", "1", "--seed must be an integer of at most 64 bits, got '1'"),
    ("seed", True, "--seed must be an integer of at most 64 bits, got True"),
    ("seed", 2**64, "--seed must be an integer of at most 64 bits, got 18446744073709551616"),
    ("seed", -(2**63) - 1, "--seed must be an integer of at most 64 bits, got -9223372036854775809"),
    ("stop", "", "--stop must be a text, or a list of texts, none of them empty, got ''"),
    ("stop", ("a", ""), "--stop must be a text, or a list of texts, none of them empty, got ''"),
    ("stop", ("a", 3), "--stop must be a text, or a list of texts, none of them empty, got 3"),
    ("stop", None, "--stop must be a text, or a list of texts, none of them empty, got None"),
    ("stop", b"ab", "--stop must be a text, or a list of texts, none of them empty, got 97"),
    ("stop_token_ids", 7, TOKEN_IDS + "7"),
    ("stop_token_ids", "7", TOKEN_IDS + "'7'"),
    ("stop_token_ids", (-1,), TOKEN_IDS + "-1"),
    ("stop_token_ids", (1.0,), TOKEN_IDS + "1.0"),
    ("ignore_eos", 1, "--ignore-eos must be true or false, got 1"),
    ("ignore_eos", "no", "--ignore-eos must be true or false, got 'no'"),
]  # fmt: skip


@pytest.mark.parametrize(("name", "value", "line"), REFUSED)
def test_a_value_outside_its_range_or_of_another_type_is_refused_in_one_line(name, value, line):
    with pytest.raises(OptionError) as refused:
        SamplingParams(**{name: value})
    assert str(refused.value) == line
    assert isinstance(refused.value, UserError)


def test_a_refusal_stays_on_one_short_line_whatever_the_value():
    with pytest.raises(OptionError) as refused:
        SamplingParams(temperature="a\nb" * 1000)
    assert "\n" not in str(refused.value)
    assert len(str(refused.value)) < 200
    with pytest.raises(OptionError, match="--seed"):
        SamplingParams(seed=10**1000)
    with pytest.raises(OptionError, match="--temperature"):
        SamplingParams(temperature=10**400)


ACCEPTED = [
    ("max_tokens", None, None),
    ("max_tokens", 1, 1),
    ("temperature", 0, 0.0),
    ("temperature", 1e-30, 1e-30),
    ("temperature", np.float32(0.5), 0.5),
    ("top_k", -1, 0),
    ("top_k", 10**9, 10**9),
    ("top_k", np.int64(3), 3),
    ("top_p", 1, 1.0),
    ("top_p", 1e-9, 1e-9),
    ("min_p", 0, 0.0),
    ("min_p", 1, 1.0),
    ("seed", 0, 0),
    ("seed", -1, -1),
    ("seed", 2**64 - 1, 2**64 - 1),
    ("seed", -(2**63), -(2**63)),
    ("stop", "END", ("END",)),
    ("stop", ["a", "b"], ("a", "b")),
    ("stop_token_ids", [0, np.int32(5)], (0, 5)),
    ("ignore_eos", True, True),
]


@pytest.mark.parametrize(("name", "value", "kept"), ACCEPTED)
def test_a_valid_value_is_kept_in_its_plain_python_type(name, value, kept):
    found = getattr(SamplingParams(**{name: value}), name)
    assert found == kept
    assert type(found) is type(kept)


def test_minus_zero_is_greedy_and_prints_as_zero():
    params = SamplingParams(temperature=-0.0, min_p=-0.0)
    assert params.greedy
    assert str(params.temperature) == str(params.min_p) == "0.0"


def test_a_given_seed_is_kept_and_a_missing_one_is_drawn_anew_each_time():
    assert SamplingParams(seed=0).with_seed().seed == 0
    unseeded = SamplingParams(temperature=1.0)
    seeds = {unseeded.with_seed().seed for _ in range(50)}
    assert len(seeds) == 50
    assert all(seed is not None and 0 <= seed < 2**64 for seed in seeds)
    assert unseeded.seed is None
    assert unseeded.with_seed().temperature == 1.0
