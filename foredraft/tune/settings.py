"""The ways of drafting that are compared, and what they are called elsewhere."""

import json
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from foredraft.config import DraftConfig
from foredraft.drafters import names_a_model

PLAIN = DraftConfig(drafters=("none",), memory="none")
"""Plain decoding. In no setting earlier texts are drafted from."""
LENGTHS = ((1, 2, 3, 4, 5, 6, 7, 8, 9, 10), (1, 2, 3, 4, 6, 8, 10), (1, 2, 4, 8), (2, 4, 8))
"""Numbers of draft tokens to try, from fine to coarse."""
TREES = ((2, 8), (3, 16))
"""Branches of a draft model's tree, and its nodes."""
SURVIVALS = (0.2, 0.4, 0.6)
"""Thresholds: a chain of a draft model ends behind a token that is less likely than this to be accepted."""
THRESHOLD_LENGTH = 10
LENIENT = {f"threshold:eps={eps:g}": eps for eps in (0.5, 0.2, 0.1, 0.05)}
"""Lenient rules with their thresholds: a drafted token is kept that the target finds at least so likely."""
LENIENT_LENGTH = 6


def sweep(
    methods: Sequence[str], models: Sequence[str], lengths: Sequence[int], *, with_lenient: bool
) -> list[DraftConfig]:
    """All settings: plain decoding, auto, and what is fixed."""
    configs = [PLAIN, replace(PLAIN, drafters=("auto",))]
    if models:
        configs.append(replace(PLAIN, drafters=("auto", *models)))
    for name in (*methods, *models):
        configs.extend(replace(PLAIN, drafters=(name,), num_draft_tokens=length) for length in lengths)
        if name in models and len(lengths) > len(LENGTHS[-1]):
            chain = replace(PLAIN, drafters=(name,), num_draft_tokens=THRESHOLD_LENGTH)
            configs.extend(replace(chain, num_branches=b, num_draft_tokens=nodes) for b, nodes in TREES)
            configs.extend(replace(chain, min_survival=least) for least in SURVIVALS)
    if with_lenient:
        base = replace(PLAIN, drafters=configs[-1].drafters, num_draft_tokens=LENIENT_LENGTH)
        configs.extend(replace(base, acceptance=rule) for rule in LENIENT)
    return configs


def chooses_itself(config: DraftConfig) -> bool:
    """Whether the planner decides."""
    return config.num_draft_tokens is None and not config.is_plain


def is_exact(config: DraftConfig) -> bool:
    """Whether its texts are those of plain decoding."""
    return config.acceptance not in LENIENT


def is_fixed_length(config: DraftConfig) -> bool:
    """Whether it is a number of draft tokens and nothing else."""
    number = config.num_draft_tokens
    return number is not None and config == replace(PLAIN, drafters=config.drafters, num_draft_tokens=number)


def for_vllm(config: DraftConfig) -> str | None:
    """The value of vLLM's `--speculative-config` that drafts like this; None where it has nothing like it."""
    if not is_fixed_length(config):
        return None
    [name] = config.drafters
    if names_a_model(name):
        values: dict[str, object] = {"method": "draft_model", "model": Path(name).name}
    elif name == "lookup":
        values = {"method": "ngram", "prompt_lookup_max": 5, "prompt_lookup_min": 2}
    elif name == "suffix":
        values = {"method": "suffix"}
    else:
        return None
    return json.dumps(values | {"num_speculative_tokens": config.num_draft_tokens})


def for_llama_cpp(config: DraftConfig) -> str | None:
    """The options of llama-server that draft like this; None where it has nothing like it."""
    if not is_fixed_length(replace(config, min_survival=0.0)):
        return None
    [name] = config.drafters
    if names_a_model(name):
        options = f"--spec-type draft-simple -md {Path(name).name} --spec-draft-n-max {config.num_draft_tokens}"
        return f"{options} --spec-draft-p-min {config.min_survival:g}"
    if name in ("lookup", "suffix"):
        return f"--spec-type ngram-mod --spec-ngram-mod-n-min 1 --spec-ngram-mod-n-max {config.num_draft_tokens}"
    return None


def options(config: DraftConfig) -> str:
    """The options of foredraft that ask for it."""
    parts = [f"--draft {name}" for name in config.drafters]
    if config.num_draft_tokens is not None:
        parts.append(f"--num-draft-tokens {config.num_draft_tokens}")
    if config.num_branches > 1:
        parts.append(f"--draft-branches {config.num_branches}")
    return " ".join(parts)
