"""A completion that is measured is the one of `generate`, and its time is that of its own steps."""

import time

import pytest
from helpers.engines import tiny_file

from foredraft.bench.completing import complete, steps
from foredraft.bench.measuring import in_lockstep
from foredraft.llm import LLM, SamplingParams
from foredraft.trace import SequenceStart

PROMPT = "a b a b a b a b a b a b a b a b a b a b"
PARAMS = SamplingParams(max_tokens=20, ignore_eos=True)


@pytest.fixture(scope="module")
def llm() -> LLM:
    return LLM(tiny_file(), draft="none", threads=1)


def test_the_completion_and_its_ends(llm: LLM) -> None:
    [expected] = llm.generate(PROMPT, PARAMS)
    drafted = llm.with_drafts("lookup", num_draft_tokens=3)
    measured = complete(drafted, PROMPT, PARAMS, raw=True)
    assert measured.completion.token_ids == expected.token_ids
    assert measured.num_tokens == 20
    assert measured.ends[-1][0] == 20
    assert len(measured.ends) == measured.completion.speculation.num_rounds < 20
    assert list(measured.ends) == sorted(measured.ends)
    assert measured.ends[-1][1] <= measured.seconds
    assert 0 < measured.decode_s < measured.seconds
    assert measured.tokens_per_s == 20 / measured.decode_s
    first = measured.ends[0]
    assert measured.seconds_to(first[0]) == first[1]
    assert measured.seconds_to(21) is None


def test_what_happens_between_its_steps_does_not_count(llm: LLM) -> None:
    """Kind: in lockstep, each is charged with the time of all others."""
    run, reached = steps(llm, PROMPT, PARAMS, raw=True), []
    started = time.perf_counter()
    while True:
        try:
            reached.append(next(run))
        except StopIteration as end:
            measured = end.value
            break
        time.sleep(0.02)
    whole = time.perf_counter() - started
    assert reached[-1] == 20
    assert reached == sorted(reached)
    assert measured.seconds < whole - 0.02 * (len(reached) - 1)


def test_nothing_is_cached_of_an_earlier_completion(llm: LLM) -> None:
    cached: list[int] = []

    def see(record: object) -> None:
        if isinstance(record, SequenceStart):
            cached.append(record.num_cached_tokens)

    traced = llm.with_drafts("none", trace=see)
    for _ in range(2):
        complete(traced, PROMPT, PARAMS, raw=True)
    assert cached == [0, 0]
    traced.generate(PROMPT, PARAMS)
    assert cached[-1] > 0  # so that it could have been found


def test_several_ways_take_turns_on_one_model(llm: LLM) -> None:
    ways = {"none": llm, "lookup": llm.with_drafts("lookup"), "model": llm.with_drafts(tiny_file(seed=1))}
    [expected] = llm.generate(PROMPT, PARAMS)
    found = in_lockstep({name: steps(way, PROMPT, PARAMS, raw=True) for name, way in ways.items()})
    assert {measured.completion.token_ids for measured in found.values()} == {expected.token_ids}


def test_a_prompt_goes_through_the_chat_template(smollm2_path: object) -> None:
    llm = LLM(str(smollm2_path), draft="none")
    params = SamplingParams(max_tokens=4)
    asked = llm.chat([{"role": "user", "content": "Say hello."}], params)
    assert complete(llm, "Say hello.", params).completion.token_ids == asked.token_ids
    [continued] = llm.generate("Say hello.", params)
    assert complete(llm, "Say hello.", params, raw=True).completion.token_ids == continued.token_ids
