"""The line that sums an answer up."""

from dataclasses import replace

import pytest

from foredraft.cli.console import details, summary
from foredraft.engine import Completion, Speculation, Timings, Usage
from foredraft.engine.completion import LenientCost

SPECULATION = Speculation(
    methods=("suffix",),
    lossless=True,
    num_rounds=2,
    num_draft_tokens=3,
    num_accepted_tokens=2,
    num_emitted_tokens=4,
    accepted_per_position=(2,),
    reason="asked for",
)
DONE = Completion(
    text="",
    token_ids=(1, 2, 3, 4),
    finish_reason="stop",
    usage=Usage(prompt_tokens=5, completion_tokens=4),
    timings=Timings(load_s=0, prefill_s=0, decode_s=0.5, num_prompt_tokens=4, num_completion_tokens=4),
    speculation=SPECULATION,
)
COST = LenientCost(share_different=0.25, mean_logprob=-1.0, mean_own_logprob=-0.5)


@pytest.mark.parametrize(
    ("options", "end"),
    [
        ({}, ""),
        ({"speedup": 1.434}, ", 1.43 times plain decoding"),
        ({"speedup": 1.0, "num_draft_tokens": 0}, ""),
        ({"acceptance": "block", "equality": "distribution"}, ", acceptance block (equal in distribution)"),
        (
            {"acceptance": "threshold:eps=0.1", "equality": "none", "lossless": False, "cost": COST},
            ", lossy acceptance threshold:eps=0.1 (25.0% of the tokens are not the target's own)",
        ),
        (
            {"acceptance": "typical:eps=0.09,delta=0.3", "equality": "none", "lossless": False},
            ", lossy acceptance typical:eps=0.09,delta=0.3",
        ),
    ],
)
def test_speed_comes_first_and_a_rule_that_changes_texts_is_named(options: dict[str, object], end: str) -> None:
    """Kind: a text that is not the target's own is presented as if it were."""
    done = replace(DONE, speculation=replace(SPECULATION, **options))
    assert summary(done) == f"4 tokens, 8.0 tokens/s{end}"


def test_how_drafting_went_is_told_on_request() -> None:
    assert details(DONE) == "mean acceptance length 2.00, acceptance rate 67%, drafter suffix (asked for)"
    none = replace(SPECULATION, methods=("none",), num_draft_tokens=0, num_rounds=0, reason="")
    assert details(replace(DONE, speculation=none)) == "no drafter"
