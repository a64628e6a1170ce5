"""How often a draft model's next token is accepted, by rule, at the places of the target's own completions."""

import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from foredraft.accept.rejection import remainder
from foredraft.bench.tables import figure, table
from foredraft.kernels.operations import Floats, Kernels
from foredraft.llm import LLM
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.prompts import Prompt
from foredraft.sampling import SamplingParams, draw, filtered_probs
from foredraft.sampling.noise import FloatArray

WIDTHS = (1, 2, 4)
COLUMNS = {
    "optimum": "rejection (the optimum)",
    "coupled 1": "coupled",
    "coupled 2": "coupled, 2",
    "coupled 4": "coupled, 4",
    "tree 2": "tree, 2",
    "tree 4": "tree, 4",
    "greedy": "likeliest token",
    "independent": "independent draw",
}


@dataclass(frozen=True)
class Place:
    """A sequence as draws look at it: only the position matters, the logits are those of the place already."""

    tokens: Sequence[int]
    params: SamplingParams
    id: int = 0
    num_prompt_tokens: int = 1
    max_length: int = 2**31
    sample_index: int = 0
    processors: None = None


def rates(
    target_V: Floats, draft_V: Floats, tokens: Sequence[int], params: SamplingParams, kernels: Kernels, num_seeds: int
) -> dict[str, float]:
    """The chance that the next token of a draft is accepted at one place, for each way of drafting and accepting.

    target_V, draft_V: logits of both after `tokens`. With the noise of `num_seeds` seeds where a rule needs one.
    """
    target_probs_V, draft_probs_V = filtered_probs(target_V, params), filtered_probs(draft_V, params)
    found = {
        "optimum": float(np.minimum(target_probs_V, draft_probs_V).sum()),
        "greedy": float(target_probs_V[int(draft_V.argmax())]),
        "independent": float(target_probs_V @ draft_probs_V),
    }
    hits = dict.fromkeys(WIDTHS, 0)
    drawn: dict[int, float] = dict.fromkeys(WIDTHS[1:], 0.0)
    for seed in range(num_seeds):
        noise = (seed, 0, len(tokens))
        [own] = _pick(kernels, target_V, params, noise, 1)
        proposed = _pick(kernels, draft_V, params, noise, max(WIDTHS))
        for width in WIDTHS:
            hits[width] += own in proposed[:width]
        for width, chance in _drawn(target_probs_V, draft_V, tokens, params, seed).items():
            drawn[width] += chance
    found |= {f"coupled {width}": hits[width] / num_seeds for width in WIDTHS}
    found |= {f"tree {width}": chance / num_seeds for width, chance in drawn.items()}
    return found


def _pick(
    kernels: Kernels, logits_V: Floats, params: SamplingParams, noise: tuple[int, int, int], count: int
) -> list[int]:
    return kernels.pick(
        logits_V,
        temperature=params.temperature,
        top_k=params.top_k,
        top_p=params.top_p,
        min_p=params.min_p,
        noise=noise,
        count=count,
    )


def _drawn(
    target_probs_V: FloatArray, draft_V: Floats, tokens: Sequence[int], params: SamplingParams, seed: int
) -> dict[int, float]:
    """The chance that one of so many children, drawn without replacement with this seed, is accepted."""
    place = Place(tokens, SamplingParams(temperature=params.temperature, top_p=params.top_p, seed=seed))
    rest_V, rejected, chances = target_probs_V, 1.0, {}
    children = draw(draft_V, place, count=max(WIDTHS), first_event=0, vocab_size=len(draft_V))
    for width in range(1, max(WIDTHS) + 1):
        if width <= len(children) and rejected > 0:
            token, probs_V = children[width - 1]
            rejected *= 1.0 - min(1.0, rest_V[token] / probs_V[token])
            rest_V = remainder(rest_V, probs_V, rejected=token)
        chances[width] = 1.0 - rejected
    return {width: chances[width] for width in WIDTHS[1:]}


def measure(
    llm: LLM,
    drafter: CachedDecoder,
    prompts: Sequence[Prompt],
    params: SamplingParams,
    *,
    num_seeds: int,
    raw: bool = False,
) -> list[dict[str, Any]]:
    """For each prompt the mean rates over the places of the target's own completion, and how many there are."""
    records = []
    for number, prompt in enumerate(prompts, start=1):
        messages = [{"role": "user", "content": prompt.text}]
        ids = llm.tokenizer.encode(prompt.text) if raw else llm.tokenizer.encode_chat(messages)
        completion = llm.generate(prompt.text, params)[0] if raw else llm.chat(messages, params)
        tokens = [*ids, *completion.token_ids]
        size = min(llm.tokenizer.vocab_size, llm.decoder.config.vocab_size, drafter.config.vocab_size)
        begin = len(ids) - 1
        with llm.exclusive():
            both: list[NDArray[np.float32]] = [d.logits(tokens[:-1])[begin:, :size] for d in (llm.decoder, drafter)]
        places = [
            rates(target_V, draft_V, tokens[: begin + 1 + place], params, llm.decoder.kernels, num_seeds)
            for place, (target_V, draft_V) in enumerate(zip(*both, strict=True))
        ]
        records.append(
            {
                "prompt": prompt.key,
                "family": prompt.family,
                "num_places": len(places),
                **{name: float(np.mean([rate[name] for rate in places])) for name in COLUMNS},
            }
        )
        print(f"acceptance: {number} of {len(prompts)}: {prompt.key}", file=sys.stderr)
    return records


def summary(records: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
    """Means over all places of each family, and of all."""
    groups = {family: [r for r in records if r["family"] == family] for family in {r["family"] for r in records}}
    groups = dict(sorted(groups.items())) | {"all": list(records)}
    families = {}
    for name, members in groups.items():
        weights = [record["num_places"] for record in members]
        means = {column: float(np.average([r[column] for r in members], weights=weights)) for column in COLUMNS}
        gap = means["optimum"] - means["coupled 1"]
        families[name] = {"num_places": sum(weights), **means, "coupled below optimum": gap}
    return {"families": families, "prompts": list(records)}


def report(result: Mapping[str, Any]) -> str:
    """The table."""
    rows = [
        [family, str(means["num_places"]), *(figure(means[column], 3) for column in COLUMNS)]
        for family, means in result["families"].items()
    ]
    return table(["family", "places", *COLUMNS.values()], rows)
