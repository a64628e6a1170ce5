"""The front door: load a model, generate, chat, stream."""

import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.drafters import make_drafter
from foredraft.engine import Completion, Engine, Request
from foredraft.errors import OptionError
from foredraft.kernels.choose import choose_kernels
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.models.store import DEFAULT_MODEL, resolve
from foredraft.planner import FixedPlanner
from foredraft.planner.fixed import DEFAULT_NUM_DRAFT_TOKENS
from foredraft.sampling import SamplingParams
from foredraft.text import load_tokenizer
from foredraft.verify import Verifier

Messages = Sequence[Mapping[str, str]]
MAX_DRAFT_TOKENS = 64

__all__ = ["LLM", "Chunk", "Completion", "Messages", "SamplingParams"]


@dataclass(frozen=True)
class Chunk:
    """A piece of a streamed answer. The last one carries the completion; its text may be empty."""

    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None


class LLM:
    """A model that answers, with speculation where a drafter is given.

    model: a .gguf file, a safetensors folder, a hub id or a built-in name.
    draft: "auto", "none", "lookup" or a model as above, or several of them in order of preference.
    num_draft_tokens: most tokens drafted in a round. context_length: most tokens of a request; None: what the model was
    made for. threads: of the native kernels; None: all processors of this process. kernels: "native" or "reference".

    Raises UserError subclasses for anything wrong with the model or the options.
    """

    def __init__(
        self,
        model: str | Path = DEFAULT_MODEL,
        *,
        draft: str | Sequence[str] = "auto",
        num_draft_tokens: int | None = None,
        context_length: int | None = None,
        threads: int | None = None,
        kernels: str = "native",
    ) -> None:
        started = time.perf_counter()
        budget = DEFAULT_NUM_DRAFT_TOKENS if num_draft_tokens is None else num_draft_tokens
        if not 1 <= budget <= MAX_DRAFT_TOKENS:
            raise OptionError(f"--num-draft-tokens must be from 1 to {MAX_DRAFT_TOKENS}, got {budget}")
        chosen = choose_kernels(kernels, threads=threads)
        source = open_model(resolve(model))
        self.tokenizer = load_tokenizer(source.tokenizer_data)
        names = [draft] if isinstance(draft, str) else list(draft)
        self._drafter, self._reason = make_drafter(names, target=self.tokenizer, kernels=chosen)
        self.decoder = load_decoder(source, kernels=chosen)
        self._engine = Engine(
            Verifier(self.decoder, min(self.tokenizer.vocab_size, source.config.vocab_size)),
            self._drafter,
            FixedPlanner(budget),
            self.tokenizer,
            context_length=_context(context_length, source.config.context_length),
        )
        self._load_s = time.perf_counter() - started

    @property
    def has_chat_template(self) -> bool:
        """Whether the model says how a conversation is written."""
        return self.tokenizer.chat_template is not None

    @property
    def context_length(self) -> int:
        """Most tokens of a request, prompt and answer together."""
        return self._engine.context_length

    def generate(self, prompts: str | Sequence[str], params: SamplingParams | None = None) -> list[Completion]:
        """Continue each prompt as it stands. Several prompts run together. Completions come in the order given.

        Raises OptionError for an empty prompt, ContextLengthError for one that does not fit.
        """
        texts = [prompts] if isinstance(prompts, str) else prompts
        return self._run([self.tokenizer.encode(text) for text in texts], params or SamplingParams())

    def chat(self, messages: Messages, params: SamplingParams | None = None) -> Completion:
        """Answer a conversation: messages with "role" and "content". Raises as `generate`, and without a template."""
        [completion] = self._run([self._encode_chat(messages)], params or SamplingParams())
        return completion

    def stream(self, prompt: str | Messages, params: SamplingParams | None = None) -> Iterator[Chunk]:
        """Answer a text or a conversation piece by piece. Closing the iterator ends the request.

        The pieces together are the text of the completion. Raises as `generate` and `chat`, before the first piece.
        """
        ids = self.tokenizer.encode(prompt) if isinstance(prompt, str) else self._encode_chat(prompt)
        request = self._engine.submit(ids, params or SamplingParams())
        return self._chunks(request)

    def _chunks(self, request: Request) -> Iterator[Chunk]:
        try:
            completion: Completion | None = None
            while completion is None:
                self._engine.step()
                text, token_ids = request.take_new()
                completion = self._completion(request) if request.finished else None
                if completion is not None or token_ids:
                    yield Chunk(text, token_ids, completion)
        finally:
            self._engine.release(request)

    def _run(self, prompts: Sequence[Sequence[int]], params: SamplingParams) -> list[Completion]:
        requests: list[Request] = []
        try:
            for ids in prompts:
                requests.append(self._engine.submit(ids, params))
            while not all(request.finished for request in requests):
                self._engine.step()
        finally:
            for request in requests:
                self._engine.release(request)
        return [self._completion(request) for request in requests]

    def _completion(self, request: Request) -> Completion:
        return request.completion(methods=self._drafter.name.split(","), reason=self._reason, load_s=self._load_s)

    def _encode_chat(self, messages: Messages) -> list[int]:
        if not self.has_chat_template:
            raise OptionError("this model has no chat template: give a plain text to continue (--raw)")
        return self.tokenizer.encode_chat(messages)


def _context(asked: int | None, longest: int) -> int:
    if asked is None:
        return longest
    if not 2 <= asked <= longest:
        raise OptionError(f"--context-length must be from 2 to {longest}, what the model was made for, got {asked}")
    return asked
