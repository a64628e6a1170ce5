"""A request on its way from prompt to completion."""

import time
from collections import Counter
from collections.abc import Sequence
from dataclasses import dataclass, field

from foredraft import accept
from foredraft.accept import COUPLED, AcceptanceRule
from foredraft.drafters import Outcome
from foredraft.engine.answers import completion_of
from foredraft.engine.completion import Choice, Completion, FinishReason, PromptLogprobs
from foredraft.errors import ForedraftError
from foredraft.kernels.operations import Floats
from foredraft.planner import RoundTimes
from foredraft.round import RoundRequest
from foredraft.sampling import ProcessorFactory, SamplingParams, StopStrings, TokenLogprob, token_logprob
from foredraft.text import Detokenizer, Tokenizer
from foredraft.trace import Expectation


@dataclass
class SpeculationCounts:
    """What rounds have done for a request so far."""

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
    choices: list[accept.Choice] = field(default_factory=list)

    def add(self, outcome: Outcome, times: RoundTimes, expected: Expectation | None, methods: Sequence[str]) -> None:
        """Count one round. methods: of the planner, for trees that do not say from whom they are."""
        self.draft_s += times.draft
        self.verify_s += times.verify
        self.accept_s += times.accept
        if expected is not None:
            self.expected_tokens += expected.num_tokens
            self.expected_s += expected.seconds
        sources = outcome.tree.sources or (",".join(methods),) * outcome.tree.num_nodes
        self.drafted.update(sources[1:])
        self.accepted.update(sources[node] for node in outcome.path)
        self.num_rounds += 1
        self.num_draft_tokens += outcome.num_draft_tokens
        self.num_accepted_tokens += outcome.num_accepted_tokens
        missing = outcome.num_draft_tokens - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for position in range(outcome.num_accepted_tokens):
            self.accepted_per_position[position] += 1
        self.choices.extend(outcome.choices)


class Request:
    """Tokens become text here, and the end is found: end tokens, stop strings, a complete form, length.

    choice: which of several answers to the prompt this is. Raises OptionError for a grammar that cannot be used.
    """

    def __init__(
        self,
        request_id: int,
        prompt: Sequence[int],
        params: SamplingParams,
        tokenizer: Tokenizer,
        max_length: int,
        *,
        choice: int = 0,
        processors: ProcessorFactory | None = None,
    ) -> None:
        self.id = request_id
        self.prompt = tuple(prompt)
        self.params = params.with_seed()
        self.max_length = max_length
        self.choice = choice
        self.round: RoundRequest | None = None
        """Set once the prompt has been read."""
        self.finish_reason: FinishReason | None = None
        self.reason = ""
        """Why it was drafted for as it was; set at its end."""
        self.failed = False
        """Given up without an answer."""
        self.error: ForedraftError | None = None
        """Why, where the reason lies in the request itself."""
        self.num_cached_prompt_tokens = 0
        self.prefill_s = 0.0
        self.decode_started = self.decode_ended = 0.0
        self.counts = SpeculationCounts()
        self._end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else tokenizer.eos_ids)
        self.processors = None if processors is None else processors.make(params, self.prompt, self._end_ids)
        self._tokenizer = tokenizer
        self._detokenizer = Detokenizer(tokenizer, at_start=False)
        self._stops = StopStrings(params.stop, keep_stop=params.include_stop_str_in_output)
        self._text: list[str] = [tokenizer.decode(self.prompt)] if params.echo else []
        self._taken = (0, 0)  # pieces of text and tokens already handed out
        self._output: list[int] = []
        wants_sum = params.logprobs is not None or params.num_choices > params.n
        self.logprobs: list[TokenLogprob] | None = [] if wants_sum else None
        self._prompt_logprobs: list[TokenLogprob] = []

    @property
    def finished(self) -> bool:
        """Whether the answer is complete."""
        return self.finish_reason is not None

    @property
    def num_output_tokens(self) -> int:
        """Tokens produced."""
        return len(self._output)

    @property
    def wants_prompt_logits(self) -> bool:
        """Whether reading the prompt has to show its logits; one of several answers does it for all."""
        return self.params.prompt_logprobs is not None and self.choice == 0

    def see_prompt_logits(self, logits_SV: Floats) -> None:
        """The logits after the next tokens of the prompt."""
        for logits_V in logits_SV:
            token = self.prompt[len(self._prompt_logprobs) + 1]
            self._prompt_logprobs.append(token_logprob(logits_V, token, self.params.prompt_logprobs or 0))

    def start_reading(self) -> None:
        """The prompt is about to be read, perhaps not for the first time."""
        self._prompt_logprobs.clear()

    def start_decoding(self, round_request: RoundRequest) -> None:
        """The prompt is in the cache; rounds follow."""
        self.round = round_request
        self.decode_started = time.perf_counter()

    def emit(self, tokens: Sequence[int]) -> int:
        """Take in the tokens of a round up to where the request ends; returns how many that is."""
        assert self.round is not None
        for count, token in enumerate(tokens, start=1):
            self._output.append(token)
            self.round.tokens.append(token)
            if self._ends_with(token):
                self._finish("stop")
            elif len(self.round.tokens) >= self.max_length:
                self._finish("length")
            if self.finished:
                return count
        return len(tokens)

    def _ends_with(self, token: int) -> bool:
        assert self.round is not None
        if token in self._end_ids:
            if self.params.include_stop_str_in_output:
                self._push(self._detokenizer.push(token))
            return True
        if self._push(self._detokenizer.push(token)):
            return True
        return self.processors is not None and self.processors.complete(self.round.tokens)

    def _push(self, text: str) -> bool:
        """Add text; returns whether a stop string was completed."""
        if self.num_output_tokens <= self.params.min_tokens:
            shown, stopped = text, False
        else:
            shown, stopped = self._stops.push(text)
        if shown:
            self._text.append(shown)
        return stopped

    def _finish(self, reason: FinishReason) -> None:
        if self._push(self._detokenizer.finish()):
            reason = "stop"
        if not self._stops.stopped:
            self._text.append(self._stops.finish())
        self.finish_reason = reason
        self.decode_ended = time.perf_counter()

    def take_new(self) -> tuple[str, tuple[int, ...]]:
        """Text and tokens since the last call."""
        begin, end = self._taken, (len(self._text), len(self._output))
        self._taken = end
        return "".join(self._text[begin[0] : end[0]]), tuple(self._output[begin[1] : end[1]])

    def logprobs_of_last(self, num_tokens: int) -> tuple[TokenLogprob, ...]:
        """Of the last tokens produced; empty where not asked for."""
        if self.params.logprobs is None or not self.logprobs or not num_tokens:
            return ()
        return tuple(self.logprobs[-num_tokens:])

    @property
    def cumulative_logprob(self) -> float | None:
        """Log-probability of all tokens together; None where nobody wants it."""
        return None if self.logprobs is None else sum(found.logprob for found in self.logprobs)

    @property
    def prompt_logprobs(self) -> PromptLogprobs | None:
        """Of the prompt's tokens, where asked for."""
        if self.params.prompt_logprobs is None:
            return None
        found = tuple(self._prompt_logprobs)
        return PromptLogprobs(tokens=found, token_texts=self._texts(found))

    def answer(self, index: int) -> Choice:
        """The finished answer, as one of several."""
        assert self.finish_reason is not None
        logprobs = None if self.params.logprobs is None else tuple(self.logprobs or ())
        return Choice(
            index=index,
            text="".join(self._text),
            token_ids=tuple(self._output),
            finish_reason=self.finish_reason,
            logprobs=logprobs,
            cumulative_logprob=self.cumulative_logprob,
            token_texts=self._texts(logprobs or ()),
        )

    def _texts(self, logprobs: Sequence[TokenLogprob]) -> dict[int, bytes]:
        mentioned = {token for found in logprobs for token in (found.token_id, *(top for top, _ in found.top))}
        return {token: self._tokenizer.token_bytes(token) for token in mentioned}

    def completion(self, *, methods: Sequence[str], load_s: float, rule: AcceptanceRule = COUPLED) -> Completion:
        """The finished answer by itself. rule: by which drafts were accepted."""
        return completion_of([self], methods=methods, load_s=load_s, rule=rule)
