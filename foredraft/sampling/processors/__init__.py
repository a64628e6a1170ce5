"""The options that change logits before a token is chosen, and the order in which they do.

First what is said about single tokens (bias, bans, grammar), then what depends on how often they occurred, on these
logits, and last typical_p, which looks at the whole distribution, at the temperature, as the filters of `pick` do after
it. Bans come before penalties, but no order could lift them: -inf stays -inf.
"""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from foredraft.sampling.params import SamplingParams
from foredraft.sampling.processors.base import LogitProcessor, Processors
from foredraft.sampling.processors.dry import Dry, DryOptions
from foredraft.sampling.processors.grammar import Grammar, GrammarCompiler
from foredraft.sampling.processors.masks import BadWords, LogitBias, MinTokens
from foredraft.sampling.processors.penalties import CountPenalties, RepetitionPenalty
from foredraft.sampling.processors.typical import Typical

if TYPE_CHECKING:
    from foredraft.text import Tokenizer

__all__ = ["Grammar", "GrammarCompiler", "LogitProcessor", "ProcessorFactory", "Processors"]

_UNLIMITED = 1 << 62


class ProcessorFactory:
    """Makes the processors of requests to one model.

    vocab_size: length of a row of logits.
    """

    def __init__(self, tokenizer: "Tokenizer", vocab_size: int) -> None:
        self._tokenizer = tokenizer
        self._vocab_size = vocab_size
        self._grammars = GrammarCompiler(tokenizer, vocab_size)

    def make(self, params: SamplingParams, prompt: Sequence[int], end_ids: frozenset[int]) -> Processors | None:
        """The processors of a request, or None where no option changes logits.

        end_ids: tokens at which its text ends. Raises OptionError for a grammar that cannot be used.
        """
        grammar = self._grammars.compile(params) if params.constrained else None
        processors = self._about_tokens(params, end_ids)
        if grammar is not None:
            processors.append(grammar)
        processors += self._about_repetition(params, prompt)
        if params.typical_p < 1 and not params.greedy:
            processors.append(Typical(params.typical_p, params.temperature))
        if not processors:
            return None
        return Processors(processors, num_prompt_tokens=len(prompt), vocab_size=self._vocab_size, grammar=grammar)

    def _about_tokens(self, params: SamplingParams, end_ids: frozenset[int]) -> list[LogitProcessor]:
        processors: list[LogitProcessor] = []
        if params.logit_bias:
            processors.append(LogitBias(params.logit_bias))
        if params.bad_words:
            processors.append(BadWords(self._sequences(params.bad_words)))
        if params.min_tokens:
            processors.append(MinTokens(params.min_tokens, [end for end in end_ids if end < self._vocab_size]))
        return processors

    def _about_repetition(self, params: SamplingParams, prompt: Sequence[int]) -> list[LogitProcessor]:
        processors: list[LogitProcessor] = []
        if params.repetition_penalty != 1:
            processors.append(RepetitionPenalty(params.repetition_penalty, prompt))
        if params.frequency_penalty or params.presence_penalty:
            processors.append(CountPenalties(params.frequency_penalty, params.presence_penalty))
        if params.dry_multiplier and params.dry_range:
            options = DryOptions(
                multiplier=params.dry_multiplier,
                base=params.dry_base,
                allowed_length=params.dry_allowed_length,
                num_last=_UNLIMITED if params.dry_range < 0 else params.dry_range,
                breakers=tuple(breaker.encode() for breaker in params.dry_sequence_breakers),
            )
            processors.append(Dry(options, prompt, self._tokenizer.token_bytes))
        return processors

    def _sequences(self, words: Sequence[str]) -> list[list[int]]:
        """The tokens of each word as it stands and after a space, where the two differ, as in vLLM."""
        from foredraft.text.translation import ExactEncoder

        encoder = ExactEncoder(self._tokenizer, self._vocab_size)  # puts no space before a text, normalises none
        sequences: list[list[int]] = []
        for word in words:
            plain, spaced = (encoder.encode(text.encode()) for text in (word, " " + word.lstrip()))
            sequences += [plain] if plain == spaced else [plain, spaced]
        return [sequence for sequence in sequences if sequence and max(sequence) < self._vocab_size]
