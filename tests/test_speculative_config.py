"""vLLM's way to ask for speculation: what it means here, and that nothing of it is ignored."""

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.config import DraftConfig
from foredraft.errors import OptionError
from foredraft.speculative_config import parse_speculative_config


@pytest.mark.parametrize(
    ("config", "drafter", "number"),
    [
        ({"method": "ngram"}, "lookup", None),
        ('{"method": "ngram", "num_speculative_tokens": 3}', "lookup", 3),
        ({"method": "suffix"}, "suffix", None),
        ({"model": "org/name"}, "org/name", None),
        ({"method": "draft_model", "model": "x.gguf"}, "x.gguf", None),
    ],
)
def test_what_it_means(config: str | dict[str, object], drafter: str, number: int | None) -> None:
    assert parse_speculative_config(config) == DraftConfig(drafters=(drafter,), num_draft_tokens=number)
    others = DraftConfig(memory="none", num_branches=2)
    found = parse_speculative_config(config, others)
    assert found == DraftConfig(drafters=(drafter,), num_draft_tokens=number, memory="none", num_branches=2)


@pytest.mark.parametrize(
    ("config", "said"),
    [
        ("{", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ("[1]", "JSON object"),
        ("{}", "method"),
        ('{"method": "medusa"}', "'medusa'"),
        ('{"method": ["ngram"]}', "['ngram']"),
        ('{"method": "suffix", "model": "x"}', "no other method"),
        ('{"method": "suffix", "suffix_decoding_max_tree_depth": 4}', "'suffix_decoding_max_tree_depth'"),
        ('{"method": "ngram", "prompt_lookup_max": 4}', "'prompt_lookup_max'"),
        ('{"method": "ngram", "model": "x"}', "no other method"),
        ('{"method": "draft_model"}', "draft model"),
        ('{"method": "ngram", "num_speculative_tokens": true}', "whole number"),
        ('{"method": "ngram", "num_speculative_tokens": "4"}', "whole number"),
    ],
)
def test_what_it_cannot_mean(config: str, said: str) -> None:
    with pytest.raises(OptionError, match=r"^--speculative-config") as caught:
        parse_speculative_config(config)
    assert said in str(caught.value)
    assert "\n" not in str(caught.value)


def test_it_drafts_as_asked() -> None:
    target = tiny_file()
    params = SamplingParams(max_tokens=24, temperature=0.8, seed=3, ignore_eos=True)
    expected = LLM(target, draft="none", threads=1).generate("in the end", params)[0]
    config = {"model": str(tiny_file(seed=1)), "num_speculative_tokens": 2}
    done = LLM(target, speculative_config=config, threads=1).generate("in the end", params)[0]
    assert done.token_ids == expected.token_ids
    assert 0 < len(done.speculation.accepted_per_position) <= 2


def test_it_goes_with_no_other_option() -> None:
    for other in ({"draft": "none"}, {"num_draft_tokens": 3}):
        with pytest.raises(OptionError, match="cannot be combined"):
            LLM(tiny_file(), speculative_config={"method": "ngram"}, **other)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="--num-draft-tokens"):
        LLM(tiny_file(), speculative_config={"method": "ngram", "num_speculative_tokens": 0})
