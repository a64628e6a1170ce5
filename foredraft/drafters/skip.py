"""The target with some layers left out, as its own draft model: no second model, and no second copy of its weights.

Sources: Zhang et al., "Draft & Verify" (2023), and Elhoushi et al., "LayerSkip" (2024), for drafting with fewer layers;
Men et al., "ShortGPT" (2024), for how much a layer matters.
"""

import itertools
import re
from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from foredraft.errors import OptionError
from foredraft.kernels.operations import Floats
from foredraft.models.cached_decoder import CachedDecoder, Entry
from foredraft.models.load import exposing, load_part
from foredraft.models.source import ModelSource
from foredraft.tree import DraftTree

SAMPLE = """\
def mean(values: list[float]) -> float:
    \"\"\"Return the arithmetic mean of a list that is not empty.\"\"\"
    return sum(values) / len(values)

The water of a river runs down from the mountains to the sea. On its way it passes forests, villages and large
towns, and many small streams join it. People have always lived on its banks, because the water lets them grow
food, move goods and drive their mills.
"""
"""What layers are judged by: code and prose, as plain as can be."""
_NUM_TOKENS = 64
_SHARES = (0.15, 0.25, 0.4)  # of the layers, left out in a first attempt
_NUM_EXCHANGES = 4
_MOST_DRAFTED = 6


@dataclass(frozen=True)
class _Part:
    """A choice of layers to leave out, and what is to be expected of it: see `_gain`."""

    left_out: frozenset[int]
    agreement: float
    gain: float


def parse_layers(text: str, num_layers: int) -> tuple[int, ...]:
    """The layers to leave out that "3-10" or "3-10+12" names, counted from 0.

    Raises OptionError for anything else, for layers that the model does not have, and where none would be left.
    """
    found: set[int] = set()
    for part in text.split("+"):
        match = re.fullmatch(r"(\d{1,4})(?:-(\d{1,4}))?", part)
        if match is None:
            raise OptionError(f"--draft skip:{text}: give the layers to leave out as in skip:3-10 or skip:3-10+12")
        first, last = int(match[1]), int(match[2] or match[1])
        if not first <= last < num_layers:
            raise OptionError(
                f"--draft skip:{text}: {part} is no range of the layers of this model, which are 0 to {num_layers - 1}"
            )
        found.update(range(first, last + 1))
    if len(found) == num_layers:
        raise OptionError(f"--draft skip:{text}: at least one layer must stay")
    return tuple(sorted(found))


def choose_layers(whole: CachedDecoder, tokens: Sequence[int], *, num_logits: int) -> tuple[int, ...]:
    """The layers that are best left out, found by a short search: up to eight passes over `tokens`, a sample text.

    Layers count as unimportant that hardly turn the hidden state. Several numbers of the least important ones are
    tried, and a few exchanges; what counts is how often the next token stays the same, against what is saved. The
    first and the last layer stay. The same model gives the same layers every time. num_logits: of how many tokens the
    drafter will compute the logits.

    Raises OptionError for a model of fewer than three layers, ValueError for one that was not loaded from a file.
    """
    source = whole.source
    if source is None:
        raise ValueError("only a decoder that was loaded from a model has parts")
    num_layers = whole.config.num_layers
    if num_layers < 3:
        raise OptionError(f"--draft skip needs a model of at least 3 layers, and this one has {num_layers}")
    tokens = tokens[:_NUM_TOKENS]
    influences, choices = _look(whole, tokens)
    order = sorted(range(1, num_layers - 1), key=lambda layer: (influences[layer], layer))

    def judge(left_out: frozenset[int]) -> _Part:
        part = load_part(whole, [layer for layer in range(num_layers) if layer not in left_out])
        agreement = float((part.logits(tokens).argmax(axis=1) == choices).mean())
        return _Part(left_out, agreement, _gain(agreement, _cost(source, left_out, num_logits)))

    numbers = sorted({min(max(1, round(share * num_layers)), len(order)) for share in _SHARES})
    best = max((judge(frozenset(order[:number])) for number in numbers), key=lambda part: part.gain)
    for _ in range(_NUM_EXCHANGES):
        others = [layer for layer in order if layer not in best.left_out]
        if not others:
            break
        worst = max(best.left_out, key=lambda layer: (influences[layer], layer))
        order.remove(others[0])  # each is tried once
        attempt = judge(best.left_out - {worst} | {others[0]})
        best = max(best, attempt, key=lambda part: part.gain)
    return tuple(sorted(best.left_out))


def _look(whole: CachedDecoder, tokens: Sequence[int]) -> tuple[list[float], Floats]:
    """For each layer how much it turns the hidden state, 1 - cosine, and the target's choice after each token."""
    num_layers = whole.config.num_layers
    root, *rest = tokens
    own = exposing(whole, range(num_layers)).beside(len(tokens))  # sequences may hold all blocks of the target's cache
    result = own.forward([Entry(own.cache.open(), DraftTree.chain(root, tuple(rest)))])
    states = result.hidden_of(0)
    hidden = [states[layer].astype(np.float64) for layer in range(num_layers)]
    influences = [float("inf")]
    for before, after in itertools.pairwise(hidden):
        norms = np.linalg.norm(before, axis=1) * np.linalg.norm(after, axis=1)
        influences.append(float(1 - ((before * after).sum(axis=1) / np.maximum(norms, 1e-30)).mean()))
    return influences, result.logits_NV[0].argmax(axis=1)


def _cost(source: ModelSource, left_out: frozenset[int], num_logits: int) -> float:
    """Bytes of weights that a pass reads without some layers and logits, as a share of all."""
    sizes = {name: tensor.data.nbytes for name, tensor in source.tensors.items()}
    output = sizes["token_embd.weight" if source.config.tied_embeddings else "output.weight"]
    layers = {name: size for name, size in sizes.items() if name.startswith("blk.")}
    kept = sum(size for name, size in layers.items() if _layer(name) not in left_out)
    return (kept + output * num_logits / source.config.vocab_size) / (sum(layers.values()) + output)


def _layer(name: str) -> int:
    return int(name.split(".")[1])


def _gain(agreement: float, cost: float) -> float:
    """Tokens per time of a target step, at the best length of a chain, where every token is right that often."""
    return max(
        sum(agreement**place for place in range(length + 1)) / (1 + length * cost)
        for length in range(1, _MOST_DRAFTED + 1)
    )
