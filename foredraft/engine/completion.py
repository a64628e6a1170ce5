"""What a prompt comes to."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from statistics import fmean
from typing import Any

from foredraft import accept
from foredraft.accept import Equality
from foredraft.sampling.logprobs import LEAST_LOGPROB, TokenLogprob, to_json
from foredraft.sequence import FinishReason


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens of the prompt and produced. An end token that was produced counts.

    cached_tokens: of the prompt, found in the prefix cache by the first sequence that completes it.
    """

    prompt_tokens: int
    completion_tokens: int
    cached_tokens: int = field(default=0, compare=False)

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Seconds, and rates that follow from them.

    load_s: loading of the model, once for all prompts. queue_s: until the first pass that worked on the prompt.
    first_token_s, whole_s: until the first and the last token.
    prefill_s: of passes over the prompt; of a pass that was shared, its part. decode_s: from there to the end.
    draft_s, verify_s, accept_s: its parts, planning and drafting, the target's passes, and choosing tokens; of rounds
    that were shared with other sequences, all of it.
    num_prompt_tokens, num_completion_tokens: what the rates are about. Prompt tokens found in the cache do not count,
    nor does the last one, which is the root of the first round.
    """

    load_s: float
    prefill_s: float
    decode_s: float
    draft_s: float = 0.0
    verify_s: float = 0.0
    accept_s: float = 0.0
    queue_s: float = 0.0
    first_token_s: float = 0.0
    whole_s: float = 0.0
    num_prompt_tokens: int
    num_completion_tokens: int

    @property
    def prompt_tokens_per_s(self) -> float | None:
        """Prompt tokens computed per second; None where there were none."""
        return self.num_prompt_tokens / self.prefill_s if self.num_prompt_tokens and self.prefill_s else None

    @property
    def tokens_per_s(self) -> float | None:
        """Tokens produced per second of decoding."""
        return self.num_completion_tokens / self.decode_s if self.decode_s else None


@dataclass(frozen=True, kw_only=True)
class LenientCost:
    """What a lenient rule of acceptance cost one prompt.

    share_different: of the tokens, how many are not what the target itself would have said at that place of this text.
    mean_logprob, mean_own_logprob: mean natural log-probability, under the target at temperature 1 without filters, of
    the tokens emitted and of those the target would have said there.
    """

    share_different: float
    mean_logprob: float
    mean_own_logprob: float

    @classmethod
    def of(cls, judged: "Sequence[accept.Choice]") -> "LenientCost | None":
        """From what the rule reported of each token; None of any other rule, which reports nothing."""
        if not judged:
            return None
        return cls(
            share_different=fmean(choice.differs for choice in judged),
            mean_logprob=fmean(choice.logprob for choice in judged),
            mean_own_logprob=fmean(choice.own_logprob for choice in judged),
        )


@dataclass(frozen=True, kw_only=True)
class Speculation:
    """What drafting did for one prompt.

    methods: the drafters that may be asked. lossless: whether the text is the target's own, token for token or in
    distribution. num_rounds: forward passes of the target. num_draft_tokens: drafted and verified.
    num_accepted_tokens: of those, kept; bonus tokens do not count. accepted_per_position: how often the i-th token of a
    draft was accepted. reason: what was drafted and why, in words.
    acceptance: the rule of acceptance. equality: what the text has in common with plain decoding: "path", every token;
    "distribution", how likely each text is over all seeds; "none". cost: of a lenient rule, else None.
    by_method: of each drafter its tokens that were verified, and of these accepted. expected_tokens, expected_s: what
    the planner thought its rounds would emit and take, and None where it had no opinion. speedup: over plain decoding,
    by what the planner knows of plain passes; None where it knows nothing.
    """

    methods: tuple[str, ...]
    lossless: bool
    num_rounds: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_emitted_tokens: int
    accepted_per_position: tuple[int, ...]
    reason: str
    acceptance: str = "coupled"
    equality: Equality = "path"
    cost: LenientCost | None = None
    by_method: Mapping[str, tuple[int, int]] = field(default_factory=dict)
    expected_tokens: float | None = None
    expected_s: float | None = None
    speedup: float | None = None

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None where nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens emitted per round, bonus included."""
        return self.num_emitted_tokens / self.num_rounds if self.num_rounds else None

    def to_json_dict(self) -> dict[str, Any]:
        """As `foredraft generate --json` and the server report it."""
        return {
            "methods": list(self.methods),
            "lossless": self.lossless,
            "num_rounds": self.num_rounds,
            "num_draft_tokens": self.num_draft_tokens,
            "num_accepted_tokens": self.num_accepted_tokens,
            "acceptance_rate": self.acceptance_rate,
            "mean_acceptance_length": self.mean_acceptance_length,
            "accepted_per_position": list(self.accepted_per_position),
            "reason": self.reason,
            "acceptance": self.acceptance,
            "equality": self.equality,
            "cost": None if self.cost is None else asdict(self.cost),
            "by_method": {
                method: {"num_draft_tokens": drafted, "num_accepted_tokens": accepted}
                for method, (drafted, accepted) in self.by_method.items()
            },
            "expected_tokens": self.expected_tokens,
            "expected_s": self.expected_s,
            "speedup": self.speedup,
        }


@dataclass(frozen=True, kw_only=True)
class Choice:
    """One completion of several.

    index: its place among them, from 0. logprobs: of each token, where asked for. cumulative_logprob: their sum, where
    it was needed. token_texts: the bytes of the tokens that logprobs speak of.
    """

    index: int
    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    logprobs: tuple[TokenLogprob, ...] | None = None
    cumulative_logprob: float | None = None
    token_texts: Mapping[int, bytes] = field(default_factory=dict, repr=False, compare=False)

    def to_json_dict(self) -> dict[str, Any]:
        """An entry of "choices"."""
        entry: dict[str, Any] = {
            "index": self.index,
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
        }
        if self.cumulative_logprob is not None:
            entry["cumulative_logprob"] = max(self.cumulative_logprob, LEAST_LOGPROB)
        return entry | self.logprobs_json()

    def logprobs_json(self) -> dict[str, Any]:
        """The log-probabilities as OpenAI writes them, under "logprobs"; nothing where they were not asked for."""
        if self.logprobs is None:
            return {}
        return {"logprobs": {"content": [to_json(found, self.token_texts) for found in self.logprobs]}}


@dataclass(frozen=True, kw_only=True)
class PromptLogprobs:
    """Log-probabilities of the tokens of a prompt: of each but the first, before which there is nothing."""

    tokens: tuple[TokenLogprob, ...]
    token_texts: Mapping[int, bytes] = field(repr=False, compare=False)

    def to_json(self) -> list[Any]:
        """An entry for each token of the prompt; null for the first."""
        return [None, *(to_json(found, self.token_texts) for found in self.tokens)]


@dataclass(frozen=True, kw_only=True)
class Completion:
    """All that came of one prompt.

    text, token_ids, finish_reason and logprobs are those of the first choice. usage, timings and speculation: of all
    choices, those that `best_of` dropped included.
    """

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    speculation: Speculation
    choices: tuple[Choice, ...] = ()
    prompt_logprobs: PromptLogprobs | None = None

    def __post_init__(self) -> None:
        if not self.choices:
            only = Choice(index=0, text=self.text, token_ids=self.token_ids, finish_reason=self.finish_reason)
            object.__setattr__(self, "choices", (only,))

    @property
    def logprobs(self) -> tuple[TokenLogprob, ...] | None:
        """Of each token, where asked for."""
        return self.choices[0].logprobs

    @property
    def cumulative_logprob(self) -> float | None:
        """The sum of the log-probabilities of all tokens, where it was needed."""
        return self.choices[0].cumulative_logprob

    def to_json_dict(self) -> dict[str, Any]:
        """The object that `foredraft generate --json` prints."""
        names = ("load_s", "prefill_s", "decode_s", "draft_s", "verify_s", "accept_s")
        timings = {name: getattr(self.timings, name) for name in names}
        return {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "usage": {
                "prompt_tokens": self.usage.prompt_tokens,
                "completion_tokens": self.usage.completion_tokens,
                "total_tokens": self.usage.total_tokens,
            },
            "timings": timings
            | {
                "prompt_tokens_per_s": self.timings.prompt_tokens_per_s,
                "tokens_per_s": self.timings.tokens_per_s,
            },
            "speculation": self.speculation.to_json_dict(),
            **self._asked_for(),
        }

    def _asked_for(self) -> dict[str, Any]:
        """What the object holds only where a request asks for it."""
        found = self.choices[0].logprobs_json()
        if self.prompt_logprobs is not None:
            found["prompt_logprobs"] = self.prompt_logprobs.to_json()
        if len(self.choices) > 1:
            found["choices"] = [choice.to_json_dict() for choice in self.choices]
        return found


@dataclass(frozen=True)
class Chunk:
    """A piece of a streamed completion. The last one of all carries the completion; its text may be empty.

    index: which of several completions of the prompt it belongs to. logprobs: of its tokens, where asked for.
    pieces: what each of its tokens brought to the text; where a character or a stop string may be beginning, it comes
    with a later one. sources: of each token, whose draft it was; None where the target said it itself.
    num_draft_tokens, num_accepted_tokens: of the rounds that it came from.
    """

    text: str
    token_ids: tuple[int, ...]
    completion: Completion | None = None
    index: int = 0
    logprobs: tuple[TokenLogprob, ...] = ()
    pieces: tuple[str, ...] = ()
    sources: tuple[str | None, ...] = ()
    num_draft_tokens: int = 0
    num_accepted_tokens: int = 0
