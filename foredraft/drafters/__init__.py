"""The ways of drafting. No file outside this one names a concrete drafter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from foredraft.drafters.base import CostlyDrafter, Drafter, Outcome, RequestView
from foredraft.drafters.first import FirstDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.merge import MergeDrafter, likeliest_part, merge_trees
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.recycle import RecycleDrafter
from foredraft.drafters.suffix import SharedTexts, SuffixDrafter
from foredraft.errors import OptionError, VocabularyMismatchError
from foredraft.kernels.batch import Ints
from foredraft.kernels.operations import Kernels
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.models.store import is_model_reference, resolve
from foredraft.text import Tokenizer, first_difference, load_tokenizer

__all__ = [
    "CostlyDrafter",
    "DraftOptions",
    "Drafter",
    "Outcome",
    "RequestView",
    "likeliest_part",
    "make_drafter",
    "make_drafters",
    "merge_trees",
]

LARGE_VOCABULARY = 65536
"""Tokens from which on a draft model computes the logits of the frequent ones only, unless told otherwise."""
NUM_FREQUENT_TOKENS = 32768


@dataclass(frozen=True)
class DraftOptions:
    """What drafters are made with.

    target: the target's tokenizer. kernels: what a drafter's model computes with.
    memory: texts of earlier requests that `suffix` drafts from: "process", those since the start; "none"; or a file in
    which they are kept from one start to the next.
    vocab_size: how many frequent tokens a draft model chooses from; 0: all; None: all of a small vocabulary, and 32768
    of one larger than 65536.
    draws_over: size of the target's vocabulary, for drafts that are drawn from a distribution which is told, as rules
    that accept by distribution want them; None: drafts share the target's noise.
    """

    target: Tokenizer
    kernels: Kernels
    vocab_size: int | None = None
    memory: Path | Literal["process", "none"] = "process"
    draws_over: int | None = None


def make_drafters(names: Sequence[str], options: DraftOptions) -> list[Drafter]:
    """The drafters that `names` ask for, in their order, each once.

    names: "none", names of methods, models (files, folders, hub ids, built-in names), or "auto", which stands for all
    methods that cost next to nothing.

    Raises OptionError for an unknown name, a negative size or a combination without meaning, VocabularyMismatchError
    where a model's vocabulary is not the target's, and what loading a model raises.
    """
    if options.vocab_size is not None and options.vocab_size < 0:
        raise OptionError(f"--draft-vocab must be 0 (all tokens) or more, got {options.vocab_size}")
    if not names:
        raise OptionError(f"--draft needs a name: {_known()}")
    if "none" in names and len(set(names)) > 1:
        raise OptionError("--draft none cannot be combined with other drafters")
    unique = dict.fromkeys(part for name in names for part in (AUTO if name == "auto" else [name]))
    return [_make_one(name, options) for name in unique]


def make_drafter(names: Sequence[str], options: DraftOptions) -> tuple[Drafter, str]:
    """One drafter for all that `names` ask for, and why it is this one, in words.

    The trees of "auto" are merged; of several names the first that has a proposal is taken. See `make_drafters`.
    """
    drafters = make_drafters(names, options)
    if list(names) == ["none"]:
        return drafters[0], "drafting is switched off"
    if list(names) == ["auto"]:
        return MergeDrafter(drafters), "auto: the methods that need no model"
    return (drafters[0] if len(drafters) == 1 else FirstDrafter(drafters)), "asked for"


def _suffix(options: DraftOptions) -> Drafter:
    if isinstance(options.memory, Path):
        return SuffixDrafter.with_file(options.memory, options.target.fingerprint())
    return SuffixDrafter(None if options.memory == "none" else SharedTexts())


_METHODS: Mapping[str, Callable[[DraftOptions], Drafter]] = {
    "none": lambda options: NoDrafter(),
    "lookup": lambda options: LookupDrafter(),
    "suffix": _suffix,
    "recycle": lambda options: RecycleDrafter(),
}
AUTO = ("suffix", "recycle")
"""What "auto" stands for: methods that cost next to nothing. Suffix finds all that lookup does."""


def _known() -> str:
    return f"{', '.join(('auto', *_METHODS))} or a model"


def _make_one(name: str, options: DraftOptions) -> Drafter:
    if name in _METHODS:
        return _METHODS[name](options)
    if not is_model_reference(name):
        raise OptionError(f"unknown draft {name!r}: give {_known()}")
    path = resolve(name)
    source = open_model(path)
    _check_vocabulary(path, options.target, load_tokenizer(source.tokenizer_data))
    vocab_size = min(options.target.vocab_size, source.config.vocab_size)
    token_ids = _frequent_tokens(options.target, vocab_size, options.vocab_size)
    stem = path.stem.replace(",", "_")  # a comma stands between the names of several drafters
    return ModelDrafter(
        load_decoder(source, kernels=options.kernels, token_ids=token_ids),
        vocab_size=vocab_size,
        token_ids=token_ids,
        draws_over=options.draws_over,
        name=f"model:{stem}",
    )


def _frequent_tokens(target: Tokenizer, vocab_size: int, wanted: int | None) -> Ints | None:
    """The tokens a draft model chooses from, or None for all of them.

    The output matrix is a third of what a small model reads for a token, and most of its rows belong to rare tokens.
    The merges of a vocabulary are learned from the most to the least frequent pair, so low ids are frequent tokens.
    SentencePiece puts the single characters, full stop and digits among them, behind the merges: the first of these
    are taken too. The end tokens always are.
    """
    if wanted is None:
        wanted = NUM_FREQUENT_TOKENS if vocab_size > LARGE_VOCABULARY else 0
    if not 0 < wanted < vocab_size:
        return None
    texts = target.vocabulary.tokens
    characters = [token for token in range(wanted, min(vocab_size, len(texts))) if len(texts[token]) == 1]
    ends = [token for token in target.eos_ids if wanted <= token < vocab_size]
    return np.array(sorted({*range(wanted), *characters[: wanted // 8], *ends}), dtype=np.int32)


def _check_vocabulary(path: Path, target: Tokenizer, drafter: Tokenizer) -> None:
    difference = first_difference(target, drafter)
    if difference is None:
        return
    token_id, target_text, drafter_text = difference
    raise VocabularyMismatchError(
        f"{path}: another vocabulary than the target's: token {token_id} is {drafter_text!r} here and "
        f"{target_text!r} in the target; use a draft model of the target's family"
    )
