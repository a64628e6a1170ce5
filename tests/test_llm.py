"""The front door, on tiny models and on the real one."""

import json
import signal
import threading
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest
from helpers import tiny
from helpers.engines import tiny_file

from foredraft import LLM, SamplingParams
from foredraft.errors import ContextLengthError, OptionError, UserError
from foredraft.llm import Completion, Messages

TEXT = "and the other one and the other one and the"
GREEDY = SamplingParams(max_tokens=24, ignore_eos=True)
SAMPLED = SamplingParams(max_tokens=24, temperature=0.8, seed=3, ignore_eos=True)


def tiny_llm(family: str = "llama", **options: object) -> LLM:
    return LLM(tiny_file(family), **{"draft": "none", "threads": 1, **options})


def used_blocks(llm: LLM) -> int:
    return llm.decoder.cache.pool.num_used


def wait_for_the_end(llm: LLM) -> None:
    """What was cancelled ends behind the pass that is under way."""
    deadline = time.perf_counter() + 10.0
    while llm._engine.has_work and time.perf_counter() < deadline:
        time.sleep(0.001)
    assert not llm._engine.has_work


# --- the same text --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("family", tiny.FAMILIES)
def test_every_drafter_leads_to_the_same_text(family: str, tmp_path: Path) -> None:
    folder = tiny.TinyModel(family=family).write_folder(tmp_path / "model")
    plain = tiny_llm(family)
    expected = [plain.generate(TEXT, params)[0] for params in (GREEDY, SAMPLED)]
    other = tiny_file("qwen2" if family != "qwen2" else "llama", seed=3)
    for draft in ("auto", "lookup", str(tiny_file(family)), folder, other, ["lookup", other]):
        llm = tiny_llm(family, draft=draft, num_draft_tokens=3)
        for params, done in zip((GREEDY, SAMPLED), expected, strict=True):
            [found] = llm.generate(TEXT, params)
            assert (found.token_ids, found.text, found.usage) == (done.token_ids, done.text, done.usage)
        assert used_blocks(llm) == 0


def test_the_reference_speculates_too() -> None:
    llm = tiny_llm(kernels="reference", draft=tiny_file(), num_draft_tokens=3)
    expected = tiny_llm(kernels="reference").generate(TEXT, SAMPLED)[0]
    found = llm.generate(TEXT, SAMPLED)[0]
    assert found.token_ids == expected.token_ids
    assert found.speculation.num_accepted_tokens > 0


PROMPTS = [
    "Write a Python function that reverses a list.",
    "Repeat this three times: the cat sat on the mat.",
    "What is the capital of France?",
    "List the numbers from one to twenty.",
    "Translate to German: good morning, how are you?",
    "Explain in one sentence why the sky is blue.",
    "Give me a recipe for pancakes.",
    "Write JSON with the keys name, age and city for three people.",
    "Continue: once upon a time there was a",
    "Fix the code: for i in range(10) print(i)",
]


def test_the_real_model_says_the_same(smollm2_path: Path) -> None:
    plain = LLM(smollm2_path, draft="none")
    chats: list[Messages] = [[{"role": "user", "content": text}] for text in PROMPTS]
    params = [SamplingParams(max_tokens=16), SamplingParams(max_tokens=16, temperature=0.8, seed=7)]
    own_chats = [chats, chats[::2]]
    expected = [[plain.chat(c, own).token_ids for c in cs] for own, cs in zip(params, own_chats, strict=True)]
    drafted = 0
    for draft in ("lookup", smollm2_path):
        llm = LLM(smollm2_path, draft=draft, num_draft_tokens=4)
        for own, cs, outputs in zip(params, own_chats, expected, strict=True):
            for chat, tokens in zip(cs, outputs, strict=True):
                done = llm.chat(chat, own)
                assert done.token_ids == tokens
                drafted += done.speculation.num_draft_tokens
                if draft != "lookup":  # itself: all is accepted but what is drafted beyond the end
                    assert done.speculation.num_draft_tokens - done.speculation.num_accepted_tokens < 6
    assert drafted > 150


def test_the_longest_drafts_in_a_full_batch() -> None:
    texts = [TEXT[:length] for length in range(3, 43, 4)]
    params = SamplingParams(max_tokens=150, ignore_eos=True)
    expected = [done.token_ids for done in tiny_llm("qwen3").generate(texts, params)]
    for draft in ("lookup", tiny_file("qwen3")):
        llm = tiny_llm("qwen3", draft=draft, num_draft_tokens=64)
        assert [done.token_ids for done in llm.generate(texts, params)] == expected


def test_a_draft_model_with_few_tokens_to_choose_from() -> None:
    """Kind: ids of a shortened draft vocabulary are taken for those of the whole one."""
    for params in (replace(SAMPLED, temperature=0.3), SAMPLED):  # a greedy random model is never sure enough to draft
        expected = tiny_llm().generate(TEXT, params)[0].token_ids
        accepted = []
        for size in (1, 100, 274, 0):
            done = tiny_llm(draft=tiny_file(), num_draft_tokens=4, draft_vocab_size=size).generate(TEXT, params)[0]
            assert done.token_ids == expected
            accepted.append(done.speculation.num_accepted_tokens)
        assert accepted[0] < accepted[1] < accepted[3]


def test_fifty_engines_accept_the_same() -> None:
    """Kind: one build in many accepts nothing, with the same files."""
    counts = set()
    for _ in range(50):
        llm = tiny_llm(draft=tiny_file(seed=1), num_draft_tokens=4, threads=2)
        counts.add(llm.generate(TEXT, SAMPLED)[0].speculation.num_accepted_tokens)
    assert len(counts) == 1


@pytest.mark.parametrize("temperature", [0.0, 1.0])
def test_a_sliding_window_with_drafts(temperature: float) -> None:
    """Kind: text differs once the window has moved over what was rolled back."""
    params = SamplingParams(max_tokens=200, temperature=temperature, seed=1, ignore_eos=True)
    expected = tiny_llm("gemma3").generate(TEXT, params)[0].token_ids
    for draft in ("lookup", tiny_file("gemma3"), tiny_file("gemma3", seed=4)):
        for num_draft_tokens in (1, 5, 16):
            llm = tiny_llm("gemma3", draft=draft, num_draft_tokens=num_draft_tokens)
            assert llm.generate(TEXT, params)[0].token_ids == expected


def test_several_prompts_run_as_one_would() -> None:
    texts = ["a", TEXT, "in the end", TEXT[:9], "x" * 60, "and", "the", "or", "on", "in"]
    for draft in ("none", "lookup", tiny_file(seed=1)):
        llm = tiny_llm(draft=draft)
        together = [done.token_ids for done in llm.generate(texts, SAMPLED)]
        assert together == [llm.generate(text, SAMPLED)[0].token_ids for text in texts]
    assert tiny_llm().generate([]) == []


# --- vocabularies ---------------------------------------------------------------------------------------------------


def test_tables_padded_to_different_sizes_work_both_ways() -> None:
    """Kind: equal tokenizers with embeddings of different size are refused, or emit ids of the padding."""
    small, large = tiny_file(seed=5, vocab_size=288), tiny_file(seed=6, vocab_size=320)
    for target, draft in ((small, large), (large, small)):
        expected = LLM(target, draft="none", threads=1)
        llm = LLM(target, draft=draft, num_draft_tokens=4, threads=1)
        for temperature in (0.3, 5.0):  # hot enough to want every id
            params = SamplingParams(max_tokens=150, temperature=temperature, seed=2, ignore_eos=True)
            done = llm.generate(TEXT, params)[0]
            assert done.token_ids == expected.generate(TEXT, params)[0].token_ids
            assert max(done.token_ids) < 275
            assert done.speculation.num_draft_tokens > 0


# --- conversations and streams --------------------------------------------------------------------------------------


def num_found(done: Completion) -> int:
    """Tokens of the prompt that were in the prefix cache."""
    return done.usage.prompt_tokens - 1 - done.timings.num_prompt_tokens


@pytest.mark.parametrize("draft", ["none", "itself", "other"])
def test_the_second_turn_finds_the_first(draft: str) -> None:
    """Kind: tokens accepted after the end of a completion stay in the cache, so the next turn does not fit on it."""
    llm = tiny_llm(draft={"none": "none", "itself": tiny_file(), "other": tiny_file(seed=1)}[draft])
    first: Messages = [{"role": "user", "content": "the one and the other"}]
    ids = llm.tokenizer.encode_chat(first)
    said = llm.chat(first, SamplingParams(max_tokens=40, stop=("\n",), ignore_eos=True))
    # The next prompt as ids, since encoding the text of what was said may give other tokens.
    second = [*ids, *said.token_ids, *llm.tokenizer.encode("and then?")]
    [found] = llm.generate(second, GREEDY)
    [expected] = tiny_llm().generate(second, GREEDY)
    assert found.token_ids == expected.token_ids
    assert num_found(found) == (len(ids) + len(said.token_ids) - 1) // 16 * 16  # the last token never was computed
    [again] = llm.generate([*second, 1], GREEDY)
    assert num_found(again) == len(second) // 16 * 16
    assert used_blocks(llm) == 0
    llm.reset_prefix_cache()
    assert num_found(llm.generate(second, GREEDY)[0]) == 0


def test_a_stream_is_the_completion_in_pieces() -> None:
    for stop in ((), ("T",), ("@T", "\\")):
        params = SamplingParams(max_tokens=40, stop=stop, ignore_eos=True)
        for draft in ("none", "lookup", tiny_file("gemma3")):
            llm = tiny_llm("gemma3", draft=draft)
            [whole] = llm.generate("the and then", params)
            chunks = list(llm.stream("the and then", params))
            assert "".join(chunk.text for chunk in chunks) == whole.text
            assert tuple(token for chunk in chunks for token in chunk.token_ids) == whole.token_ids
            assert [chunk.completion is None for chunk in chunks] == [True] * (len(chunks) - 1) + [False]
            last = chunks[-1].completion
            assert last is not None
            assert (last.text, last.finish_reason, last.usage) == (whole.text, whole.finish_reason, whole.usage)


def test_a_conversation_can_be_streamed() -> None:
    messages: Messages = [{"role": "user", "content": "the"}]
    llm = tiny_llm()
    chunks = list(llm.stream(messages, GREEDY))
    assert "".join(chunk.text for chunk in chunks) == llm.chat(messages, GREEDY).text


def test_streams_that_are_left() -> None:
    """Kind: a reader that goes away keeps its memory, or keeps the engine busy."""
    llm = tiny_llm(draft=tiny_file(seed=1))
    expected = llm.generate(TEXT, GREEDY)[0].token_ids
    for _ in range(50):
        stream = llm.stream(TEXT, GREEDY)
        next(stream)
        stream.close()
    llm.stream(TEXT, GREEDY).close()  # never begun
    dropped = llm.stream(TEXT, GREEDY)
    del dropped
    wait_for_the_end(llm)
    assert used_blocks(llm) == 0
    assert llm.generate(TEXT, GREEDY)[0].token_ids == expected


def test_streams_side_by_side() -> None:
    """Kind: a stream that was finished by another one's step loses its last piece."""
    llm = tiny_llm(draft="lookup")
    short = SamplingParams(max_tokens=5, ignore_eos=True)
    expected = {text: llm.generate(text, own)[0].text for text, own in ((TEXT, GREEDY), ("the", short))}
    long, brief = llm.stream(TEXT, GREEDY), llm.stream("the", short)
    texts = {TEXT: next(long).text, "the": next(brief).text}
    texts[TEXT] += "".join(chunk.text for chunk in long)
    rest = list(brief)
    texts["the"] += "".join(chunk.text for chunk in rest)
    assert rest[-1].completion is not None
    assert texts == expected
    # And a completion in between.
    stream = llm.stream(TEXT, GREEDY)
    first = next(stream).text
    assert llm.generate("the", short)[0].text == expected["the"]
    assert first + "".join(chunk.text for chunk in stream) == expected[TEXT]


@pytest.mark.parametrize("at", range(1, 6))
def test_an_interrupt_leaves_the_model_usable(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: Ctrl-C while a prompt is computed, or in a round, costs memory or the next completion."""
    llm = tiny_llm(draft=tiny_file(seed=1), max_batched_tokens=16)
    expected = llm.generate(TEXT, GREEDY)[0].token_ids
    calls, run = SimpleNamespace(num=0), llm.decoder.compiled

    def interrupted(*args: object) -> object:
        calls.num += 1
        if calls.num == at:  # in the thread that runs the model, while this one waits
            signal.pthread_kill(threading.main_thread().ident or 0, signal.SIGINT)
        if calls.num >= at:  # passes of a model that is not tiny: time for the other thread, on a busy machine too
            time.sleep(0.02)
        return run(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(llm.decoder, "compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        llm.generate([TEXT + str(at), "the"], replace(GREEDY, max_tokens=200))
    wait_for_the_end(llm)
    assert calls.num < 30
    assert used_blocks(llm) == 0
    assert llm.generate(TEXT, GREEDY)[0].token_ids == expected


@pytest.mark.parametrize("at", range(1, 6))
def test_an_interrupt_of_steps_by_hand_leaves_the_model_usable(at: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: as above, in the middle of the pass itself."""
    llm = tiny_llm(draft=tiny_file(seed=1), max_batched_tokens=16)
    expected = llm.generate(TEXT, GREEDY)[0].token_ids
    calls, run = SimpleNamespace(num=0), llm.decoder.compiled

    def interrupted(*args: object) -> object:
        calls.num += 1
        if calls.num == at:
            raise KeyboardInterrupt
        return run(*args)  # type: ignore[arg-type]

    monkeypatch.setattr(llm.decoder, "compiled", interrupted)
    with pytest.raises(KeyboardInterrupt):
        list(llm.stepwise(TEXT + str(at), GREEDY))
    assert not llm._engine.has_work
    assert used_blocks(llm) == 0
    assert llm.generate(TEXT, GREEDY)[0].token_ids == expected


# --- options --------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("options", "parts"),
    [
        ({"draft": "medusaa"}, ["medusaa", "lookup"]),
        ({"draft": []}, ["--draft"]),
        ({"draft": ""}, ["draft", "''"]),
        ({"draft": ["none", "lookup"]}, ["none", "combined"]),
        ({"draft": ["auto", "none"]}, ["none", "combined"]),
        ({"draft": 5}, ["--draft", "5"]),
        ({"draft": [None]}, ["--draft", "None"]),
        ({"num_draft_tokens": 0}, ["--num-draft-tokens", "1 to 64", "0"]),
        ({"num_draft_tokens": 65}, ["--num-draft-tokens", "65"]),
        ({"num_draft_tokens": "4"}, ["--num-draft-tokens", "'4'"]),
        ({"num_draft_tokens": True}, ["--num-draft-tokens", "True"]),
        ({"context_length": 1}, ["--context-length", "2 to 256", "1"]),
        ({"context_length": 257}, ["--context-length", "257"]),
        ({"context_length": 2.5}, ["--context-length", "2.5"]),
        ({"threads": 0}, ["--threads", "0"]),
        ({"threads": 1.5}, ["--threads", "1.5"]),
        ({"threads": 10**9}, ["--threads"]),
        ({"kernels": "cuda"}, ["cuda", "native"]),
        ({"max_running": 0}, ["--max-running", "0"]),
        ({"max_batched_tokens": 15}, ["--max-batched-tokens", "16 to 65536", "15"]),
        ({"kv_memory": "much"}, ["--kv-memory", "'much'", "2G"]),
        ({"kv_memory": 1000}, ["--kv-memory", "1000", "give at least"]),
        ({"kv_memory": "1000000G"}, ["no memory", "--kv-memory"]),
    ],
)
def test_options_that_make_no_sense(options: dict[str, object], parts: list[str]) -> None:
    with pytest.raises(OptionError) as caught:
        tiny_llm(**options)
    message = str(caught.value)
    assert "\n" not in message
    assert all(part in message for part in parts), message


def test_a_draft_that_is_not_there() -> None:
    with pytest.raises(UserError, match=r"no-such\.gguf"):
        tiny_llm(draft="/tmp/no-such.gguf")


def test_prompts_that_make_no_sense() -> None:
    llm = tiny_llm()
    for bad in ("", ["a", ""], 5, ["a", 5], None):
        with pytest.raises(OptionError):
            llm.generate(bad)  # type: ignore[arg-type]
    with pytest.raises(OptionError, match="empty"):
        llm.stream("")
    assert not llm._engine.has_work
    for messages in ([], [{"role": "user"}], [5], 5, None, [{"role": "user", "content": None}]):
        with pytest.raises(UserError):
            llm.chat(messages)  # type: ignore[arg-type]


def test_a_prompt_and_the_context() -> None:
    llm = tiny_llm(context_length=10)
    assert llm.context_length == 10
    [done] = llm.generate("abcdefghi", SamplingParams(max_tokens=None, ignore_eos=True))
    assert (done.usage.prompt_tokens, done.usage.completion_tokens, done.finish_reason) == (9, 1, "length")
    for text in ("abcdefghij", "abcdefghijk"):
        with pytest.raises(ContextLengthError, match=f"{len(text)} tokens.*holds 10.*if the model was made for more"):
            llm.generate(["a", text])
    assert not llm._engine.has_work
    [done] = llm.generate("abc", SamplingParams(max_tokens=100, ignore_eos=True))
    assert (done.usage.total_tokens, done.finish_reason) == (10, "length")


def test_the_report() -> None:
    llm = LLM(tiny_file(), draft=["lookup", str(tiny_file(seed=1))], threads=1)
    found = json.loads(json.dumps(llm.generate(TEXT, GREEDY)[0].to_json_dict(), allow_nan=False))
    assert found["speculation"]["methods"] == ["lookup", f"model:{tiny_file(seed=1).stem}"]
    assert found["speculation"]["reason"]
    assert found["timings"]["load_s"] > 0
    assert found["timings"]["decode_s"] > 0
    none = tiny_llm().generate(TEXT, GREEDY)[0].speculation
    assert (none.methods, none.num_draft_tokens, none.acceptance_rate) == (("none",), 0, None)
    assert LLM(tiny_file()).generate(TEXT, GREEDY)[0].speculation.methods[0] == "suffix"
