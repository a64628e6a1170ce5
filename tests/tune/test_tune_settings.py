"""Settings and prompts: what is compared, how it is called here and elsewhere, and which files are refused."""

import json
from dataclasses import replace

import pytest
from helpers.drafting import View, budgets

from foredraft.testing import SimulatedClock, SyntheticDrafter
from foredraft.tune.prompts import BUILT_IN, spread
from foredraft.tune.run import Wanted, make_plan
from foredraft.tune.settings import LENGTHS, Setting, for_llama_cpp, for_vllm, stopping, sweep

PLAIN_S = {prompt.key: 1.3 for prompt in BUILT_IN}


def test_the_sweep_holds_plain_decoding_auto_and_every_length() -> None:
    settings = sweep(["suffix", "lookup"], ["d/draft.gguf"], LENGTHS[0], with_lenient=True)
    names = [setting.name for setting in settings]
    assert names[:3] == ["none", "auto", "auto with draft.gguf"]
    assert {"suffix 1", "lookup 10", "draft 7", "draft 8 tree of 2", "draft 10 p 0.4", "draft 6 lenient 0.1"} < set(
        names
    )
    assert len(set(names)) == len(names)
    assert settings[2].draft == ("auto", "d/draft.gguf")
    [chain] = [setting for setting in settings if setting.name == "draft 7"]
    assert chain.draft == ("d/draft.gguf",)
    assert not [s for s in sweep(["suffix"], [], LENGTHS[-1], with_lenient=False) if s.lenient is not None]


def test_settings_in_the_words_of_others() -> None:
    chain = Setting(method="draft", models=("d/draft.gguf",), num_draft_tokens=4)
    assert json.loads(for_vllm(chain) or "") == {
        "method": "draft_model",
        "model": "draft.gguf",
        "num_speculative_tokens": 4,
    }
    assert for_llama_cpp(chain) == ("--spec-type draft-simple -md draft.gguf --spec-draft-n-max 4 --spec-draft-p-min 0")
    lookup = Setting(method="lookup", num_draft_tokens=3)
    assert json.loads(for_vllm(lookup) or "")["method"] == "ngram"
    assert json.loads(for_vllm(Setting(method="suffix", num_draft_tokens=3)) or "")["method"] == "suffix"
    assert "--spec-ngram-mod-n-max 3" in (for_llama_cpp(lookup) or "")
    for other in (
        Setting(method="auto"),
        Setting(method="none"),
        Setting(method="recycle", num_draft_tokens=4),
        Setting(method="draft", models=("d",), num_draft_tokens=8, num_branches=2),
    ):
        assert for_vllm(other) is None
        assert for_llama_cpp(other) is None
    for special in (replace(chain, min_survival=0.4), replace(chain, lenient=0.1)):
        assert for_vllm(special) is None
    assert (for_llama_cpp(replace(chain, min_survival=0.4)) or "").endswith("--spec-draft-p-min 0.4")
    assert for_llama_cpp(replace(chain, lenient=0.1)) is None


def test_a_threshold_ends_chains() -> None:
    clock = SimulatedClock()
    drafter = SyntheticDrafter(range(50), 0.5, step_s=lambda num: 1.0, clock=clock)
    view = View([1])
    assert stopping(drafter, 0.0) is drafter
    stopped = stopping(drafter, 0.3)
    [tree] = stopped.propose([view], budgets(9))
    assert tree.num_draft_tokens == 2
    assert not stopped.free
    assert stopped.num_unread(view) == drafter.num_unread(view)  # type: ignore[attr-defined]
    stopped.forget(0)
    assert drafter.forgotten == [0]


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
