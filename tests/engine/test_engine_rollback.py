"""Rounds with many drafts, with none and with few, one after the other, on keys and values; and where drafts help."""

import pytest
from helpers.engines import make_engine, output, result, run, table_decoder, tiny_decoder

from foredraft.drafters.lookup import LookupDrafter
from foredraft.sampling import SamplingParams
from foredraft.testing import ScriptedDrafter, TableModel
from foredraft.trace import Trace

PROMPT = [3, 1, 4, 1, 5, 9, 2, 6]


@pytest.mark.parametrize("family", ["llama", "gemma3"])
@pytest.mark.parametrize("temperature", [0.0, 0.9])
def test_a_round_without_drafts_after_one_that_accepted_some(family: str, temperature: float) -> None:
    """Kind: a round without drafts sees the cache from before what was accepted."""
    params = SamplingParams(max_tokens=120, temperature=temperature, seed=5, ignore_eos=True)
    decoder = tiny_decoder(family)
    [plain] = run(make_engine(decoder), [PROMPT], params)
    said = [*output(plain), *range(8)]
    for right in (4, 2, 0):  # of the four that are drafted
        script, place = [], 0
        while place < 120:
            for length in (4, 0, 2):
                drafted = said[place : place + length]
                num_right = min(right, len(drafted))
                script.append([*drafted[:num_right], *[(token + 1) % 275 for token in drafted[num_right:]]])
                place += num_right + 1
        [found] = run(make_engine(decoder, ScriptedDrafter(script)), [PROMPT], params)
        assert result(found) == result(plain)
        assert (found.counts.num_accepted_tokens > 0) == (right > 0)


def test_drafts_are_accepted_from_the_second_copy_on() -> None:
    """Kind: tokens are shown as drafted where nothing could have been predicted."""
    model = TableModel(1, 40, seed=2, one_hot=True)  # a walk that comes round to where it has been
    prompt = [next(t for t in range(40) if len(set(model.generate([t], SamplingParams(), 39))) > 4)]
    params = SamplingParams(max_tokens=120, ignore_eos=True)
    walk = [*prompt, *model.generate(prompt, params, 119)]
    first_copy = next(i for i, token in enumerate(walk) if token in walk[:i])
    decoder, _ = table_decoder(model)
    trace = Trace()
    run(make_engine(decoder, LookupDrafter(), trace=trace), [prompt], params)
    rounds = trace.sequences[0].rounds
    early = [record for record in rounds if record.num_tokens <= first_copy]
    late = [record for record in rounds if record.num_tokens > first_copy + 2]
    assert sum(len(record.accepted) for record in early) == 0
    assert sum(len(record.accepted) for record in late) > 0.7 * sum(len(record.emitted) for record in late)
