"""The ways of drafting. No file outside this one names a concrete drafter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

import numpy as np

from foredraft.drafters.base import CostlyDrafter, Drafter, Outcome, RequestView
from foredraft.drafters.first import FirstDrafter
from foredraft.drafters.grammar import GrammarDrafter
from foredraft.drafters.jacobi import JacobiDrafter
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.merge import MergeDrafter, likeliest_part, merge_trees
from foredraft.drafters.model import MAX_BRANCHES, ModelDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.plugin import find_plugin, guarded, make_plugin, plugin_names
from foredraft.drafters.prediction import PredictionDrafter
from foredraft.drafters.recycle import RecycleDrafter
from foredraft.drafters.skip import SAMPLE, choose_layers, parse_layers
from foredraft.drafters.suffix import SharedTexts, SuffixDrafter
from foredraft.drafters.translated import TranslatedDrafter, names_of_tokens, original
from foredraft.errors import OptionError
from foredraft.kernels.batch import Ints
from foredraft.kernels.operations import Kernels
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.load import load_decoder, load_part
from foredraft.models.source import ModelSource, open_model
from foredraft.models.store import is_model_reference, resolve
from foredraft.text import Tokenizer, first_difference, load_tokenizer

__all__ = [
    "CostlyDrafter",
    "DraftOptions",
    "Drafter",
    "Outcome",
    "RequestView",
    "drafter_of_text",
    "first_with_grammar",
    "is_method",
    "likeliest_part",
    "make_drafter",
    "make_drafters",
    "merge_trees",
    "names_a_model",
    "with_grammar",
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
    num_branches: tokens that a draft model proposes after each, at most; 1: chains.
    decoder: the target itself, for drafters that are a part of it, and lest it be loaded twice.
    """

    target: Tokenizer
    kernels: Kernels
    vocab_size: int | None = None
    memory: Path | Literal["process", "none"] = "process"
    draws_over: int | None = None
    num_branches: int = 1
    decoder: CachedDecoder | None = None


def make_drafters(asked: Sequence[str | Drafter], options: DraftOptions) -> list[Drafter]:
    """The drafters that are asked for, in their order, each once.

    asked: "none", names of methods, models (files, folders, hub ids, built-in names), names that installed packages
    give their drafters, objects that are drafters, or "auto", which stands for all methods that cost next to nothing.

    A model with another vocabulary than the target's is translated, see `foredraft.drafters.translated`.

    Raises OptionError for an unknown name, a size out of range, an object that is no drafter or a combination without
    meaning, and what loading a model raises.
    """
    if not 1 <= options.num_branches <= MAX_BRANCHES:
        raise OptionError(f"--draft-branches must be from 1 to {MAX_BRANCHES}, got {options.num_branches}")
    if options.vocab_size is not None and options.vocab_size < 0:
        raise OptionError(f"--draft-vocab must be 0 (all tokens) or more, got {options.vocab_size}")
    if not asked:
        raise OptionError(f"--draft needs a name: {_known()}")
    if "none" in asked and any(one != "none" for one in asked):
        raise OptionError("--draft none cannot be combined with other drafters")
    drafters: dict[str | int, Drafter] = {}
    for one in asked:
        for part in AUTO if one == "auto" else (one,):
            key = part if isinstance(part, str) else id(part)
            if key not in drafters:
                drafters[key] = _make_one(part, options)
    _check_effect(list(drafters), options)
    _check_names([drafter.name for drafter in drafters.values()])
    return list(drafters.values())


def make_drafter(asked: Sequence[str | Drafter], options: DraftOptions) -> tuple[Drafter, str]:
    """One drafter for all that is asked for, and why it is this one, in words.

    The trees of "auto" are merged; of several drafters the first that has a proposal is taken. See `make_drafters`.
    """
    drafters = make_drafters(asked, options)
    if list(asked) == ["none"]:
        return drafters[0], "drafting is switched off"
    if list(asked) == ["auto"]:
        return MergeDrafter(drafters), "auto: the methods that need no model"
    return (drafters[0] if len(drafters) == 1 else FirstDrafter(drafters)), "asked for"


def with_grammar(drafters: Sequence[Drafter]) -> list[Drafter]:
    """The drafters, behind one that drafts what the grammar of a request forces, if it has one."""
    return [GrammarDrafter(), *drafters]


def first_with_grammar(drafter: Drafter) -> Drafter:
    """One drafter that drafts what the grammar of a request forces, and else leaves it to the one given."""
    return FirstDrafter(with_grammar([drafter]))


def drafter_of_text(name: str) -> Drafter | None:
    """A drafter whose proposals follow from the text of a request alone; None where the name is of no such drafter."""
    if name == "lookup":
        return LookupDrafter()
    return SuffixDrafter(None) if name == "suffix" else None


def is_method(name: str) -> bool:
    """Whether this names a way of drafting of ours, and so no model."""
    return name == "auto" or name in _METHODS


def names_a_model(name: str) -> bool:
    """Whether this names a draft model. A method stays one, and a plugin, where a file or folder has its name."""
    if is_method(name) or name.startswith("skip:") or not is_model_reference(name):
        return False
    return "/" in name or find_plugin(name) is None


def _suffix(options: DraftOptions) -> Drafter:
    if isinstance(options.memory, Path):
        return SuffixDrafter.with_file(options.memory, options.target.fingerprint())
    return SuffixDrafter(None if options.memory == "none" else SharedTexts())


_METHODS: Mapping[str, Callable[[DraftOptions], Drafter]] = {
    "none": lambda options: NoDrafter(),
    "lookup": lambda options: LookupDrafter(),
    "suffix": _suffix,
    "recycle": lambda options: RecycleDrafter(options.kernels),
    "prediction": lambda options: PredictionDrafter(options.target),
    "jacobi": lambda options: JacobiDrafter(options.kernels),
    "skip": lambda options: _skip("", options),
}
METHODS_WITHOUT_MODEL = tuple(name for name in _METHODS if name != "none")
"""All that drafts from nothing but texts and the target itself."""
_WITHOUT_LAYERS = ("lookup", "suffix", "recycle", "prediction", "jacobi")
"""Those to which options of draft models mean nothing."""
AUTO = ("suffix", "recycle", "prediction")
"""What "auto" stands for: methods that cost next to nothing. Suffix finds all that lookup does."""


def _known() -> str:
    return f"{', '.join(('auto', *_METHODS, *plugin_names()))} or a model"


def _check_effect(asked: Sequence[str | int], options: DraftOptions) -> None:
    """Refuse options that mean nothing to any of the drafters. All may be given with "none", to compare with it."""
    if "none" in asked:
        return
    names = [one for one in asked if isinstance(one, str)]
    if len(names) == len(asked) and all(name in _WITHOUT_LAYERS for name in names):
        for option, given in (
            ("--draft-branches", options.num_branches > 1),
            ("--draft-vocab", options.vocab_size is not None),
        ):
            if given:
                raise OptionError(f"{option} is for draft models, and none drafts here: add one with --draft")
    ours = [name for name in names if name in _METHODS or names_a_model(name) or name.startswith("skip:")]
    if isinstance(options.memory, Path) and len(ours) == len(asked) and "suffix" not in ours:
        raise OptionError("--draft-memory keeps texts for the drafter suffix: add --draft suffix")


def _check_names(names: Sequence[str]) -> None:
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(f"two drafters are called {twice[0]}: ask for one of them, or give them different names")


def _make_one(asked: str | Drafter, options: DraftOptions) -> Drafter:
    if not isinstance(asked, str):
        return guarded(asked, options.target.vocab_size)
    if asked in _METHODS:
        return _METHODS[asked](options)
    if asked.startswith("skip:"):
        return _skip(asked.removeprefix("skip:"), options)
    if "/" not in asked and (plugin := find_plugin(asked)) is not None:
        return guarded(make_plugin(plugin, options), options.target.vocab_size)
    if not is_model_reference(asked):
        raise OptionError(f"unknown draft {asked!r}: give {_known()}")
    return _make_model(asked, options)


def _make_model(name: str, options: DraftOptions) -> Drafter:
    path = resolve(name)
    drafter, status = _model(path, options), path.stat()
    drafter.identity = repr((str(path.resolve()), status.st_size, status.st_mtime_ns, options.vocab_size))
    return drafter


def _model(path: Path, options: DraftOptions) -> ModelDrafter | TranslatedDrafter:
    """Drafts from a model, translated where its vocabulary is not the target's."""
    name = f"model:{path.stem.replace(',', '_')}"  # a comma stands between the names of several drafters
    whole = options.decoder
    if whole is not None and whole.source is not None and path.samefile(whole.source.path):
        vocab_size = min(options.target.vocab_size, whole.config.vocab_size)
        token_ids = _frequent_tokens(options.target, vocab_size, options.vocab_size)
        layers = range(whole.config.num_layers)
        decoder = whole if token_ids is None else load_part(whole, layers, token_ids=token_ids)
        return _model_drafter(decoder, options, vocab_size=vocab_size, token_ids=token_ids, name=name)
    source = open_model(path)
    own = load_tokenizer(source.tokenizer_data)
    if first_difference(options.target, own) is not None:
        return _translated(source, own, options, name=name)
    vocab_size = min(options.target.vocab_size, source.config.vocab_size)
    token_ids = _frequent_tokens(options.target, vocab_size, options.vocab_size)
    decoder = load_decoder(source, kernels=options.kernels, token_ids=token_ids)
    return _model_drafter(decoder, options, vocab_size=vocab_size, token_ids=token_ids, name=name)


def _skip(layers: str, options: DraftOptions) -> ModelDrafter:
    """The target without some layers: those named, or those that a short search finds to be the least missed."""
    whole = options.decoder
    if whole is None or whole.source is None:
        raise OptionError("--draft skip needs a target that is a model of ours")
    vocab_size = min(options.target.vocab_size, whole.config.vocab_size)
    token_ids = _frequent_tokens(options.target, vocab_size, options.vocab_size)
    if layers:
        left_out = parse_layers(layers, whole.config.num_layers)
    else:
        num_logits = vocab_size if token_ids is None else len(token_ids)
        left_out = choose_layers(whole, options.target.encode(SAMPLE), num_logits=num_logits)
    kept = [layer for layer in range(whole.config.num_layers) if layer not in left_out]
    part = load_part(whole, kept, token_ids=token_ids)
    drafter = _model_drafter(part, options, vocab_size=vocab_size, token_ids=token_ids, name="skip")
    drafter.identity = repr((kept, options.vocab_size))
    return drafter


def _model_drafter(
    decoder: CachedDecoder, options: DraftOptions, *, vocab_size: int, token_ids: Ints | None = None, name: str
) -> ModelDrafter:
    return ModelDrafter(
        decoder,
        vocab_size=vocab_size,
        token_ids=token_ids,
        num_branches=options.num_branches,
        draws_over=options.draws_over,
        end_ids=options.target.eos_ids,
        name=name,
    )


def _translated(source: ModelSource, own: Tokenizer, options: DraftOptions, *, name: str) -> TranslatedDrafter:
    vocab_size = min(own.vocab_size, source.config.vocab_size)
    frequent = _frequent_tokens(own, vocab_size, options.vocab_size)
    own_ids = np.arange(vocab_size, dtype=np.int32) if frequent is None else frequent
    all_names = names_of_tokens(options.target, own)
    names = all_names[own_ids]
    order = np.argsort(names, kind="stable")
    order = order[np.diff(names[order], prepend=-1) > 0]  # of two that mean the same, one is enough
    names, own_ids = names[order], own_ids[order]
    drafter = ModelDrafter(
        load_decoder(source, kernels=options.kernels, token_ids=own_ids),
        vocab_size=options.target.vocab_size,
        token_ids=names,
        own_ids=own_ids,
        original=original,
        num_branches=options.num_branches,
        end_ids=options.target.eos_ids | {int(all_names[token]) for token in own.eos_ids if token < len(all_names)},
        name=name,
    )
    return TranslatedDrafter(drafter, target=options.target, own=own)


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
