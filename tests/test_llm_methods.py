"""Every way of drafting that needs no model of its own, from the front door: the same text, alone and in batches."""

from dataclasses import replace

import pytest
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.drafters import METHODS_WITHOUT_MODEL
from foredraft.trace import Trace

REPEATED = "x" * 48
"""48 equal tokens: wherever a text repeats itself, n-grams always match."""
TEXTS = [
    REPEATED,
    "and the other one and the other one and the",
    "the",
    "a b c d a b c",
    *("in", "on", "or", "and the"),
]
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SAMPLED = replace(GREEDY, temperature=0.8, seed=3)


@pytest.fixture(scope="module")
def plain() -> LLM:
    return LLM(tiny_file(num_layers=4), draft="none", threads=1)  # as `skip` wants


@pytest.mark.parametrize("params", [GREEDY, SAMPLED], ids=["greedy", "sampled"])
@pytest.mark.parametrize("method", [*METHODS_WITHOUT_MODEL, "auto"])
def test_every_method_alone_and_in_batches(plain: LLM, method: str, params: SamplingParams) -> None:
    """Kind: drafts change the text of a prompt that repeats one word; a batch of unlike prompts mixes them up."""
    expected = [plain.generate(text, params)[0] for text in TEXTS]
    for num_draft_tokens in (4, None) if method == "auto" else (2, 4):
        llm = plain.with_drafts(method, num_draft_tokens=num_draft_tokens)
        if "prediction" in llm.methods:
            asked = replace(params, prediction="the other one and the other\nxxxxxx")
        else:
            asked = params
        for size in (1, 2, 8):
            batches = [TEXTS[i : i + size] for i in range(0, len(TEXTS), size)]
            found = [done for batch in batches for done in llm.generate(batch, asked)]
            for one, other in zip(expected, found, strict=True):
                assert (one.token_ids, one.text, one.usage) == (other.token_ids, other.text, other.usage)
            if num_draft_tokens:
                assert found[0].speculation.num_draft_tokens > 0
    assert plain.decoder.cache.pool.num_used == 0


def test_the_parts_of_a_round_add_up_to_the_time_of_decoding(plain: LLM) -> None:
    """Kind: more is accepted and yet it takes longer, and no figure shows where the time goes."""
    trace = Trace()
    llm = plain.with_drafts([str(tiny_file(seed=1))], num_draft_tokens=3, trace=trace)
    [done] = llm.generate("and the other one", replace(SAMPLED, max_tokens=60))
    [traced] = trace.sequences.values()
    rounds = traced.rounds
    assert all(min(record.draft_s, record.verify_s, record.accept_s) > 0 for record in rounds)
    assert sum(record.draft_s for record in rounds) > 0.1 * sum(record.total_s for record in rounds)
    inside = sum(record.total_s for record in rounds[:-1])  # the last one ends after the text did
    assert 0.5 * done.timings.decode_s < inside + rounds[-1].total_s
    assert inside < done.timings.decode_s


def test_speculation_takes_no_more_of_the_cache(plain: LLM) -> None:
    """Kind: rolled-back tokens stay in the cache, so that it grows with what was drafted."""
    family = LLM(tiny_file("gemma3"), draft="none", threads=1)  # some of its layers have a sliding window
    pool = family.decoder.cache.pool
    peaks = []
    for draft in ("none", str(tiny_file("gemma3", seed=4))):
        used: list[int] = []
        llm = family.with_drafts(
            draft,
            num_draft_tokens=None if draft == "none" else 7,
            trace=lambda record, used=used: used.append(pool.num_used),  # type: ignore[misc]
        )
        llm.generate("and the other one", replace(SAMPLED, max_tokens=150))
        peaks.append(max(used))
    assert peaks[1] <= peaks[0] + 1  # the tree of the last rounds may reach into one block more
