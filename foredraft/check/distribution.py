"""Rules that are equal to plain decoding over many seeds: are they?

The first two tokens of many completions of one prompt are counted, and compared with the target's own probabilities of
these pairs (which need no sampling: they follow from its logits) in Pearson's chi-square test. Pairs that are expected
fewer than 5 times are taken together. A test fails where counts as far off as these would come with a probability below
THRESHOLD; seeds are fixed, so a result repeats. A control keeps every drafted token, whatever the target thinks of it,
and has to fail: else the number of samples would be too small to find a wrong rule.
"""

import itertools
import math
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.check.compare import plain_logits
from foredraft.check.grid import Plan
from foredraft.config import DraftConfig
from foredraft.drafters import AUTO, names_a_model
from foredraft.errors import OptionError
from foredraft.llm import LLM, SamplingParams
from foredraft.sampling import filtered_probs

THRESHOLD = 1e-4
CONTROL = "threshold:eps=1e-9"
"""A rule that keeps every drafted token that is not all but impossible."""
PROMPT = "red, blue, green, red, blue, yellow, red, blue, pink, red, blue,"
"""After it every drafter that copies has something to propose, and it is mostly wrong."""
LEAST_EXPECTED = 5.0
_SAMPLED = SamplingParams(temperature=1.0, ignore_eos=True)
_PER_CALL = 64

Bin = tuple[int | None, int | None]
"""A pair of tokens; None stands for all others."""


@dataclass(frozen=True)
class DistributionResult:
    """Counts against probabilities. control: whether the rule is a wrong one, that has to be found out."""

    name: str
    control: bool
    num_samples: int
    num_bins: int
    statistic: float
    p_value: float
    num_accepted_tokens: int

    @property
    def holds(self) -> bool:
        """Whether a right rule passed, or a wrong one failed."""
        return (self.p_value < THRESHOLD) == self.control


@dataclass(frozen=True)
class DistributionTest:
    """One rule with one drafter."""

    llm: LLM
    config: DraftConfig
    num_samples: int
    control: bool

    @property
    def name(self) -> str:
        """The drafter and the rule."""
        if self.control:
            return f"control: every draft of {self.config.drafters[0]} kept"
        return f"distribution of {self.config.name}"

    def run(self) -> DistributionResult:
        """Sample, and compare."""
        drafted = self.llm.with_drafts(self.config)
        counts: Counter[tuple[int, int]] = Counter()
        num_accepted = 0
        for seed in itertools.count(1):
            missing = self.num_samples - counts.total()
            if not missing:
                break
            params = SamplingParams(
                max_tokens=3, temperature=1.0, ignore_eos=True, seed=seed, n=min(missing, _PER_CALL)
            )
            [completion] = drafted.generate(PROMPT, params)
            counts.update((choice.token_ids[0], choice.token_ids[1]) for choice in completion.choices)
            num_accepted += completion.speculation.num_accepted_tokens
        probs = pair_probs(self.llm, PROMPT, self.num_samples)
        statistic = chi_square(counts, probs)
        p_value = chi_square_tail(statistic, len(probs) - 1)
        return DistributionResult(
            self.name, self.control, self.num_samples, len(probs), statistic, p_value, num_accepted
        )


def planned_tests(llm: LLM, plan: Plan) -> Iterator[DistributionTest]:
    """The tests of a plan: every rule with drafts that are copied, and with the first model of the plan; a control."""
    if not plan.rules:
        return
    models = [cell.config.drafters for cell in plan.cells if names_a_model(cell.config.drafters[0])]
    for drafters in (AUTO[:1], *models[:1]):
        for rule in plan.rules:
            config = DraftConfig(drafters=drafters, num_draft_tokens=3, acceptance=rule)
            yield DistributionTest(llm, config, plan.num_samples, control=False)
    control = DraftConfig(drafters=AUTO[:1], num_draft_tokens=3, acceptance=CONTROL)
    yield DistributionTest(llm, control, plan.num_samples, control=True)


def pair_probs(llm: LLM, prompt: str, num_samples: int) -> dict[Bin, float]:
    """The target's probabilities of the first two tokens, rare ones taken together.

    Raises OptionError where the target is so sure of them that there is nothing to compare.
    """
    tokens = llm.tokenizer.encode(prompt)
    least = LEAST_EXPECTED / num_samples
    first_V = filtered_probs(plain_logits(llm, tokens), _SAMPLED)
    probs: dict[Bin, float] = {}
    for first in np.flatnonzero(first_V >= 2 * least).tolist():
        second_V = first_V[first] * filtered_probs(plain_logits(llm, [*tokens, first]), _SAMPLED)
        likely = np.flatnonzero(second_V >= least).tolist()
        probs |= {(first, second): float(second_V[second]) for second in likely}
        others = float(first_V[first]) - sum(float(second_V[second]) for second in likely)
        if others >= least:
            probs[first, None] = others
    rest = 1.0 - sum(probs.values())
    if rest >= least:
        probs[None, None] = rest
    elif probs:
        probs[min(probs, key=lambda pair: probs[pair])] += rest
    if len(probs) < 2:
        raise OptionError(
            "the model is too sure of what follows the prompt of the statistical test to be tested with it"
        )
    return probs


def chi_square(counts: Mapping[tuple[int, int], int], probs: Mapping[Bin, float]) -> float:
    """Pearson's statistic of counted pairs."""
    found: Counter[Bin] = Counter()
    for (first, second), count in counts.items():
        bins: Sequence[Bin] = ((first, second), (first, None), (None, None))
        # Where all rare pairs together are too rare for a bin of their own, they are in that of the rarest.
        home = next((pair for pair in bins if pair in probs), min(probs, key=lambda pair: probs[pair]))
        found[home] += count
    total = sum(counts.values())
    return sum((found[pair] - total * prob) ** 2 / (total * prob) for pair, prob in probs.items())


def chi_square_tail(statistic: float, degrees: int) -> float:
    """Probability of a statistic at least that large: the incomplete gamma function Q(degrees / 2, statistic / 2).

    Its series below, its continued fraction above the mean (Abramowitz and Stegun, 6.5.29 and 6.5.31).
    """
    a, x = degrees / 2, statistic / 2
    if x <= 0:
        return 1.0
    scale = math.exp(a * math.log(x) - x - math.lgamma(a))
    if x < a + 1:
        term = total = 1 / a
        for n in itertools.count(1):
            term *= x / (a + n)
            total += term
            if term < total * 1e-12:
                break
        return max(0.0, 1 - scale * total)
    b = x + 1 - a
    c, d = 1e300, 1 / b
    fraction = d
    for n in range(1, 10_000):
        b += 2
        d = 1 / (b - n * (n - a) * d)
        c = b - n * (n - a) / c
        fraction *= c * d
        if abs(c * d - 1) < 1e-12:
            break
    return scale * fraction
