"""What is compared with plain decoding: drafters, lengths, tree shapes, temperatures, options, batches, rules."""

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from foredraft.check.prompts import BUILT_IN
from foredraft.config import DraftConfig
from foredraft.drafters import names_a_model

LENGTHS = (1, 2, 4, 8)
TEMPERATURES = (0.0, 0.8)
BATCHES = (1, 4)
BRANCHES = (2, 3)
"""Children of a node, for drafters that propose trees when asked to; 1 is among all else."""
RULES = ("rejection", "block", "tree", "traversal")
"""Rules that are equal to plain decoding over many seeds, and token for token at temperature 0."""
TOKENS, QUICK_TOKENS = 20, 16
"""Most tokens of a completion."""

_PENALTIES = {"repetition_penalty": 1.3, "presence_penalty": 0.4, "frequency_penalty": 0.2}
_FILTERS = {"top_k": 40, "top_p": 0.95, "min_p": 0.02, "typical_p": 0.95}
_EVERYTHING = {**_PENALTIES, "top_k": 50, "min_p": 0.01, "logprobs": 2, "stop": ("\n\n",), "min_tokens": 4}

OPTION_SETS: Mapping[str, Mapping[str, Any]] = {
    "plain": {},
    "filters": _FILTERS,
    "penalties": _PENALTIES,
    "dry": {"dry_multiplier": 0.8, "dry_allowed_length": 2},
    "bias": {"logit_bias": {13: 2.0, 14: -4.0}, "bad_words": (" the", " a")},
    "ends": {"stop": (". ", ",", "\n\n"), "include_stop_str_in_output": True, "min_tokens": 5},
    "short": {"max_tokens": 3, "ignore_eos": True},
    "logprobs": {"logprobs": 3, "prompt_logprobs": 1, "echo": True},
    "json": {"json_object": True},
    "regex": {"regex": r"[a-z ,]{1,40}\."},
    "several": {"n": 2, "best_of": 3},
    "everything": _EVERYTHING,
}
"""Sampling options by name; fields of SamplingParams."""

_SAMPLED_ONLY = {"filters", "several"}
_GREEDY_TOO = {"plain", "penalties", "ends", "logprobs", "everything"}


@dataclass(frozen=True)
class Cell:
    """One comparison: all prompts, in batches, with one way of drafting and one set of options."""

    config: DraftConfig
    temperature: float
    options: str
    batch: int

    @property
    def drafters(self) -> str:
        """The drafters alone, models by the names of their files."""
        return DraftConfig(drafters=self.config.drafters).name

    def describe(self) -> str:
        """All that tells it from others, in a few words."""
        batch = f", batch {self.batch}" if self.batch > 1 else ""
        return f"{self.config.name}, temperature {self.temperature:g}, {self.options}{batch}"


@dataclass(frozen=True)
class Plan:
    """All that is run. rules: whose distributions are tested, with num_samples completions each; none: no such test."""

    cells: tuple[Cell, ...]
    prompts: tuple[str, ...]
    max_tokens: int
    num_samples: int
    rules: tuple[str, ...]


def make_plan(
    methods: Sequence[tuple[str, ...]],
    *,
    prompts: Sequence[str] = BUILT_IN,
    quick: bool = False,
) -> Plan:
    """The grid for these ways of drafting.

    methods: names as `--draft` takes them, several where they draft together. Each meets every length at every
    temperature with the plain options, both batch sizes and every set of options; models also trees. "auto" chooses
    lengths itself.
    """
    cells = list(_quick_cells(methods) if quick else _cells(methods))
    rules = RULES[:1] if quick else RULES
    used = prompts[:2] if quick and tuple(prompts) == BUILT_IN else prompts
    return Plan(tuple(cells), tuple(used), QUICK_TOKENS if quick else TOKENS, 192 if quick else 512, rules)


def _quick_cells(methods: Sequence[tuple[str, ...]]) -> Iterator[Cell]:
    for method in methods:
        config = DraftConfig(drafters=method, num_draft_tokens=_length(method, 4))
        for temperature in TEMPERATURES:
            yield Cell(config, temperature, "plain", 1)
        yield Cell(config, TEMPERATURES[-1], "everything", BATCHES[-1])


def _cells(methods: Sequence[tuple[str, ...]]) -> Iterator[Cell]:
    for method in methods:
        by_default = DraftConfig(drafters=method, num_draft_tokens=_length(method, 4))
        for length in LENGTHS if by_default.num_draft_tokens else (None,):
            config = replace(by_default, num_draft_tokens=length)
            for temperature in TEMPERATURES:
                yield Cell(config, temperature, "plain", BATCHES[-1])
                if config == by_default:
                    yield Cell(config, temperature, "plain", 1)
        for options in OPTION_SETS:
            if options != "plain":
                for temperature in _temperatures(options):
                    yield Cell(by_default, temperature, options, BATCHES[-1])
        for rule in RULES:
            yield Cell(replace(by_default, num_draft_tokens=4, acceptance=rule), 0.0, "plain", BATCHES[-1])
        if names_a_model(method[0]):
            for branches in BRANCHES:
                for temperature in TEMPERATURES:
                    tree = replace(by_default, num_draft_tokens=8, num_branches=branches)
                    yield Cell(tree, temperature, "plain", BATCHES[-1])


def _length(method: tuple[str, ...], length: int) -> int | None:
    return None if "auto" in method else length


def _temperatures(options: str) -> tuple[float, ...]:
    if options in _SAMPLED_ONLY:
        return TEMPERATURES[-1:]
    return TEMPERATURES if options in _GREEDY_TOO else TEMPERATURES[-1:]
