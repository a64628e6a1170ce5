"""POST /v1/completions, as OpenAI has it: plain texts are continued."""

import secrets
import time
from collections.abc import AsyncGenerator, Sequence
from itertools import accumulate
from typing import Any

from starlette.requests import Request
from starlette.responses import Response

from foredraft.engine import Completion
from foredraft.inputs import Prompt, tokens_of
from foredraft.sampling import TokenLogprob
from foredraft.server.answering import answer_stream, answer_whole
from foredraft.server.connection import Event
from foredraft.server.errors import ApiError
from foredraft.server.fields import (
    Count,
    Ignored,
    Listed,
    Logprobs,
    Object,
    Positive,
    ResponseFormat,
    SamplingFields,
    StreamOptions,
    Texts,
)
from foredraft.server.generation import Generation, Wanted
from foredraft.server.infill import infill_prompt
from foredraft.server.pool import ServedModel
from foredraft.server.reports import drafts, ending, logprobs, one_by_one

DEFAULT_MAX_TOKENS = 16
"""As OpenAI's."""


class CompletionRequest(SamplingFields, Ignored):
    """The body of a request. docs/server.md has all fields in a table."""

    model: str
    prompt: Texts | Listed[Count] | Listed[Listed[Count]]
    suffix: str | None = None
    max_tokens: Count | None = None
    best_of: Positive | None = None
    echo: bool | None = None
    logprobs: Logprobs | None = None
    prompt_logprobs: Logprobs | None = None
    response_format: ResponseFormat | None = None
    prediction: str | None = None
    stream: bool | None = None
    stream_options: StreamOptions | None = None
    include_drafts: bool | None = None

    def wanted(self) -> Wanted:
        """What is asked. Raises ApiError for fields that contradict each other."""
        prompts = self._prompts()
        if self.suffix and (len(prompts) > 1 or not isinstance(prompts[0], str)):
            raise ApiError("suffix needs a single prompt, as a text", param="suffix")
        if self.suffix and self.echo:
            raise ApiError("suffix and echo cannot be combined", param="suffix")
        return Wanted(
            model=self.model,
            prompts=self._encode if self.suffix else lambda _: prompts,
            sampling=self._sampling(),
            drafting=self.drafting(),
            said={"prompt": self.prompt, **({"suffix": self.suffix} if self.suffix else {})},
        )

    def _prompts(self) -> list[Prompt]:
        prompt = self.prompt
        if isinstance(prompt, str):
            return [prompt]
        if not prompt:
            raise ApiError("the prompt is empty: give at least one token of text", param="prompt")
        prompts: list[Prompt] = [prompt] if isinstance(prompt[0], int) else list(prompt)
        if not all(len(one) for one in prompts):
            raise ApiError("the prompt is empty: give at least one token of text", param="prompt")
        return prompts

    def _encode(self, model: ServedModel) -> list[Prompt]:
        return [infill_prompt(model.llm.tokenizer, str(self.prompt), self.suffix or "")]

    def _sampling(self) -> Object:
        found = self.sampling()
        found["max_tokens"] = DEFAULT_MAX_TOKENS if self.max_tokens is None else self.max_tokens
        for name in ("best_of", "echo", "logprobs", "prompt_logprobs", "prediction"):
            if (value := getattr(self, name)) is not None and value != "":
                found[name] = value
        if self.response_format is not None:
            found |= self.response_format.sampling()
        return found


async def completions(body: CompletionRequest, request: Request) -> Response:
    """Continue prompts."""
    writer = _Writer(body)
    if body.stream:
        return await answer_stream(request, body.wanted(), writer.events)
    return await answer_whole(request, body.wanted(), writer.whole)


class _Writer:
    """Writes the answers to one request."""

    def __init__(self, body: CompletionRequest) -> None:
        self._body = body
        self._options = body.stream_options or StreamOptions()
        self._head = {
            "id": f"cmpl-{secrets.token_hex(12)}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": body.model,
        }
        self._offsets: dict[int, int] = {}

    async def whole(self, generation: Generation) -> Object:
        """The answers in one object."""
        completed = await generation.whole()
        choices = [choice for place, one in enumerate(completed) for choice in self._choices(place, one, generation)]
        return {**self._head, "choices": choices, **ending(completed)}

    def _choices(
        self, place: int, completion: Completion, generation: Generation, *, told: bool = False
    ) -> list[Object]:
        """The answers to one prompt. told: their texts were sent before, and only what comes with the end is wanted."""
        entries = []
        for choice in completion.choices:
            index = place * len(completion.choices) + choice.index
            text, found = ("", None) if told else (choice.text, choice.logprobs)
            entry = self._choice(index, text, found, generation, choice.finish_reason)
            if completion.prompt_logprobs is not None and choice.index == 0:
                entry["prompt_logprobs"] = completion.prompt_logprobs.to_json()
            entries.append(entry)
        return entries

    async def events(self, generation: Generation) -> AsyncGenerator[Event]:
        """The answers as they come."""
        chunks = generation.chunks()
        async for chunk in one_by_one(chunks) if self._options.token_by_token else chunks:
            tells = self._body.include_drafts or (self._body.logprobs is not None and chunk.logprobs)
            if chunk.text or (chunk.token_ids and tells):
                entry = self._choice(chunk.index, chunk.text, chunk.logprobs, generation, None)
                if self._body.include_drafts:
                    entry["drafts"] = drafts(chunk)
                yield None, self._object([entry])
        for place, completion in enumerate(generation.completions):
            for entry in self._choices(place, completion, generation, told=True):
                yield None, self._object([entry])
        if self._options.include_usage:
            yield None, {**self._head, "choices": [], **ending(generation.completions)}
        yield None, "[DONE]"

    def _object(self, choices: list[Object]) -> Object:
        usage = {"usage": None} if self._options.include_usage else {}
        return {**self._head, "choices": choices, **usage}

    def _choice(
        self,
        index: int,
        text: str,
        found: Sequence[TokenLogprob] | None,
        generation: Generation,
        reason: str | None,
    ) -> Object:
        told: Any = None
        if self._body.logprobs is not None and found:
            start = self._offsets.setdefault(index, self._num_echoed(index, generation))
            told = _as_lists(logprobs(found, generation.model.llm.tokenizer), start)
            self._offsets[index] += sum(map(len, told["tokens"]))
        return {"index": index, "text": text, "logprobs": told, "finish_reason": reason}

    def _num_echoed(self, index: int, generation: Generation) -> int:
        """Characters of the prompt that stand in front of an answer."""
        if not self._body.echo:
            return 0
        tokenizer = generation.model.llm.tokenizer
        prompt = generation.prompts[index // generation.params.n]
        return len(tokenizer.decode(tokens_of(prompt, tokenizer, parse_special=isinstance(prompt, str))))


def _as_lists(entries: Sequence[Object], start: int) -> Object:
    """Log-probabilities in the form of this API: one list for each kind of figure.

    start: where in the answer's text the first token begins.
    """
    texts = [entry["token"] for entry in entries]
    ends = list(accumulate(map(len, texts), initial=start))
    return {
        "tokens": texts,
        "token_logprobs": [entry["logprob"] for entry in entries],
        "top_logprobs": [{top["token"]: top["logprob"] for top in entry["top_logprobs"]} for entry in entries],
        "text_offset": ends[:-1],
    }
