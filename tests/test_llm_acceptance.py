"""Rules of acceptance from the front door."""

import json
from collections import Counter
from dataclasses import replace

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import OptionError

TEXT = "and then the man and then the"
GREEDY = SamplingParams(max_tokens=30, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=60, temperature=1.0, seed=5, ignore_eos=True)
RULES = ("coupled", "rejection", "block", "tree", "traversal", "typical", "threshold:eps=0.05")


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


@pytest.mark.parametrize("rule", RULES)
def test_every_rule_with_a_draft_model(plain: LLM, rule: str) -> None:
    branches = 2 if rule in ("tree", "traversal") else 1
    llm = plain.with_drafts(tiny_file(seed=1), num_draft_tokens=4, num_draft_branches=branches, acceptance=rule)
    done = llm.generate(TEXT, SAMPLED)[0]
    assert llm.generate(TEXT, SAMPLED)[0].token_ids == done.token_ids
    assert done.speculation.acceptance.partition(":")[0] == rule.partition(":")[0]
    assert done.speculation.lossless == (rule.partition(":")[0] not in ("typical", "threshold"))
    record = json.loads(json.dumps(done.to_json_dict(), allow_nan=False))["speculation"]
    by_distribution = dict.fromkeys(("rejection", "block", "tree", "traversal"), "distribution")
    assert record["equality"] == ({"coupled": "path"} | by_distribution).get(rule, "none")
    assert (record["cost"] is None) == (record["equality"] != "none")
    if not rule.startswith("threshold"):
        greedy = llm.generate(TEXT, GREEDY)[0]
        assert greedy.token_ids == plain.generate(TEXT, GREEDY)[0].token_ids
        assert (greedy.speculation.equality, greedy.speculation.lossless) == ("path", True)


@pytest.mark.parametrize("rule", ["rejection", "block", "tree", "traversal"])
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"temperature": 0.7, "top_p": 0.8},
        {"repetition_penalty": 1.4, "presence_penalty": 0.5, "bad_words": ("th",)},  # these follow the path
        {"regex": "[a-z ]{200}", "ignore_eos": False},
    ],
)
def test_a_model_that_drafts_for_itself_is_always_right(plain: LLM, rule: str, options: dict[str, object]) -> None:
    """Kind: the drafter's distribution is not that of the target under the same options."""
    branches = 2 if rule in ("tree", "traversal") else 1
    llm = plain.with_drafts(tiny_file(), num_draft_tokens=4, num_draft_branches=branches, acceptance=rule)
    done = llm.generate(TEXT, replace(SAMPLED, **options))[0].speculation
    # A chain is accepted whole but for what lies beyond the end; in a tree one child of each node is.
    assert done.num_accepted_tokens > (0.9 if branches == 1 else 0.45) * done.num_draft_tokens
    if branches == 1:
        assert done.num_accepted_tokens > 3.5 * done.num_rounds


@pytest.mark.parametrize("rule", ["rejection", "block", "tree", "traversal"])
@pytest.mark.parametrize("draft", ["suffix", "model"])
def test_first_tokens_over_seeds_are_those_of_plain_decoding(plain: LLM, rule: str, draft: str) -> None:
    """Kind: the options of sampling are forgotten once drafts are verified, or the same few samples come back."""
    llm = plain.with_drafts(tiny_file(seed=1) if draft == "model" else draft, num_draft_tokens=2, acceptance=rule)
    found = []
    for drafting in (llm, plain):
        params = [SamplingParams(max_tokens=2, temperature=0.3, top_k=4, seed=s, ignore_eos=True) for s in range(150)]
        found.append([drafting.generate(TEXT, one)[0].token_ids for one in params])
    firsts = [Counter(tokens[0] for tokens in several) for several in found]
    assert firsts[0].keys() == firsts[1].keys()  # the four of top-k
    for token, count in firsts[1].items():
        assert abs(firsts[0][token] - count) < 5 * (2 * count) ** 0.5 + 5
    assert abs(len(set(found[0])) - len(set(found[1]))) < 12


def test_options_that_a_rule_cannot_honour(plain: LLM) -> None:
    for options, parts in [
        ({"acceptance": "rejection"}, ["--acceptance rejection", "--num-draft-tokens", "bias"]),
        ({"acceptance": "tree", "draft": "suffix"}, ["--num-draft-tokens"]),
        ({"acceptance": "block", "num_draft_tokens": 4, "num_draft_branches": 2}, ["--acceptance traversal"]),
        ({"acceptance": "typical", "draft": "none"}, ["--draft none"]),
        ({"acceptance": "nonsense"}, ["'nonsense'", "coupled"]),
        ({"acceptance": None}, ["None"]),
    ]:
        for make in (plain.with_drafts, lambda **more: LLM(tiny_file(), threads=1, **more)):
            with pytest.raises(OptionError) as caught:
                make(**options)
            message = str(caught.value)
            assert "\n" not in message
            assert all(part in message for part in parts), message


def test_a_lenient_rule_works_with_a_plan_that_goes_by_what_pays(plain: LLM) -> None:
    done = plain.with_drafts("suffix", acceptance="threshold:eps=0.0001").generate(TEXT * 3, SAMPLED)[0]
    assert not done.speculation.lossless


@pytest.mark.parametrize("rule", ["rejection", "threshold:eps=0.01"])
def test_the_other_options_hold_under_every_rule(plain: LLM, rule: str) -> None:
    """Kind: a drafted token is accepted that an option excludes."""
    llm = plain.with_drafts(tiny_file(seed=1), num_draft_tokens=4, acceptance=rule)
    params = SamplingParams(max_tokens=40, temperature=1.0, seed=3, ignore_eos=True, logit_bias={5: -100.0, 6: 30.0})
    done = llm.generate(TEXT, params)[0]
    assert set(done.token_ids) == {6}
