"""A request on its way from prompt to completion."""

import time
from collections.abc import Sequence
from dataclasses import dataclass, field

from foredraft.drafters import Outcome
from foredraft.engine.completion import Completion, FinishReason, Speculation, Timings, Usage
from foredraft.round import RoundRequest
from foredraft.sampling import SamplingParams, StopStrings
from foredraft.text import Detokenizer, Tokenizer


@dataclass
class SpeculationCounts:
    """What rounds have done for a request so far."""

    num_rounds: int = 0
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
    accepted_per_position: list[int] = field(default_factory=list)

    def add(self, outcome: Outcome) -> None:
        """Count one round."""
        self.num_rounds += 1
        self.num_draft_tokens += outcome.num_draft_tokens
        self.num_accepted_tokens += outcome.num_accepted_tokens
        missing = outcome.num_draft_tokens - len(self.accepted_per_position)
        self.accepted_per_position.extend([0] * missing)
        for position in range(outcome.num_accepted_tokens):
            self.accepted_per_position[position] += 1


class Request:
    """Tokens become text here, and the end is found: end tokens, stop strings, length."""

    def __init__(
        self,
        request_id: int,
        prompt: Sequence[int],
        params: SamplingParams,
        tokenizer: Tokenizer,
        max_length: int,
    ) -> None:
        self.id = request_id
        self.prompt = tuple(prompt)
        self.params = params.with_seed()
        self.max_length = max_length
        self.round: RoundRequest | None = None
        """Set once the prompt has been read."""
        self.finish_reason: FinishReason | None = None
        self.reason = ""
        """Why it was drafted for as it was; set at its end."""
        self.failed = False
        """Given up without an answer."""
        self.num_cached_prompt_tokens = 0
        self.prefill_s = 0.0
        self.counts = SpeculationCounts()
        self._end_ids = frozenset(params.stop_token_ids) | (frozenset() if params.ignore_eos else tokenizer.eos_ids)
        self._detokenizer = Detokenizer(tokenizer, at_start=False)
        self._stops = StopStrings(params.stop)
        self._text: list[str] = []
        self._taken = (0, 0)  # pieces of text and tokens already handed out
        self._output: list[int] = []
        self._decode_started = self._decode_ended = 0.0

    @property
    def finished(self) -> bool:
        """Whether the answer is complete."""
        return self.finish_reason is not None

    def start_decoding(self, round_request: RoundRequest) -> None:
        """The prompt is in the cache; rounds follow."""
        self.round = round_request
        self._decode_started = time.perf_counter()

    def emit(self, tokens: Sequence[int]) -> int:
        """Take in the tokens of a round up to where the request ends; returns how many that is."""
        assert self.round is not None
        for count, token in enumerate(tokens, start=1):
            self._output.append(token)
            self.round.tokens.append(token)
            if token in self._end_ids or self._push(self._detokenizer.push(token)):
                self._finish("stop")
            elif len(self.round.tokens) >= self.max_length:
                self._finish("length")
            if self.finished:
                return count
        return len(tokens)

    def _push(self, text: str) -> bool:
        """Add text; returns whether a stop string was completed."""
        shown, stopped = self._stops.push(text)
        if shown:
            self._text.append(shown)
        return stopped

    def _finish(self, reason: FinishReason) -> None:
        if not self._stops.stopped and self._push(self._detokenizer.finish()):
            reason = "stop"
        if not self._stops.stopped:
            self._text.append(self._stops.finish())
        self.finish_reason = reason
        self._decode_ended = time.perf_counter()

    def take_new(self) -> tuple[str, tuple[int, ...]]:
        """Text and tokens since the last call."""
        begin, end = self._taken, (len(self._text), len(self._output))
        self._taken = end
        return "".join(self._text[begin[0] : end[0]]), tuple(self._output[begin[1] : end[1]])

    def completion(self, *, methods: Sequence[str], load_s: float) -> Completion:
        """The finished answer."""
        assert self.finish_reason is not None
        return Completion(
            text="".join(self._text),
            token_ids=tuple(self._output),
            finish_reason=self.finish_reason,
            usage=Usage(prompt_tokens=len(self.prompt), completion_tokens=len(self._output)),
            timings=Timings(
                load_s=load_s,
                prefill_s=self.prefill_s,
                decode_s=self._decode_ended - self._decode_started,
                num_prompt_tokens=len(self.prompt) - 1 - self.num_cached_prompt_tokens,
                num_completion_tokens=len(self._output),
            ),
            speculation=Speculation(
                methods=tuple(methods),
                lossless=True,
                num_rounds=self.counts.num_rounds,
                num_draft_tokens=self.counts.num_draft_tokens,
                num_accepted_tokens=self.counts.num_accepted_tokens,
                num_emitted_tokens=len(self._output),
                accepted_per_position=tuple(self.counts.accepted_per_position),
                reason=self.reason,
            ),
        )
