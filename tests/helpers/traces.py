"""A small trace, as the engine would make it."""

from dataclasses import replace

from foredraft.trace import Choice, Header, RoundRecord, SequenceEnd, SequenceStart, Trace

HEADER = Header(
    foredraft="1",
    model="m.gguf",
    tokenizer="ab",
    drafters=("lookup", "suffix"),
    settings={"num_draft_tokens": 4},
    machine={"processor": "x"},
)
START = SequenceStart(
    sequence=0, prompt="Say it.", prompt_tokens=(1, 2), num_cached_tokens=0, prefill_s=0.5, params={"temperature": 0.0}
)
TREE = RoundRecord(
    sequence=0,
    round=0,
    num_tokens=2,
    tokens=(2, 7, 8, 9, 10),
    parents=(-1, 0, 0, 1, 1),
    confidence=(1.0, 0.5, 0.25, 0.75, 0.125),
    sources=("", "lookup", "suffix", "lookup", "suffix"),
    texts=("it.", " one", " won", " two", " too"),
    target_ranks=(None, 1, 2, 3, 4),
    target_probs=(None, 0.75, 0.125, 0.0625, 0.001),
    accepted=(1,),
    rejected=3,
    choice=Choice(token=11, text=" three", rank=1, probability=0.5),
    emitted=(7, 11),
    emitted_texts=(" one", " three"),
    draft_s=0.001,
    verify_s=0.01,
    accept_s=0.002,
    num_sequences=1,
    num_batched_tokens=5,
    expected_tokens=1.5,
    expected_s=0.02,
    reason="asked for",
)
PLAIN = replace(
    TREE,
    round=1,
    num_tokens=4,
    tokens=(11,),
    parents=(-1,),
    confidence=(1.0,),
    sources=("",),
    texts=(" three",),
    target_ranks=(None,),
    target_probs=(None,),
    accepted=(),
    rejected=None,
    choice=Choice(token=0, text="<|end|>", rank=1, probability=0.9),
    emitted=(0,),
    emitted_texts=("",),
    num_batched_tokens=1,
    expected_tokens=None,
    expected_s=None,
)
END = SequenceEnd(
    sequence=0,
    finish_reason="stop",
    num_rounds=2,
    num_draft_tokens=4,
    num_accepted_tokens=1,
    num_emitted_tokens=3,
    reason="asked for",
)


def small_trace() -> Trace:
    """Two sequences: one of a round with a tree and a round without a draft, and one with the latter only."""
    trace = Trace()
    for record in (HEADER, START, TREE, PLAIN, END):
        trace(record)
    trace(replace(START, sequence=1, prompt="Again.", prompt_tokens=(1, 2, 3, 11)))
    trace(replace(PLAIN, sequence=1, round=0))
    return trace
