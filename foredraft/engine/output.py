"""What becomes of a sequence's tokens: text, and where it ends. All of this only observes the sequence."""

import time
from collections import Counter
from collections.abc import Sequence as Several
from dataclasses import dataclass, field
from typing import NamedTuple

from foredraft import accept
from foredraft.drafters.base import Outcome
from foredraft.engine.completion import Choice, Chunk, PromptLogprobs
from foredraft.kernels.operations import Floats
from foredraft.planner.base import Plan, RoundTimes
from foredraft.sampling import SamplingParams, StopStrings, TokenLogprob, token_logprob
from foredraft.sequence import FinishReason, Sequence, Status
from foredraft.text import Detokenizer, Tokenizer


@dataclass
class SpeculationCounts:
    """What rounds have done for a sequence so far.

    plain_s: seconds that the same tokens would have taken without drafts, as far as the planner knows, and round_s:
    those that they took, in the rounds for which it does.
    """

    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)
    drafted: Counter[str] = field(default_factory=Counter)
    accepted: Counter[str] = field(default_factory=Counter)
    draft_s: float = field(default=0.0, compare=False)
    verify_s: float = field(default=0.0, compare=False)
    accept_s: float = field(default=0.0, compare=False)
    expected_tokens: float = field(default=0.0, compare=False)
    expected_s: float = field(default=0.0, compare=False)
    plain_s: float = field(default=0.0, compare=False)
    round_s: float = field(default=0.0, compare=False)
    choices: list[accept.Choice] = field(default_factory=list)
    sources: list[str | None] = field(default_factory=list)
    """Of each token that was emitted: whose draft it was; None where the target said it itself."""

    def add(self, outcome: Outcome, num_emitted: int, times: RoundTimes, plan: Plan, index: int, source: str) -> None:
        """Count one round. index: of the sequence in the plan. source: of nodes of trees that do not say theirs."""
        self.draft_s += times.draft
        self.verify_s += times.verify
        self.accept_s += times.accept
        expected = plan.expectation(index)
        if expected is not None:
            self.expected_tokens += expected.num_tokens
            self.expected_s += expected.seconds
        if plan.plain_s is not None:
            self.plain_s += num_emitted * plan.plain_s
            self.round_s += times.total
        tree = outcome.tree
        sources = tree.sources or (source,) * tree.num_nodes
        accepted = [sources[node] for node in outcome.path]
        self.drafted.update(sources[1:])
        self.accepted.update(accepted)
        self.sources.extend([*accepted, None][:num_emitted])
        self.num_rounds += 1
        self.num_draft_tokens += outcome.num_draft_tokens
        self.num_accepted_tokens += outcome.num_accepted_tokens
        missing = outcome.num_draft_tokens - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for position in range(outcome.num_accepted_tokens):
            self.accepted_per_position[position] += 1
        self.choices.extend(outcome.choices)


class _Taken(NamedTuple):
    """How much of a sequence its client has."""

    tokens: int = 0
    draft_tokens: int = 0
    accepted_tokens: int = 0


class Output:
    """The text of a sequence. Finds its end: end tokens, stop strings, a complete form, length.

    sequence: what is observed; its status and finish reason are set here when it ends.
    end_ids: tokens that end it. reason: why it was drafted for as it was; set at its end.
    prefill_s: seconds of passes that its prompt took. prepared, admitted, decode_started, first_token,
    decode_ended: when it was made, first taken into a pass, and so on; 0 until then.
    """

    def __init__(self, sequence: Sequence, tokenizer: Tokenizer, end_ids: frozenset[int]) -> None:
        self.sequence = sequence
        self.reason = ""
        self.prefill_s = 0.0
        self.prepared = time.perf_counter()
        self.admitted = self.decode_started = self.first_token = self.decode_ended = 0.0
        self.counts = SpeculationCounts()
        self._end_ids = end_ids
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, at_start=False)
        params = sequence.params
        self._stops = StopStrings(params.stop, keep_stop=params.include_stop_str_in_output)
        self._echo = tokenizer.decode(self.prompt) if params.echo else ""
        # What each token brought to the text; the text that one held back comes with the next.
        self._pieces: list[str] = []
        self._taken, self._echo_left = _Taken(), self._echo
        wants_sum = params.logprobs is not None or params.num_choices > params.n
        self._logprobs: list[TokenLogprob] | None = [] if wants_sum else None
        self._prompt_logprobs: list[TokenLogprob] = []

    @property
    def params(self) -> SamplingParams:
        """Of the sequence, with a seed."""
        return self.sequence.params

    @property
    def prompt(self) -> tuple[int, ...]:
        """The prompt's tokens."""
        return tuple(self.sequence.tokens[: self.sequence.num_prompt_tokens])

    @property
    def token_ids(self) -> tuple[int, ...]:
        """The tokens produced."""
        return tuple(self.sequence.tokens[self.sequence.num_prompt_tokens :])

    @property
    def wants_prompt_logits(self) -> bool:
        """Whether the logits of the prompt are wanted; one of several completions does it for all."""
        return self.params.prompt_logprobs is not None and self.sequence.sample_index == 0

    def see_prompt_logits(self, logits_SV: Floats) -> None:
        """The logits after the next tokens that are computed; those of a sequence computed anew are known already."""
        num_prompt, start = self.sequence.num_prompt_tokens, self.sequence.num_computed_tokens
        for place, logits_V in enumerate(logits_SV, start=start + 1):
            if len(self._prompt_logprobs) < place < num_prompt:
                token = self.sequence.tokens[place]
                self._prompt_logprobs.append(token_logprob(logits_V, token, self.params.prompt_logprobs or 0))

    def start_decoding(self) -> None:
        """The prompt is computed; rounds follow, unless no tokens are wanted."""
        self.decode_started = self.decode_started or time.perf_counter()
        if len(self.sequence.tokens) >= self.sequence.max_length:
            self._finish("length")

    def emit(self, tokens: Several[int], logits: Several[Floats]) -> int:
        """Append the tokens of a round up to where the sequence ends; returns how many that is.

        logits: for each token the row [V] that it was chosen from.
        """
        num_kept = 0
        self.first_token = self.first_token or time.perf_counter()
        for token in tokens:
            num_kept += 1
            self.sequence.tokens.append(token)
            self._pieces.append("")
            if self._ends_with(token):
                self._finish("stop")
            elif len(self.sequence.tokens) >= self.sequence.max_length:
                self._finish("length")
            if self.sequence.status is Status.FINISHED:
                break
        if self._logprobs is not None:
            kept = zip(logits, tokens[:num_kept], strict=False)
            num_top = self.params.logprobs or 0
            self._logprobs.extend(token_logprob(logits_V, token, num_top) for logits_V, token in kept)
        return num_kept

    def _ends_with(self, token: int) -> bool:
        if token in self._end_ids:
            if self.params.include_stop_str_in_output:
                self._push(self._detokenizer.push(token))
            return True
        if self._push(self._detokenizer.push(token)):
            return True
        processors = self.sequence.processors
        return processors is not None and processors.complete(self.sequence.tokens)

    def _push(self, text: str) -> bool:
        """Add text; returns whether a stop string was completed."""
        if self.sequence.num_output_tokens <= self.params.min_tokens:
            shown, stopped = text, False
        else:
            shown, stopped = self._stops.push(text)
        if shown:
            self._pieces[-1] += shown
        return stopped

    def _finish(self, reason: FinishReason) -> None:
        if self._pieces:
            if self._push(self._detokenizer.finish()):
                reason = "stop"
            if not self._stops.stopped:
                self._pieces[-1] += self._stops.finish()
        self.sequence.finish_reason = reason
        self.sequence.status = Status.FINISHED
        self.decode_ended = time.perf_counter()

    def take_new(self, index: int) -> Chunk:
        """What came since the last call, as a chunk of the completion with this index."""
        before, counts = self._taken, self.counts
        now = _Taken(self.sequence.num_output_tokens, counts.num_draft_tokens, counts.num_accepted_tokens)
        self._taken = now
        num_tokens = now.tokens - before.tokens
        pieces = tuple(self._pieces[before.tokens :])
        echo, self._echo_left = self._echo_left, ""
        return Chunk(
            text=echo + "".join(pieces),
            token_ids=self.token_ids[before.tokens :],
            index=index,
            logprobs=self._logprobs_of_last(num_tokens),
            pieces=pieces,
            sources=tuple(counts.sources[before.tokens :]),
            num_draft_tokens=now.draft_tokens - before.draft_tokens,
            num_accepted_tokens=now.accepted_tokens - before.accepted_tokens,
        )

    def _logprobs_of_last(self, num_tokens: int) -> tuple[TokenLogprob, ...]:
        if self.params.logprobs is None or not self._logprobs or not num_tokens:
            return ()
        return tuple(self._logprobs[-num_tokens:])

    @property
    def cumulative_logprob(self) -> float | None:
        """Log-probability of all tokens together; None where nobody wants it."""
        return None if self._logprobs is None else sum(found.logprob for found in self._logprobs)

    @property
    def prompt_logprobs(self) -> PromptLogprobs | None:
        """Of the prompt's tokens, where asked for."""
        if self.params.prompt_logprobs is None:
            return None
        found = tuple(self._prompt_logprobs)
        return PromptLogprobs(tokens=found, token_texts=self._texts(found))

    def choice(self, index: int) -> Choice:
        """The finished completion, as one of several."""
        assert self.sequence.finish_reason is not None
        logprobs = None if self.params.logprobs is None else tuple(self._logprobs or ())
        return Choice(
            index=index,
            text=self._echo + "".join(self._pieces),
            token_ids=self.token_ids,
            finish_reason=self.sequence.finish_reason,
            logprobs=logprobs,
            cumulative_logprob=self.cumulative_logprob,
            token_texts=self._texts(logprobs or ()),
        )

    def _texts(self, logprobs: Several[TokenLogprob]) -> dict[int, bytes]:
        mentioned = {token for found in logprobs for token in (found.token_id, *(top for top, _ in found.top))}
        return {token: self._tokenizer.token_bytes(token) for token in mentioned}
