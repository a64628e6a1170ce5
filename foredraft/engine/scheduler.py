"""Which requests run: prompts are read one after the other, then all running requests share every round."""

import itertools
import time
from collections import deque
from collections.abc import Sequence

from foredraft.drafters import Drafter
from foredraft.engine.request import Request
from foredraft.errors import ContextLengthError, OptionError
from foredraft.planner import FixedPlanner
from foredraft.round import RoundRequest, run_round
from foredraft.sampling import SamplingParams
from foredraft.text import Tokenizer
from foredraft.verify import Verifier

MAX_RUNNING = 8


class Engine:
    """Runs requests in rounds.

    context_length: most tokens of a request, prompt and output together.
    max_running: most requests that share a round; further ones wait.
    """

    def __init__(
        self,
        verifier: Verifier,
        drafter: Drafter,
        planner: FixedPlanner,
        tokenizer: Tokenizer,
        *,
        context_length: int,
        max_running: int = MAX_RUNNING,
    ) -> None:
        self.context_length = context_length
        self._verifier = verifier
        self._drafter = drafter
        self._planner = planner
        self._tokenizer = tokenizer
        self._max_running = max_running
        self._ids = itertools.count()
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._running)

    def submit(self, prompt: Sequence[int], params: SamplingParams) -> Request:
        """Queue a request.

        Raises OptionError for an empty prompt or one with ids outside the vocabulary, ContextLengthError for one
        that leaves no room for an answer.
        """
        if not prompt:
            raise OptionError("the prompt is empty: give at least one token of text")
        if bad := [token for token in prompt if not 0 <= token < self._verifier.vocab_size]:
            raise OptionError(f"prompt token {bad[0]} is outside the vocabulary of {self._verifier.vocab_size}")
        if len(prompt) >= self.context_length:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens and the context holds {self.context_length}, answer "
                "included: shorten the prompt or raise --context-length up to what the model was made for"
            )
        longest = self.context_length
        if params.max_tokens is not None:
            longest = min(longest, len(prompt) + params.max_tokens)
        request = Request(next(self._ids), prompt, params, self._tokenizer, longest)
        self._waiting.append(request)
        return request

    def step(self) -> None:
        """Read one waiting prompt if there is room, else run one round."""
        if self._waiting and len(self._running) < self._max_running:
            self._start(self._waiting.popleft())
        elif self._running:
            self._round()

    def _start(self, request: Request) -> None:
        started = time.perf_counter()
        sequence, num_cached = self._verifier.open(request.prompt)
        request.num_cached_prompt_tokens = num_cached
        request.prefill_s = time.perf_counter() - started
        self._running[request.id] = request
        request.start_decoding(
            RoundRequest(
                id=request.id,
                tokens=list(request.prompt),
                num_prompt_tokens=len(request.prompt),
                params=request.params,
                max_length=request.max_length,
                sequence=sequence,
            )
        )

    def _round(self) -> None:
        requests = list(self._running.values())
        rounds = [request.round for request in requests if request.round is not None]
        results = run_round(rounds, self._drafter, self._planner, self._verifier, self._emit)
        for request, result in zip(requests, results, strict=True):
            request.counts.add(result)
            if request.finished:
                self.release(request)

    def _emit(self, request: RoundRequest, tokens: tuple[int, ...]) -> int:
        return self._running[request.id].emit(tokens)

    def release(self, request: Request) -> None:
        """Take a request out, finished or not, and give back what it held. Harmless when done twice."""
        if request in self._waiting:
            self._waiting.remove(request)
        if self._running.pop(request.id, None) is not None and request.round is not None:
            request.round.sequence.close()
            self._drafter.forget(request.id)
