"""What answers tell besides their text, under the names that others use for it."""

from collections.abc import AsyncIterator, Iterator, Sequence
from dataclasses import replace
from typing import Any

from foredraft.drafters import PREDICTION
from foredraft.engine import Chunk, Completion
from foredraft.sampling import TokenLogprob
from foredraft.sampling.logprobs import to_json
from foredraft.text import Tokenizer


def usage(completions: Sequence[Completion]) -> dict[str, Any]:
    """Numbers of tokens, as OpenAI has them.

    Completion tokens are those of the answer: drafted ones that were rejected cost nobody anything. Accepted and
    rejected prediction tokens are those drafted from the request's own `prediction`.
    """
    predicted = [completion.speculation.by_method.get(PREDICTION, (0, 0)) for completion in completions]
    num_drafted, num_accepted = (sum(numbers) for numbers in zip(*predicted, strict=True))
    num_prompt = sum(completion.usage.prompt_tokens for completion in completions)
    num_completion = sum(completion.usage.completion_tokens for completion in completions)
    return {
        "prompt_tokens": num_prompt,
        "completion_tokens": num_completion,
        "total_tokens": num_prompt + num_completion,
        "prompt_tokens_details": {"cached_tokens": sum(one.usage.cached_tokens for one in completions)},
        "completion_tokens_details": {
            "accepted_prediction_tokens": num_accepted,
            "rejected_prediction_tokens": num_drafted - num_accepted,
        },
    }


def timings(completion: Completion) -> dict[str, Any]:
    """Times of one prompt, as llama.cpp's server has them: milliseconds, and tokens per second."""
    times, spec = completion.timings, completion.speculation
    return {
        "cache_n": completion.usage.cached_tokens,
        "prompt_n": times.num_prompt_tokens,
        "prompt_ms": times.prefill_s * 1e3,
        "prompt_per_second": times.prompt_tokens_per_s,
        "predicted_n": times.num_completion_tokens,
        "predicted_ms": times.decode_s * 1e3,
        "predicted_per_second": times.tokens_per_s,
        "draft_n": spec.num_draft_tokens,
        "draft_n_accepted": spec.num_accepted_tokens,
        "queue_ms": times.queue_s * 1e3,
        "first_token_ms": times.first_token_s * 1e3,
    }


def ending(completions: Sequence[Completion]) -> dict[str, Any]:
    """What stands at the end of an answer; times and drafting only where it is to a single prompt."""
    found: dict[str, Any] = {"usage": usage(completions)}
    if len(completions) == 1:
        found |= {
            "timings": timings(completions[0]),
            "speculation": completions[0].speculation.to_json_dict(),
        }
    return found


def drafts(chunk: Chunk) -> dict[str, Any]:
    """Who drafted the tokens of a chunk; source null: the target said it itself."""
    return {
        "tokens": [{"text": text, "source": source} for text, source in zip(chunk.pieces, chunk.sources, strict=True)],
        "num_draft_tokens": chunk.num_draft_tokens,
        "num_accepted_tokens": chunk.num_accepted_tokens,
    }


async def one_by_one(chunks: AsyncIterator[Chunk]) -> AsyncIterator[Chunk]:
    """Chunks of one token each."""
    async for chunk in chunks:
        for single in _tokens(chunk):
            yield single


def _tokens(chunk: Chunk) -> Iterator[Chunk]:
    if len(chunk.token_ids) < 2:
        yield chunk
        return
    # What an echoed prompt put in front of the first piece stays there.
    lead = chunk.text[: len(chunk.text) - sum(map(len, chunk.pieces))]
    for place, token in enumerate(chunk.token_ids):
        yield replace(
            chunk,
            text=(lead if place == 0 else "") + chunk.pieces[place],
            token_ids=(token,),
            pieces=(chunk.pieces[place],),
            sources=(chunk.sources[place],),
            logprobs=chunk.logprobs[place : place + 1],
            num_draft_tokens=chunk.num_draft_tokens if place == 0 else 0,
            num_accepted_tokens=chunk.num_accepted_tokens if place == 0 else 0,
        )


def logprobs(found: Sequence[TokenLogprob], tokenizer: Tokenizer) -> list[dict[str, Any]]:
    """Log-probabilities as OpenAI's conversations have them, under "content"."""
    ids = {token for one in found for token in (one.token_id, *(top for top, _ in one.top))}
    texts = {token: tokenizer.token_bytes(token) for token in ids}
    return [to_json(one, texts) for one in found]
