"""Which requests run: prompts are read one after the other, then all running requests share every round."""

import contextlib
import itertools
import threading
import time
from collections import deque
from collections.abc import Iterator, Sequence

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.engine.request import Request
from foredraft.engine.tracing import Tracer
from foredraft.errors import ContextLengthError, ForedraftError, OptionError
from foredraft.planner import Planner
from foredraft.round import RoundRequest, run_round
from foredraft.sampling import ProcessorFactory, SamplingParams
from foredraft.text import Tokenizer
from foredraft.trace import Sink
from foredraft.verify import Verifier

MAX_RUNNING = 8


class Engine:
    """Runs requests in rounds. Several threads may use one engine; each step is made by one of them for all.

    context_length: most tokens of a request, prompt and output together.
    max_running: most requests that share a round; further ones wait.
    rule: decides which drafted tokens are kept.
    trace: takes a record of every request and round; None: none are made.
    """

    def __init__(
        self,
        verifier: Verifier,
        planner: Planner,
        tokenizer: Tokenizer,
        *,
        context_length: int,
        max_running: int = MAX_RUNNING,
        rule: AcceptanceRule = COUPLED,
        trace: Sink | None = None,
    ) -> None:
        self.context_length = context_length
        self._verifier = verifier
        self._planner = planner
        self._tokenizer = tokenizer
        self._processors = ProcessorFactory(tokenizer, verifier.vocab_size)
        self._max_running = max_running
        self._rule = rule
        self._tracer = None if trace is None else Tracer(trace, planner, tokenizer)
        self._ids = itertools.count()
        self._waiting: deque[Request] = deque()
        self._running: dict[int, Request] = {}
        # One step at a time: logits are views that the next pass overwrites. Reentrant, because an abandoned stream may
        # be collected in the middle of a step and release its request there: that waits for the end of the step.
        self._lock = threading.RLock()
        self._stepping = False
        self._left: list[Request] = []

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._waiting or self._running)

    def prepare(self, prompt: Sequence[int], params: SamplingParams, *, choice: int = 0) -> Request:
        """A request that is sound, not queued yet. choice: which of several answers to the prompt it is to be.

        Raises OptionError for an empty prompt, ids outside the vocabulary, parameters of a wrong type, or a grammar
        that cannot be used; ContextLengthError for a prompt that leaves no room for an answer.
        """
        if not isinstance(params, SamplingParams):
            raise OptionError(f"sampling parameters must be SamplingParams, got {params!r}")
        if params.prediction is not None and not {"prediction", "none"} & set(self._planner.methods):
            methods = ", ".join(name for name in self._planner.methods if name != "grammar")
            raise OptionError(
                f"--prediction helps only the drafter of that name, not {methods}: add --draft prediction"
            )
        if not prompt:
            raise OptionError("the prompt is empty: give at least one token of text")
        self._check_ids("prompt", prompt)
        self._check_ids("--stop-token-ids", params.stop_token_ids)
        self._check_ids("--logit-bias", tuple(params.logit_bias))
        if len(prompt) >= self.context_length:
            raise ContextLengthError(
                f"the prompt has {len(prompt)} tokens and the context holds {self.context_length}, answer "
                "included: shorten the prompt, or raise --context-length if the model was made for more"
            )
        longest = self.context_length
        if params.max_tokens is not None:
            longest = min(longest, len(prompt) + params.max_tokens)
        return Request(
            next(self._ids), prompt, params, self._tokenizer, longest, choice=choice, processors=self._processors
        )

    def _check_ids(self, what: str, ids: Sequence[int]) -> None:
        if bad := [token for token in ids if not 0 <= token < self._verifier.vocab_size]:
            raise OptionError(f"{what} token {bad[0]} is outside the vocabulary of {self._verifier.vocab_size}")

    def submit(self, request: Request) -> None:
        """Queue a request that was prepared."""
        with self._lock:
            self._waiting.append(request)

    def advance(self, request: Request) -> bool:
        """Make one step on behalf of a request that has been queued, unless it is finished; whether it is now.

        Raises ForedraftError if the request was given up: because no token could be chosen for it, or because a round
        that it shared with others failed.
        """
        with self._lock:
            if request.error is not None:
                raise request.error
            if request.failed:
                raise ForedraftError("the request was given up: a round that it shared with other requests failed")
            if not request.finished:
                self.step()
            return request.finished

    @contextlib.contextmanager
    def paused(self) -> Iterator[None]:
        """No step is made meanwhile: what is read of a request belongs together."""
        with self._lock:
            yield

    def forget_texts(self) -> None:
        """Drop the prompts of answered requests, which later requests that begin alike need not read again."""
        with self._lock:
            self._verifier.forget_texts()

    def step(self) -> None:
        """Read one waiting prompt if there is room, else run one round.

        Whatever is raised, the engine stays usable. A round that fails, or is interrupted, may have emitted tokens
        that it did not commit, so the requests that took part are given up.
        """
        with self._lock:
            self._stepping = True
            try:
                if self._waiting and len(self._running) < self._max_running:
                    self._start(self._waiting[0])
                elif self._running:
                    self._round_or_give_up()
            finally:
                self._stepping = False
                while self._left:
                    self._take_out(self._left.pop())

    def _round_or_give_up(self) -> None:
        try:
            self._round()
        except BaseException:
            for request in list(self._running.values()):
                request.failed = True
                with contextlib.suppress(Exception):  # what failed first is told, and none of the others may stay
                    self._take_out(request)
            raise

    def _start(self, request: Request) -> None:
        """Read a prompt. If that fails the request goes on waiting, for whoever queued it to release it."""
        started = time.perf_counter()
        request.start_reading()
        see = request.see_prompt_logits if request.wants_prompt_logits else None
        sequence, num_cached = self._verifier.open(request.prompt, see)
        try:
            request.num_cached_prompt_tokens = num_cached
            request.prefill_s = time.perf_counter() - started
            request.start_decoding(
                RoundRequest(
                    id=request.id,
                    tokens=list(request.prompt),
                    num_prompt_tokens=len(request.prompt),
                    params=request.params,
                    max_length=request.max_length,
                    sequence=sequence,
                    choice=request.choice,
                    processors=request.processors,
                    logprobs=request.logprobs,
                )
            )
            if self._tracer is not None:
                self._tracer.started(request)
            self._waiting.popleft()
            self._running[request.id] = request
        except BaseException:
            sequence.close()
            raise

    def _round(self) -> None:
        requests = list(self._running.values())
        rounds = [request.round for request in requests if request.round is not None]
        report = run_round(rounds, self._planner, self._verifier, self._emit, self._rule)
        if self._tracer is not None:
            self._tracer.round_made(requests, report)
        for request, outcome in zip(requests, report.outcomes, strict=True):
            expected = self._planner.expectation(request.id)
            request.counts.add(outcome, report.times, expected, self._planner.methods)
            request.error = report.failed.get(request.id)
            request.failed = request.error is not None
            if request.finished or request.failed:
                self._take_out(request)

    def _emit(self, request: RoundRequest, tokens: tuple[int, ...]) -> int:
        return self._running[request.id].emit(tokens)

    def release(self, request: Request) -> None:
        """Take a request out, finished or not, and give back what it held. Harmless when done twice."""
        with self._lock:
            if self._stepping:
                self._left.append(request)
            else:
                self._take_out(request)

    def _take_out(self, request: Request) -> None:
        if request in self._waiting:
            self._waiting.remove(request)
        if self._running.pop(request.id, None) is not None and request.round is not None:
            request.round.sequence.close()
            request.reason = self._planner.reason(request.id)
            self._planner.forget(request.id)
            if self._tracer is not None:
                self._tracer.ended(request)
