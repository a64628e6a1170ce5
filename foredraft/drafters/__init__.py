"""The ways of drafting. No file outside this one names a concrete drafter."""

from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from foredraft.drafters.base import CostlyDrafter, Drafter, Outcome, RequestView
from foredraft.drafters.first import FirstDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.errors import OptionError, VocabularyMismatchError
from foredraft.kernels.batch import Ints
from foredraft.kernels.operations import Kernels
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.models.store import is_model_reference, resolve
from foredraft.text import Tokenizer, first_difference, load_tokenizer

__all__ = ["CostlyDrafter", "DraftOptions", "Drafter", "Outcome", "RequestView", "make_drafter"]

_NAMES = ("auto", "none", "lookup")


LARGE_VOCABULARY = 65536
"""Tokens from which on a draft model computes the logits of the frequent ones only, unless told otherwise."""
NUM_FREQUENT_TOKENS = 32768


@dataclass(frozen=True)
class DraftOptions:
    """What drafters are made with.

    target: the target's tokenizer. kernels: what a drafter's model computes with.
    vocab_size: how many frequent tokens a draft model chooses from; 0: all; None: all of a small vocabulary, and 32768
    of one larger than 65536.
    """

    target: Tokenizer
    kernels: Kernels
    vocab_size: int | None = None


def make_drafter(names: Sequence[str], options: DraftOptions) -> tuple[Drafter, str]:
    """The drafter that `names` ask for, and why it is this one, in words.

    names: "auto", "none", "lookup", or models (files, folders, hub ids, built-in names); several are asked in
    turn.

    Raises OptionError for an unknown name, a negative size or a combination without meaning, VocabularyMismatchError
    where a model's vocabulary is not the target's, and what loading a model raises.
    """
    if options.vocab_size is not None and options.vocab_size < 0:
        raise OptionError(f"--draft-vocab must be 0 (all tokens) or more, got {options.vocab_size}")
    unique = list(dict.fromkeys(names))
    if not unique:
        raise OptionError("--draft needs a name: auto, none, lookup or a model")
    if len(unique) > 1 and (alone := [name for name in unique if name in ("auto", "none")]):
        raise OptionError(f"--draft {alone[0]} cannot be combined with other drafters")
    if unique == ["none"]:
        return NoDrafter(), "drafting is switched off"
    if unique == ["auto"]:
        return _make_one("lookup", options), "auto: no draft model was given, and lookup needs none"
    drafters = [_make_one(name, options) for name in unique]
    return (drafters[0] if len(drafters) == 1 else FirstDrafter(drafters)), "asked for"


def _make_one(name: str, options: DraftOptions) -> Drafter:
    if name == "lookup":
        return LookupDrafter()
    if not is_model_reference(name):
        raise OptionError(f"unknown draft {name!r}: give {', '.join(_NAMES)} or a model")
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
