"""The ways of drafting. No file outside this one names a concrete drafter."""

from collections.abc import Sequence
from pathlib import Path

from foredraft.drafters.base import Drafter, RequestView
from foredraft.drafters.first import FirstDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.model import ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.errors import OptionError, VocabularyMismatchError
from foredraft.kernels.operations import Kernels
from foredraft.models.load import load_decoder
from foredraft.models.source import open_model
from foredraft.models.store import is_model_reference, resolve
from foredraft.text import Tokenizer, first_difference, load_tokenizer

__all__ = ["Drafter", "RequestView", "make_drafter"]

_NAMES = ("auto", "none", "lookup")


def make_drafter(names: Sequence[str], *, target: Tokenizer, kernels: Kernels) -> tuple[Drafter, str]:
    """The drafter that `names` ask for, and why it is this one, in words.

    names: "auto", "none", "lookup", or models (files, folders, hub ids, built-in names); several are asked in
    turn. target: the target's tokenizer. kernels: what a drafter's model computes with.

    Raises OptionError for an unknown name or a combination without meaning, VocabularyMismatchError where a model's
    vocabulary is not the target's, and what loading a model raises.
    """
    unique = list(dict.fromkeys(names))
    if not unique:
        raise OptionError("--draft needs a name: auto, none, lookup or a model")
    if len(unique) > 1 and (alone := [name for name in unique if name in ("auto", "none")]):
        raise OptionError(f"--draft {alone[0]} cannot be combined with other drafters")
    if unique == ["none"]:
        return NoDrafter(), "drafting is switched off"
    if unique == ["auto"]:
        return LookupDrafter(), "auto: lookup costs nothing, and no draft model was given"
    drafters = [_make_one(name, target, kernels) for name in unique]
    return (drafters[0] if len(drafters) == 1 else FirstDrafter(drafters)), "asked for"


def _make_one(name: str, target: Tokenizer, kernels: Kernels) -> Drafter:
    if name == "lookup":
        return LookupDrafter()
    if not is_model_reference(name):
        raise OptionError(f"unknown draft {name!r}: give {', '.join(_NAMES)} or a model")
    path = resolve(name)
    source = open_model(path)
    _check_vocabulary(path, target, load_tokenizer(source.tokenizer_data))
    decoder = load_decoder(source, kernels=kernels)
    vocab_size = min(target.vocab_size, decoder.config.vocab_size)
    return ModelDrafter(decoder, vocab_size=vocab_size, name=f"model:{path.stem}")


def _check_vocabulary(path: Path, target: Tokenizer, drafter: Tokenizer) -> None:
    difference = first_difference(target, drafter)
    if difference is None:
        return
    token_id, target_text, drafter_text = difference
    raise VocabularyMismatchError(
        f"{path}: another vocabulary than the target's: token {token_id} is {drafter_text!r} here and "
        f"{target_text!r} in the target; use a draft model of the target's family"
    )
