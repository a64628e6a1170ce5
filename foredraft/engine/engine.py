"""The step of an engine: schedule, run, and see what became of it."""

import itertools
import time
from collections.abc import Callable
from collections.abc import Sequence as Several
from dataclasses import replace

from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.drafters import PREDICTION
from foredraft.engine.output import Output
from foredraft.engine.scheduler import Scheduler, Wish
from foredraft.engine.tracing import Tracer
from foredraft.errors import ContextLengthError, OptionError
from foredraft.kernels.operations import Floats
from foredraft.planner.base import Planner
from foredraft.round import RoundReport, run_round
from foredraft.sampling import ProcessorFactory, SamplingParams
from foredraft.sequence import Batch, Sequence, Status
from foredraft.target import ModelTarget
from foredraft.text import Tokenizer
from foredraft.trace import Sink

MAX_RUNNING = 8
MAX_BATCHED_TOKENS = 256
"""With so many tokens in a pass, arithmetic is what it waits for: more would make it longer, and not faster."""


class Engine:
    """Runs sequences in rounds. Not for several threads at a time: see `foredraft.engine.loop` for the owner of steps.

    context_length: most tokens of a sequence, prompt and output together.
    max_running: most sequences that share a round; further ones wait.
    max_batched_tokens: of one pass; drafted tokens come on top.
    rule: decides which drafted tokens are kept. trace: takes a record of every sequence and round; None: none are made.
    needs_prompt_features: whether a drafter wants the hidden states of every token of a prompt.
    """

    def __init__(
        self,
        target: ModelTarget,
        planner: Planner,
        tokenizer: Tokenizer,
        *,
        context_length: int,
        max_running: int = MAX_RUNNING,
        max_batched_tokens: int = MAX_BATCHED_TOKENS,
        rule: AcceptanceRule = COUPLED,
        trace: Sink | None = None,
        needs_prompt_features: bool = False,
    ) -> None:
        self.context_length = context_length
        self._target = target
        self._planner = planner
        self._tokenizer = tokenizer
        self._rule = rule
        self._needs_prompt_features = needs_prompt_features
        self._tracer = None if trace is None else Tracer(trace, planner, tokenizer)
        self._scheduler = Scheduler(max_running=max_running, max_batched_tokens=max_batched_tokens)
        self._outputs: dict[int, Output] = {}
        self._ids = itertools.count()
        self._processors = ProcessorFactory(tokenizer, target.vocab_size)

    @property
    def has_work(self) -> bool:
        """Whether a step would do anything."""
        return bool(self._outputs)

    @property
    def num_running(self) -> int:
        """Sequences that are worked on, their prompts or themselves."""
        return self._scheduler.num_active

    @property
    def num_waiting(self) -> int:
        """Sequences that nobody works on yet, or at the moment."""
        return self._scheduler.num_waiting

    def prepare(self, prompt: Several[int], params: SamplingParams, *, sample_index: int = 0) -> Output:
        """A sequence that is sound, not queued yet, and its output. May be called from any thread.

        sample_index: which of several completions of the prompt it is to be.

        Raises OptionError for an empty prompt, ids outside the vocabulary, parameters of a wrong type, or a grammar
        that cannot be used; ContextLengthError for a prompt that leaves no room for output.
        """
        if not isinstance(params, SamplingParams):
            raise OptionError(f"sampling parameters must be SamplingParams, got {params!r}")
        if params.prediction is not None and sample_index == 0:
            self._check_prediction(params.prediction)
        if not prompt:
            raise OptionError("the prompt is empty: give at least one token of text")
        self._check_ids("prompt", prompt)
        self._check_ids("--stop-token-ids", params.stop_token_ids)
        self._check_ids("--logit-bias", tuple(params.logit_bias or ()))
        max_length = self._max_length(len(prompt), params.max_tokens)
        end_ids = frozenset(params.stop_token_ids)
        if not params.ignore_eos:
            end_ids |= self._tokenizer.eos_ids
        params = params.with_seed()
        sequence = Sequence(
            id=next(self._ids),
            tokens=list(prompt),
            num_prompt_tokens=len(prompt),
            params=params,
            max_length=max_length,
            blocks=self._target.decoder.cache.open(),
            sample_index=sample_index,
            processors=self._processors.make(params, tuple(prompt), end_ids),
        )
        return Output(sequence, self._tokenizer, end_ids)

    def _check_prediction(self, prediction: str) -> None:
        if not {PREDICTION, "none"} & set(self._planner.names):
            names = ", ".join(name for name in self._planner.names if name != "grammar")
            raise OptionError(f"--prediction helps only the drafter of that name, not {names}: add --draft prediction")
        # The drafter encodes it within a step, which a text of any length would keep all others waiting for.
        num_tokens = len(self._tokenizer.encode(prediction, add_special=False))
        if num_tokens > self.context_length:
            raise OptionError(
                f"--prediction has {num_tokens} tokens and the context holds {self.context_length}: shorten it"
            )

    def _check_ids(self, what: str, ids: Several[int]) -> None:
        if bad := [token for token in ids if not 0 <= token < self._target.vocab_size]:
            raise OptionError(f"{what} token {bad[0]} is outside the vocabulary of {self._target.vocab_size}")

    def _max_length(self, num_prompt_tokens: int, max_tokens: int | None) -> int:
        """Most tokens of a sequence with such a prompt."""
        least = 0 if max_tokens == 0 else 1
        if num_prompt_tokens + least > self.context_length:
            raise ContextLengthError(
                f"the prompt has {num_prompt_tokens} tokens and the context holds {self.context_length}, completion "
                "included: shorten the prompt, or raise --context-length if the model was made for more"
            )
        room = self._target.decoder.cache.num_positions
        if num_prompt_tokens + least > room:
            raise ContextLengthError(
                f"the prompt has {num_prompt_tokens} tokens and the cache holds {room}: raise --kv-memory"
            )
        longest = min(self.context_length, room)
        return longest if max_tokens is None else min(longest, num_prompt_tokens + max_tokens)

    def add(self, output: Output) -> None:
        """Queue a sequence that was prepared."""
        sequence = output.sequence
        self._outputs[sequence.id] = output
        self._scheduler.add(sequence, Wish(output.wants_prompt_logits, self._needs_prompt_features))

    def cancel(self, output: Output) -> None:
        """End a sequence, whatever it is doing, and give its blocks back. Harmless when it is over."""
        if output.sequence.id in self._outputs:
            self._end(output, Status.CANCELLED)

    def step(self) -> list[Output]:
        """One pass: a round of all running sequences, and the next chunks of prompts. Returns whom it concerned.

        A failure belongs to the sequence that it comes from: see its status and error. Where the whole step fails, all
        sequences of it have failed. The engine stays usable.
        """
        concerned = list(self._outputs.values())
        try:
            scheduled = self._scheduler.schedule()
            concerned = [self._outputs[sequence.id] for sequence in scheduled.sequences]
            for output in concerned:
                output.admitted = output.admitted or time.perf_counter()
            batch = self._begin(scheduled)
            report = self._run(batch)
            self._account(batch, report)
            self._end_those_that_are_over(concerned)
        except BaseException as error:  # the planner's, or an interrupt: nobody knows who is to go on
            known = error if isinstance(error, Exception) else InterruptedError(repr(error))
            for output in concerned:
                if output.sequence.id in self._outputs:
                    self._fail(output.sequence, known)
                    self._end(output, Status.FAILED)
            if known is not error:
                raise
        return concerned

    def _begin(self, batch: Batch) -> Batch:
        """Note whose rounds begin, and end those that want no tokens."""
        begun = [self._outputs[sequence.id] for sequence in batch.running]
        for output in begun:
            if not output.decode_started:
                output.start_decoding()
                if self._tracer is not None:
                    self._try(output, self._tracer.started)
        self._end_those_that_are_over(begun)
        return replace(batch, running=tuple(s for s in batch.running if s.status is Status.RUNNING))

    def _run(self, batch: Batch) -> RoundReport | None:
        if not batch.running and not batch.chunks:
            return None
        report = run_round(batch, self._planner, self._target, self._emit, self._rule, see_prompt=self._see_prompt)
        for sequence in batch.sequences:
            if sequence.id in report.failed:
                self._fail(sequence, report.failed[sequence.id])
        return report

    def _emit(self, sequence: Sequence, tokens: tuple[int, ...], logits: Several[Floats]) -> int:
        return self._outputs[sequence.id].emit(tokens, logits)

    def _see_prompt(self, sequence: Sequence, logits_SV: Floats) -> None:
        self._outputs[sequence.id].see_prompt_logits(logits_SV)

    @staticmethod
    def _fail(sequence: Sequence, error: Exception) -> None:
        sequence.status, sequence.error = Status.FAILED, error

    def _account(self, batch: Batch, report: RoundReport | None) -> None:
        """Note what the pass did for each sequence."""
        if report is None:
            return
        times, outcomes = report.result.times, report.result.outcomes
        num_batched = sum(outcome.tree.num_nodes for outcome in outcomes if outcome) + batch.num_prefill_tokens
        source = "+".join(self._planner.names)
        for index, (sequence, outcome) in enumerate(zip(batch.running, outcomes, strict=True)):
            if outcome is not None:
                num_emitted = len(sequence.tokens) - report.plan.num_tokens[index]
                counts = self._outputs[sequence.id].counts
                counts.add(outcome, num_emitted, times, report.plan, index, source)
                if self._tracer is not None:
                    self._try(self._outputs[sequence.id], self._tracer.recorder(report, index))
        for chunk in batch.chunks:
            if chunk.sequence.status is Status.PREFILLING:
                self._outputs[chunk.sequence.id].prefill_s += times.total * chunk.num_tokens / num_batched
                self._scheduler.computed(chunk.sequence)

    def _try(self, output: Output, tell: Callable[[Output], None]) -> None:
        """Tell a trace or the planner of a sequence. What they raise is an error of the sequence."""
        try:
            tell(output)
        except Exception as error:
            self._fail(output.sequence, error)

    def _end_those_that_are_over(self, outputs: Several[Output]) -> None:
        for output in outputs:
            if output.sequence.status.is_over:
                self._end(output, output.sequence.status)

    def _end(self, output: Output, status: Status) -> None:
        sequence = output.sequence
        if self._outputs.pop(sequence.id, None) is None:
            return
        sequence.status = status
        if status is not Status.FAILED:
            sequence.blocks.publish(sequence.tokens)
        self._scheduler.remove(sequence)
        self._try(output, self._end_drafting)
        if self._tracer is not None:
            self._try(output, self._tracer.ended)

    def _end_drafting(self, output: Output) -> None:
        output.reason = self._planner.reason(output.sequence.id)
        self._planner.end(output.sequence.id)

    def end_all(self, error: Exception) -> list[Output]:
        """Fail every sequence; returns them."""
        ended = list(self._outputs.values())
        for output in ended:
            self._fail(output.sequence, error)
            self._end(output, Status.FAILED)
        return ended

    def drop_all(self) -> None:
        """In a forked child: the sequences are the parent's, and so is the trace."""
        self._tracer = None
        for output in list(self._outputs.values()):
            self._end(output, Status.CANCELLED)

    def reset_prefix_cache(self) -> None:
        """Forget what is cached of sequences that are over, by target and draft models: later ones that begin alike are
        prefilled anew."""
        self._target.decoder.cache.pool.reset()
        self._planner.reset_prefix_cache()
