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
TEXTS = "must be a text, or a list of texts, none of them empty, got "
BIASES = "--logit-bias must be a mapping from token ids to numbers from -100 to 100, got "
NAN, INF = float("nan"), float("inf")
REFUSED = [
    ("max_tokens", -1, "--max-tokens must be an integer of at least 0, got -1"),
    ("max_tokens", 5.0, "--max-tokens must be an integer of at least 0, got 5.0"),
    ("max_tokens", "5", "--max-tokens must be an integer of at least 0, got '5'"),
    ("max_tokens", True, "--max-tokens must be an integer of at least 0, got True"),
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
    ("stop", b"ab", "--stop must be a text, or a list of texts, none of them empty, got 97"),
    ("stop_token_ids", 7, TOKEN_IDS + "7"),
    ("stop_token_ids", "7", TOKEN_IDS + "'7'"),
    ("stop_token_ids", (-1,), TOKEN_IDS + "-1"),
    ("stop_token_ids", (1.0,), TOKEN_IDS + "1.0"),
    ("ignore_eos", 1, "--ignore-eos must be true or false, got 1"),
    ("ignore_eos", "no", "--ignore-eos must be true or false, got 'no'"),
    ("min_tokens", -1, "--min-tokens must be an integer of at least 0, got -1"),
    ("min_tokens", None, "--min-tokens must be an integer of at least 0, got None"),
    ("typical_p", 0, "--typical-p must be above 0 and at most 1, got 0"),
    ("typical_p", 1.2, "--typical-p must be above 0 and at most 1, got 1.2"),
    ("repetition_penalty", 0, "--repetition-penalty must be a finite number above 0 (1: off), got 0"),
    ("repetition_penalty", -1.1, "--repetition-penalty must be a finite number above 0 (1: off), got -1.1"),
    ("repetition_penalty", INF, "--repetition-penalty must be a finite number above 0 (1: off), got inf"),
    ("frequency_penalty", 2.1, "--frequency-penalty must be between -2 and 2, got 2.1"),
    ("presence_penalty", -2.1, "--presence-penalty must be between -2 and 2, got -2.1"),
    ("presence_penalty", "1", "--presence-penalty must be between -2 and 2, got '1'"),
    ("dry_multiplier", -0.5, "--dry-multiplier must be a finite number of at least 0 (0: off), got -0.5"),
    ("dry_base", 0.9, "--dry-base must be a finite number of at least 1, got 0.9"),
    ("dry_allowed_length", 0, "--dry-allowed-length must be an integer of at least 1, got 0"),
    ("dry_range", -2, "--dry-range must be an integer of at least 0, or -1 (all), got -2"),
    ("dry_sequence_breakers", 5, f"--dry-sequence-breakers {TEXTS}5"),
    ("logit_bias", [1], BIASES + "[1]"),
    ("logit_bias", {1: 100.5}, BIASES + "100.5"),
    ("logit_bias", {1: NAN}, BIASES + "nan"),
    ("logit_bias", {-1: 1.0}, BIASES + "-1"),
    ("logit_bias", {"cat": 1.0}, BIASES + "'cat'"),
    ("logit_bias", {True: 1.0}, BIASES + "True"),
    ("bad_words", ("a", ""), "--bad-words must be a text, or a list of texts, none of them empty, got ''"),
    ("bad_words", 5, "--bad-words must be a text, or a list of texts, none of them empty, got 5"),
    ("json_schema", "{", "--json-schema must be a JSON schema, as an object or as JSON text, got '{'"),
    ("json_schema", "3", "--json-schema must be a JSON schema, as an object or as JSON text, got '3'"),
    ("json_schema", {"a": {1}}, "--json-schema must be a JSON schema, as an object or as JSON text, got {'a': {1}}"),
    ("json_object", "yes", "--json-object must be true or false, got 'yes'"),
    ("regex", "", "--regex must be a text that is not empty, got ''"),
    ("grammar", 3, "--grammar must be a text that is not empty, got 3"),
    ("n", 0, "--n must be an integer from 1 to 128, got 0"),
    ("n", 129, "--n must be an integer from 1 to 128, got 129"),
    ("best_of", 0, "--best-of must be an integer from 1 to 128, got 0"),
    ("logprobs", 21, "--logprobs must be an integer from 0 to 20, got 21"),
    ("logprobs", True, "--logprobs must be an integer from 0 to 20, got True"),
    ("prompt_logprobs", -1, "--prompt-logprobs must be an integer from 0 to 20, got -1"),
    ("echo", 1, "--echo must be true or false, got 1"),
    ("include_stop_str_in_output", 0, "--include-stop must be true or false, got 0"),
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
    ("max_tokens", 0, 0),
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
    ("seed", -1, None),
    ("seed", -2, -2),
    ("seed", 2**32 - 1, 2**32 - 1),
    ("seed", 2**64 - 1, 2**64 - 1),
    ("seed", -(2**63), -(2**63)),
    ("stop", None, ()),
    ("stop_token_ids", None, ()),
    ("logit_bias", None, {}),
    ("bad_words", None, ()),
    ("json_schema", '\ufeff{"type": "null"}', '{"type": "null"}'),
    ("stop", "END", ("END",)),
    ("stop", ["a", "b"], ("a", "b")),
    ("stop_token_ids", [0, np.int32(5)], (0, 5)),
    ("ignore_eos", True, True),
    ("repetition_penalty", np.float32(2), 2.0),
    ("frequency_penalty", -2, -2.0),
    ("presence_penalty", -0.0, 0.0),
    ("typical_p", 1, 1.0),
    ("logit_bias", {"5": 1, np.int64(7): -100}, {5: 1.0, 7: -100.0}),
    ("bad_words", "no", ("no",)),
    ("json_schema", {"type": "object"}, '{"type": "object"}'),
    ("json_schema", ' {"a": 1} ', '{"a": 1}'),
    ("logprobs", 0, 0),
    ("prompt_logprobs", np.int32(20), 20),
]


@pytest.mark.parametrize(("name", "value", "kept"), ACCEPTED)
def test_a_valid_value_is_kept_in_its_plain_python_type(name, value, kept):
    found = getattr(SamplingParams(**{name: value}), name)
    assert found == kept
    assert type(found) is type(kept)


REFUSED_TOGETHER = [
    ({"min_tokens": 9, "max_tokens": 8}, "--min-tokens 9 is more than --max-tokens 8"),
    ({"n": 3, "best_of": 2, "temperature": 1.0}, "--best-of 2 is less than --n 3"),
    ({"n": 2}, "--n above 1 needs a --temperature above 0: at 0 all answers are the same"),
    ({"best_of": 2}, "--best-of above 1 needs a --temperature above 0: at 0 all answers are the same"),
    ({"dry_base": 2.0}, "--dry-base needs a --dry-multiplier above 0: DRY is off without"),
    ({"dry_range": 5}, "--dry-range needs a --dry-multiplier above 0: DRY is off without"),
    ({"regex": "a", "json_object": True}, "--json-object and --regex cannot be combined: give one form of the text"),
    (
        {"json_schema": {}, "ignore_eos": True},
        "--ignore-eos cannot be combined with --json-schema: a text that is complete has to end",
    ),
    (
        {"grammar": "start: x", "min_tokens": 1},
        "--min-tokens cannot be combined with --grammar: a text that is complete has to end",
    ),
]


@pytest.mark.parametrize(("options", "line"), REFUSED_TOGETHER)
def test_options_that_cannot_be_honoured_together_are_refused(options, line):
    with pytest.raises(OptionError) as refused:
        SamplingParams(**options)
    assert str(refused.value) == line


def test_params_keep_their_own_biases():
    biases = {3: 1.0}
    params = SamplingParams(logit_bias=biases)
    biases[4] = 2.0
    assert params.logit_bias == {3: 1.0}
    assert params == SamplingParams(logit_bias={"3": 1})
    assert hash(params) == hash(SamplingParams(logit_bias={3: 1.0}))
    assert dataclasses.replace(params, seed=1).logit_bias == params.logit_bias
    assert dataclasses.asdict(params)["logit_bias"] == {3: 1.0}


def test_minus_zero_is_greedy_and_prints_as_zero():
    params = SamplingParams(temperature=-0.0, min_p=-0.0)
    assert params.greedy
    assert str(params.temperature) == str(params.min_p) == "0.0"


def test_the_seed_minus_one_stands_for_none():
    """Kind: what means a random seed elsewhere is a fixed one here, so that all answers are the same."""
    params = SamplingParams(seed=np.int64(-1), temperature=1.0)
    assert params.seed is None
    assert len({params.with_seed().seed for _ in range(20)}) == 20


def test_a_given_seed_is_kept_and_a_missing_one_is_drawn_anew_each_time():
    assert SamplingParams(seed=0).with_seed().seed == 0
    unseeded = SamplingParams(temperature=1.0)
    seeds = {unseeded.with_seed().seed for _ in range(50)}
    assert len(seeds) == 50
    assert all(seed is not None and 0 <= seed < 2**64 for seed in seeds)
    assert unseeded.seed is None
    assert unseeded.with_seed().temperature == 1.0
