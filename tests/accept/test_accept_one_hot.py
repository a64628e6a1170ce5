"""A target that leaves no choice says the same under every rule, wherever a draft is rejected."""

from collections.abc import Sequence

import pytest
from helpers.engines import make_engine, output, run, table_decoder

from foredraft.accept import make_rule
from foredraft.drafters.base import Drafter
from foredraft.sampling import SamplingParams
from foredraft.testing import DistDrafter, ScriptedDrafter, TableModel, WrongDrafter

V = 24
MODEL = TableModel(2, V, seed=4, one_hot=True)
PROMPT = [1, 2, 3]
PARAMS = SamplingParams(max_tokens=40, temperature=1.0, seed=2, ignore_eos=True)
SAID = MODEL.generate(PROMPT, PARAMS, 60)
RULES = ["coupled", "rejection", "block", "tree", "traversal", "typical", "threshold:eps=0.5"]


def wrong_at(offset: int, length: int) -> list[list[int]]:
    """Chains that are right but for one token, each where the round before must have ended."""
    chains, place = [], 0
    while place < len(SAID) - length:
        right: Sequence[int] = SAID[place : place + length]
        chains.append([token if i != offset else (token + 1) % V for i, token in enumerate(right)])
        place += min(offset, length) + 1
    return chains


@pytest.mark.parametrize("rule", RULES)
@pytest.mark.parametrize("length", [1, 4])
def test_a_rejection_at_any_offset_loses_no_token(rule: str, length: int) -> None:
    """Kind: after a rejection the next token is taken from the row after the rejected one, or the cache is one token
    too long. Engines of tests compare cache and tokens after every round."""
    drafters: list[tuple[Drafter, int]] = [(WrongDrafter(MODEL), 0), (DistDrafter(MODEL, (1,) * length), length)]
    drafters += [(ScriptedDrafter(wrong_at(offset, length)), offset) for offset in range(length)]
    for drafter, num_accepted in drafters:
        decoder, _ = table_decoder(MODEL)
        engine = make_engine(decoder, drafter, num_draft_tokens=length, rule=make_rule(rule))
        [done] = run(engine, [PROMPT], PARAMS)
        assert output(done) == SAID[:40]
        whole_rounds = 40 // (num_accepted + 1)
        assert done.counts.num_rounds in (whole_rounds, whole_rounds + 1)
        assert done.counts.num_accepted_tokens <= num_accepted * done.counts.num_rounds
