"""Settings and prompts: what is compared, how it is called here and elsewhere, and which files are refused."""

import json
from dataclasses import replace
from typing import Any

import pytest

from foredraft.config import DraftConfig
from foredraft.prompts import spread
from foredraft.tune.prompts import BUILT_IN
from foredraft.tune.run import Wanted, make_plan
from foredraft.tune.settings import LENGTHS, PLAIN, for_llama_cpp, for_vllm, is_exact, sweep

PLAIN_S = {prompt.key: 1.3 for prompt in BUILT_IN}


def fixed(*drafters: str, number: int, **others: Any) -> DraftConfig:
    return DraftConfig(drafters=drafters, num_draft_tokens=number, memory="none", **others)


def test_the_sweep_holds_plain_decoding_auto_and_every_length() -> None:
    settings = sweep(["suffix", "lookup"], ["d/draft.gguf"], LENGTHS[0], with_lenient=True)
    assert settings[0].is_plain
    assert [one.drafters for one in settings[1:3]] == [("auto",), ("auto", "d/draft.gguf")]
    assert {one.memory for one in settings} == {"none"}
    model = "d/draft.gguf"
    for wanted in (
        fixed("suffix", number=1),
        fixed("lookup", number=10),
        fixed(model, number=7),
        fixed(model, number=8, num_branches=2),
        fixed(model, number=10, min_survival=0.4),
        fixed(model, number=6, acceptance="threshold:eps=0.1"),
    ):
        assert wanted in settings
    assert len({one.name for one in settings}) == len(settings)
    assert all(map(is_exact, sweep(["suffix"], [], LENGTHS[-1], with_lenient=False)))


def test_settings_in_the_words_of_others() -> None:
    chain = fixed("d/draft.gguf", number=4)
    assert json.loads(for_vllm(chain) or "") == {
        "method": "draft_model",
        "model": "draft.gguf",
        "num_speculative_tokens": 4,
    }
    assert for_llama_cpp(chain) == ("--spec-type draft-simple -md draft.gguf --spec-draft-n-max 4 --spec-draft-p-min 0")
    lookup = fixed("lookup", number=3)
    assert json.loads(for_vllm(lookup) or "")["method"] == "ngram"
    assert json.loads(for_vllm(fixed("suffix", number=3)) or "")["method"] == "suffix"
    assert "--spec-ngram-mod-n-max 3" in (for_llama_cpp(lookup) or "")
    for other in (
        DraftConfig(memory="none"),
        PLAIN,
        fixed("recycle", number=4),
        fixed("d/draft.gguf", number=8, num_branches=2),
    ):
        assert for_vllm(other) is None
        assert for_llama_cpp(other) is None
    for special in (replace(chain, min_survival=0.4), replace(chain, acceptance="threshold:eps=0.1")):
        assert for_vllm(special) is None
    assert (for_llama_cpp(replace(chain, min_survival=0.4)) or "").endswith("--spec-draft-p-min 0.4")
    assert for_llama_cpp(replace(chain, acceptance="threshold:eps=0.1")) is None


def test_fewer_prompts_are_of_all_families() -> None:
    assert {prompt.family for prompt in spread(BUILT_IN, 4)} == {"code", "chat", "summary", "translation"}
    assert len({prompt.key for prompt in BUILT_IN}) == len(BUILT_IN) == 8
    assert sorted(p.key for p in spread(BUILT_IN, 99)) == sorted(p.key for p in BUILT_IN)
    assert [p.family for p in spread(BUILT_IN, 8)[:4]] == [p.family for p in spread(BUILT_IN, 8)[4:]]


@pytest.mark.parametrize("seconds", [5.0, 60.0, 300.0, 900.0, 3600.0])
def test_a_plan_fits_into_the_time_where_the_least_there_is_does(seconds: float) -> None:
    wanted = Wanted(prompts=BUILT_IN, models=("d.gguf",), seconds=seconds)
    plan = make_plan(wanted, PLAIN_S)
    least = make_plan(Wanted(prompts=BUILT_IN, models=("d.gguf",), seconds=0.1), PLAIN_S)
    assert plan.seconds <= max(seconds, least.seconds)
    assert len(least.prompts) == 2
    assert "about" in plan.words()


def test_more_time_gives_finer_settings_and_then_more_turns() -> None:
    plans = [make_plan(Wanted(prompts=BUILT_IN, seconds=seconds), PLAIN_S) for seconds in (60, 250, 600, 3600)]
    assert [len(plan.settings) for plan in plans] == sorted(len(plan.settings) for plan in plans)
    assert plans[-1].num_turns == 5
    quick = make_plan(Wanted(prompts=BUILT_IN, seconds=3600, quick=True), PLAIN_S)
    assert (quick.num_turns, len(quick.prompts), quick.max_tokens) == (1, 4, 32)
