"""What a request asks of sampling, checked once where it enters."""

import secrets
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

from foredraft.errors import OptionError
from foredraft.sampling import checks

MAX_CHOICES = 128
MAX_LOGPROBS = 20
DRY_SEQUENCE_BREAKERS = ("\n", ":", '"', "*")
_NUM_SEED_BITS = 64
_RANDOM = -1
"""The seed that stands for none, as in llama.cpp and vLLM. Other negative numbers are seeds there as here."""


@dataclass(frozen=True, kw_only=True)
class SamplingParams:
    """How the tokens of one request are chosen, where its text ends, and what is reported of it.

    docs/sampling.md says how they work together. Names and meanings are those of vLLM, of llama.cpp for DRY.

    Length and end
        max_tokens: most tokens to produce, 0: none, where only the prompt is of interest; None: until the context is
        full.
        min_tokens: before this many tokens neither an end token nor a stop string ends the text.
        stop: the text ends before the first of these strings; one string may be given as it is.
        stop_token_ids: the text ends at the first of these tokens, besides the model's own end tokens.
        include_stop_str_in_output: the text keeps the stop string, or the text of the token, that ended it.
        ignore_eos: go on past the model's end tokens.

    Choice of a token
        temperature: 0 takes the most likely token; above 0 the logits are divided by it before sampling.
        typical_p: sample among the tokens whose surprise is closest to the expected one, as many as hold this
        probability; 1: among all.
        top_k: sample among the `top_k` most likely tokens; 0 (or -1): among all.
        top_p: sample among the fewest most likely tokens whose probabilities sum to at least `top_p`; 1: among all.
        min_p: sample among the tokens at least `min_p` times as likely as the most likely one; 0: among all.
        seed: any 64-bit integer, signed or unsigned, but -1, which means None as it does elsewhere: see `with_seed`.

    Changes of logits, which also count at temperature 0
        repetition_penalty: logits of tokens in prompt or output are divided by it where positive, multiplied where
        negative; 1: off.
        frequency_penalty: taken off the logit of a token once for each time that the output has it.
        presence_penalty: taken off the logit of each token that the output has.
        dry_multiplier: penalty on a token that would make a repetition longer than `dry_allowed_length` tokens, times
        `dry_base` for each further token; 0: off. dry_sequence_breakers: texts that no repetition reaches across.
        dry_range: how many last tokens are looked at; -1: all; 0: none.
        logit_bias: token id to what is added to its logit.
        bad_words: texts that the output must not contain as tokens.

    Form of the text: at most one of
        json_schema (JSON text, a mapping, true or false), json_object (any JSON object), regex, grammar (Lark, GBNF).

    Several answers, and what is told of them
        n: how many answers. best_of: how many are produced, of which the n with the largest log-probability are kept.
        logprobs: report the log-probability of each token, and this many most likely ones. prompt_logprobs: the same
        of the prompt's tokens. Both under the model's own distribution, before any option.
        echo: the text begins with the prompt.

    Help for drafting
        prediction: what the text will mostly look like, such as a file to be edited; the drafter of that name copies
        from it. The text does not depend on it.

    stop, stop_token_ids, logit_bias and bad_words may be None for none.

    Raises OptionError with one line that names the option as the command line spells it.
    """

    max_tokens: int | None = 128
    min_tokens: int = 0
    temperature: float = 0.0
    typical_p: float = 1.0
    top_k: int = 0
    top_p: float = 1.0
    min_p: float = 0.0
    seed: int | None = None
    repetition_penalty: float = 1.0
    frequency_penalty: float = 0.0
    presence_penalty: float = 0.0
    dry_multiplier: float = 0.0
    dry_base: float = 1.75
    dry_allowed_length: int = 2
    dry_sequence_breakers: tuple[str, ...] = DRY_SEQUENCE_BREAKERS
    dry_range: int = -1
    logit_bias: Mapping[int, float] = field(default_factory=dict, hash=False)
    bad_words: tuple[str, ...] = ()
    json_schema: str | Mapping[str, Any] | bool | None = None
    json_object: bool = False
    regex: str | None = None
    grammar: str | None = None
    stop: tuple[str, ...] = ()
    stop_token_ids: tuple[int, ...] = ()
    include_stop_str_in_output: bool = False
    ignore_eos: bool = False
    n: int = 1
    best_of: int | None = None
    logprobs: int | None = None
    prompt_logprobs: int | None = None
    echo: bool = False
    prediction: str | None = None

    def __post_init__(self) -> None:
        checked = {**_lengths(self), **_choice(self), **_changes(self), **_form(self), **_reports(self)}
        for name, value in checked.items():
            object.__setattr__(self, name, value)
        self._check_together()

    def _check_together(self) -> None:
        if self.max_tokens is not None and self.min_tokens > self.max_tokens:
            raise OptionError(f"--min-tokens {self.min_tokens} is more than --max-tokens {self.max_tokens}")
        if self.best_of is not None and self.best_of < self.n:
            raise OptionError(f"--best-of {self.best_of} is less than --n {self.n}")
        if self.num_choices > 1 and self.greedy:
            several = "--n" if self.n > 1 else "--best-of"
            raise OptionError(f"{several} above 1 needs a --temperature above 0: at 0 all answers are the same")
        self._check_dry()
        self._check_constraints()

    def _check_dry(self) -> None:
        if self.dry_multiplier:
            return
        for name, default in (
            ("dry_base", 1.75),
            ("dry_allowed_length", 2),
            ("dry_sequence_breakers", DRY_SEQUENCE_BREAKERS),
            ("dry_range", -1),
        ):
            if getattr(self, name) != default:
                raise OptionError(f"--{name.replace('_', '-')} needs a --dry-multiplier above 0: DRY is off without")

    def _check_constraints(self) -> None:
        given = [f"--{name.replace('_', '-')}" for name in CONSTRAINTS if getattr(self, name)]
        if len(given) > 1:
            raise OptionError(f"{' and '.join(given)} cannot be combined: give one form of the text")
        if given and self.ignore_eos:
            raise OptionError(f"--ignore-eos cannot be combined with {given[0]}: a text that is complete has to end")
        if given and self.min_tokens:
            raise OptionError(f"--min-tokens cannot be combined with {given[0]}: a text that is complete has to end")

    @property
    def greedy(self) -> bool:
        """Whether the most likely token is always taken, so that no noise is needed."""
        return self.temperature == 0.0

    @property
    def num_choices(self) -> int:
        """How many answers are produced, whether they are kept or not."""
        return self.n if self.best_of is None else self.best_of

    @property
    def constrained(self) -> bool:
        """Whether the text has to have a form."""
        return any(getattr(self, name) for name in CONSTRAINTS)

    def with_seed(self) -> Self:
        """These parameters with a seed: their own, or else a fresh one from the system's randomness.

        The engine calls it once for each request, so unseeded requests are independent of each other and of
        what ran before, and the seed can be reported to repeat the request.
        """
        return self if self.seed is not None else replace(self, seed=secrets.randbits(_NUM_SEED_BITS))


CONSTRAINTS = ("json_schema", "json_object", "regex", "grammar")
"""The options that give the text a form."""


def _or(value: object, none: object) -> object:
    """The value, or what None stands for."""
    return none if value is None else value


def _lengths(params: SamplingParams) -> dict[str, object]:
    rule = "an integer of at least 0"
    max_tokens = params.max_tokens
    return {
        "max_tokens": None if max_tokens is None else checks.integer("--max-tokens", rule, max_tokens, least=0),
        "min_tokens": checks.integer("--min-tokens", rule, params.min_tokens, least=0),
        "stop": checks.texts("--stop", _or(params.stop, ())),
        "stop_token_ids": checks.token_ids("--stop-token-ids", _or(params.stop_token_ids, ())),
        "include_stop_str_in_output": checks.flag("--include-stop", params.include_stop_str_in_output),
        "ignore_eos": checks.flag("--ignore-eos", params.ignore_eos),
    }


def _choice(params: SamplingParams) -> dict[str, object]:
    share = "above 0 and at most 1"
    top_k = checks.integer("--top-k", "an integer of at least 0 (0 or -1: off)", params.top_k, least=-1)
    limit = 1 << (_NUM_SEED_BITS - 1)
    rule = "an integer of at most 64 bits"
    seed = params.seed
    if seed is not None:
        seed = checks.integer("--seed", rule, seed, least=-limit, most=2 * limit - 1)
    return {
        "temperature": checks.number("--temperature", "a finite number of at least 0", params.temperature, least=0),
        "typical_p": checks.number("--typical-p", share, params.typical_p, above=0, most=1),
        "top_k": max(top_k, 0),
        "top_p": checks.number("--top-p", share, params.top_p, above=0, most=1),
        "min_p": checks.number("--min-p", "between 0 and 1", params.min_p, least=0, most=1),
        "seed": None if seed == _RANDOM else seed,
    }


def _changes(params: SamplingParams) -> dict[str, object]:
    positive, penalty = "a finite number above 0 (1: off)", "between -2 and 2"
    return {
        "repetition_penalty": checks.number("--repetition-penalty", positive, params.repetition_penalty, above=0),
        "frequency_penalty": checks.number("--frequency-penalty", penalty, params.frequency_penalty, least=-2, most=2),
        "presence_penalty": checks.number("--presence-penalty", penalty, params.presence_penalty, least=-2, most=2),
        "dry_multiplier": checks.number(
            "--dry-multiplier", "a finite number of at least 0 (0: off)", params.dry_multiplier, least=0
        ),
        "dry_base": checks.number("--dry-base", "a finite number of at least 1", params.dry_base, least=1),
        "dry_allowed_length": checks.integer(
            "--dry-allowed-length", "an integer of at least 1", params.dry_allowed_length, least=1
        ),
        "dry_sequence_breakers": checks.texts("--dry-sequence-breakers", params.dry_sequence_breakers),
        "dry_range": checks.integer("--dry-range", "an integer of at least 0, or -1 (all)", params.dry_range, least=-1),
        "logit_bias": checks.logit_bias("--logit-bias", _or(params.logit_bias, {})),
        "bad_words": checks.texts("--bad-words", _or(params.bad_words, ())),
    }


def _form(params: SamplingParams) -> dict[str, object]:
    schema, regex, grammar = params.json_schema, params.regex, params.grammar
    return {
        "json_schema": None if schema is None else checks.json_schema("--json-schema", schema),
        "json_object": checks.flag("--json-object", params.json_object),
        "regex": None if regex is None else checks.text("--regex", regex),
        "grammar": None if grammar is None else checks.text("--grammar", grammar),
    }


def _reports(params: SamplingParams) -> dict[str, object]:
    several, some = f"an integer from 1 to {MAX_CHOICES}", f"an integer from 0 to {MAX_LOGPROBS}"

    def optional(option: str, rule: str, value: object, least: int, most: int) -> int | None:
        return None if value is None else checks.integer(option, rule, value, least=least, most=most)

    prediction = params.prediction
    return {
        "prediction": None if prediction is None else checks.text("--prediction", prediction),
        "n": checks.integer("--n", several, params.n, least=1, most=MAX_CHOICES),
        "best_of": optional("--best-of", several, params.best_of, 1, MAX_CHOICES),
        "logprobs": optional("--logprobs", some, params.logprobs, 0, MAX_LOGPROBS),
        "prompt_logprobs": optional("--prompt-logprobs", some, params.prompt_logprobs, 0, MAX_LOGPROBS),
        "echo": checks.flag("--echo", params.echo),
    }
