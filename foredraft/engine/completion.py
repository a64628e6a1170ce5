"""What a request comes to."""

from dataclasses import asdict, dataclass
from typing import Any, Literal

FinishReason = Literal["stop", "length"]


@dataclass(frozen=True, kw_only=True)
class Usage:
    """Tokens read and written. An end token that was produced counts as written."""

    prompt_tokens: int
    completion_tokens: int

    @property
    def total_tokens(self) -> int:
        """Both together."""
        return self.prompt_tokens + self.completion_tokens


@dataclass(frozen=True, kw_only=True)
class Timings:
    """Seconds, and rates that follow from them.

    load_s: loading of the model, once for all requests. prefill_s: reading the prompt. decode_s: from there to the end.
    num_prompt_tokens, num_completion_tokens: what the rates are about. Prompt tokens found in the cache do not count,
    nor does the last one, which is the root of the first round.
    """

    load_s: float
    prefill_s: float
    decode_s: float
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
class Speculation:
    """What drafting did for one request.

    methods: the drafters asked. lossless: whether the text is sure to be the target's own. num_rounds: forward passes
    of the target. num_draft_tokens: proposed. num_accepted_tokens: of those, kept; bonus tokens do not count.
    accepted_per_position: how often the i-th token of a draft was accepted. reason: why these drafters, in words.
    """

    methods: tuple[str, ...]
    lossless: bool
    num_rounds: int
    num_draft_tokens: int
    num_accepted_tokens: int
    num_emitted_tokens: int
    accepted_per_position: tuple[int, ...]
    reason: str

    @property
    def acceptance_rate(self) -> float | None:
        """Accepted / drafted; None where nothing was drafted."""
        return self.num_accepted_tokens / self.num_draft_tokens if self.num_draft_tokens else None

    @property
    def mean_acceptance_length(self) -> float | None:
        """Tokens emitted per round, bonus included."""
        return self.num_emitted_tokens / self.num_rounds if self.num_rounds else None


@dataclass(frozen=True, kw_only=True)
class Completion:
    """A finished answer."""

    text: str
    token_ids: tuple[int, ...]
    finish_reason: FinishReason
    usage: Usage
    timings: Timings
    speculation: Speculation

    def to_json_dict(self) -> dict[str, Any]:
        """The object that `foredraft generate --json` prints."""
        spec = self.speculation
        speculation = {
            "methods": list(spec.methods),
            "lossless": spec.lossless,
            "num_rounds": spec.num_rounds,
            "num_draft_tokens": spec.num_draft_tokens,
            "num_accepted_tokens": spec.num_accepted_tokens,
            "acceptance_rate": spec.acceptance_rate,
            "mean_acceptance_length": spec.mean_acceptance_length,
            "accepted_per_position": list(spec.accepted_per_position),
            "reason": spec.reason,
        }
        timings = {name: getattr(self.timings, name) for name in ("load_s", "prefill_s", "decode_s")}
        return {
            "text": self.text,
            "token_ids": list(self.token_ids),
            "finish_reason": self.finish_reason,
            "usage": asdict(self.usage) | {"total_tokens": self.usage.total_tokens},
            "timings": timings
            | {
                "prompt_tokens_per_s": self.timings.prompt_tokens_per_s,
                "tokens_per_s": self.timings.tokens_per_s,
            },
            "speculation": speculation,
        }
