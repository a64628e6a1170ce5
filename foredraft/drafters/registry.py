"""All ways of drafting, by name. No other file names a concrete drafter."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace

from foredraft.config import DraftConfig
from foredraft.drafters.base import Drafter
from foredraft.drafters.context import DraftContext
from foredraft.drafters.fallback import FallbackDrafter
from foredraft.drafters.grammar import GrammarDrafter
from foredraft.drafters.jacobi import JacobiDrafter
from foredraft.drafters.load_model import load_model, load_target_without_layers
from foredraft.drafters.lookup import LookupDrafter
from foredraft.drafters.merge import MergeDrafter
from foredraft.drafters.min_survival import MinSurvivalDrafter
from foredraft.drafters.none import NoDrafter
from foredraft.drafters.plugin import as_drafter, find_plugin, make_plugin, plugin_names
from foredraft.drafters.prediction import PredictionDrafter
from foredraft.drafters.recycle import RecycleDrafter
from foredraft.drafters.suffix import SharedTexts, SuffixDrafter
from foredraft.drafters.supervised import SupervisedDrafter
from foredraft.errors import OptionError
from foredraft.models.store import is_model_reference


@dataclass(frozen=True, kw_only=True)
class _Method:
    """A way of drafting that is asked for by a name of ours.

    make: from the context, and what stands behind a colon in the name, as in "skip:3-10"; empty where nothing does.
    from_text: makes one whose proposals follow from the text of a sequence alone, where there is such a one.
    from_texts: the same, from the texts of sequences that are over, too.
    in_auto: whether "auto" asks it: it needs no model, and costs next to nothing. Suffix finds all that lookup does.
    has_model: whether options of draft models mean something to it. has_memory: whether --draft-memory does.
    is_compared: whether `foredraft tune` tries it unless told otherwise.
    """

    make: Callable[[DraftContext, str], Drafter]
    from_text: Callable[[], Drafter] | None = None
    from_texts: Callable[[], Drafter] | None = None
    in_auto: bool = False
    has_model: bool = False
    has_memory: bool = False
    is_compared: bool = False


def _suffix(context: DraftContext) -> Drafter:
    file = context.config.memory_file
    if file is not None:
        return SuffixDrafter.with_file(file, context.tokenizer.fingerprint())
    return SuffixDrafter(None if context.config.memory == "none" else SharedTexts())


PREDICTION = "prediction"
"""The method that needs a prediction with the prompt, and has nothing to propose without."""
_METHODS: Mapping[str, _Method] = {
    "none": _Method(make=lambda context, _: NoDrafter()),
    "lookup": _Method(make=lambda context, _: LookupDrafter(), from_text=LookupDrafter, is_compared=True),
    "suffix": _Method(
        make=lambda context, _: _suffix(context),
        from_text=SuffixDrafter,
        from_texts=lambda: SuffixDrafter(SharedTexts()),
        in_auto=True,
        has_memory=True,
        is_compared=True,
    ),
    "recycle": _Method(make=lambda context, _: RecycleDrafter(context.kernels), in_auto=True, is_compared=True),
    PREDICTION: _Method(make=lambda context, _: PredictionDrafter(context.tokenizer), in_auto=True),
    "jacobi": _Method(make=lambda context, _: JacobiDrafter(context.kernels)),
    "skip": _Method(make=lambda context, layers: load_target_without_layers(layers, context), has_model=True),
}
_WITH_ARGUMENT = ("skip",)
METHODS_WITHOUT_MODEL = tuple(name for name in _METHODS if name != "none")
"""All that drafts from nothing but texts and the target itself."""
LIGHT_METHODS = tuple(name for name in METHODS_WITHOUT_MODEL if not _METHODS[name].has_model)
"""Those among them that are made in no time, and take little memory: not `skip`, which has a cache of its own."""
AUTO = tuple(name for name, method in _METHODS.items() if method.in_auto)
"""What "auto" stands for."""
COMPARED = tuple(name for name, method in _METHODS.items() if method.is_compared)
"""What `foredraft tune` tries unless told otherwise."""


def make_drafters(config: DraftConfig, context: DraftContext) -> list[Drafter]:
    """The drafters that are asked for, in their order, each once, and each supervised.

    context: what they are made with; its configuration is the one given here.

    Raises OptionError for an unknown name, an object that is no drafter, an option that means nothing to any of them,
    and what loading a model raises.
    """
    context = replace(context, config=config)
    asked: dict[str | int, object] = {}
    for one in config.drafters:
        for part in AUTO if one == "auto" else (one,):
            asked.setdefault(part if isinstance(part, str) else id(part), part)
    _check_effect(config, list(asked.values()))
    drafters = [_supervised(one, context) for one in asked.values()]
    names = [drafter.name for drafter in drafters]
    if twice := [name for name in names if names.count(name) > 1]:
        raise OptionError(f"two drafters are called {twice[0]}: ask for one of them, or give them different names")
    return drafters


def make_drafter(config: DraftConfig, context: DraftContext) -> tuple[Drafter, str]:
    """One drafter for all that is asked for, and why it is this one, in words.

    The trees of "auto" are merged; of several drafters each is asked where the ones before have nothing to propose.
    Raises as `make_drafters`.
    """
    drafters = make_drafters(config, context)
    if config.is_plain:
        return drafters[0], "drafting is switched off"
    if config.drafters == ("auto",):
        return MergeDrafter(drafters), "auto: the methods that need no model"
    return (drafters[0] if len(drafters) == 1 else FallbackDrafter(drafters)), "asked for"


def with_grammar(drafters: Sequence[Drafter]) -> list[Drafter]:
    """The drafters, behind one that drafts what the grammar of a sequence forces, if it has one."""
    return [SupervisedDrafter(GrammarDrafter()), *drafters]


def first_with_grammar(drafter: Drafter) -> Drafter:
    """One drafter that drafts what the grammar of a sequence forces, and else leaves it to the one given."""
    return FallbackDrafter(with_grammar([drafter]))


def drafter_of_text(name: str) -> Drafter | None:
    """A drafter whose proposals follow from the text of a sequence alone; None where the name is of no such drafter."""
    method = _METHODS.get(name)
    return method.from_text() if method and method.from_text else None


def drafter_of_texts(name: str) -> Drafter | None:
    """The same, but it drafts from the texts of sequences that are over, too."""
    method = _METHODS.get(name)
    return method.from_texts() if method and method.from_texts else None


def is_method(name: str) -> bool:
    """Whether this names a way of drafting of ours, and so no model."""
    return name == "auto" or _method(name) is not None


def is_model_based(name: str) -> bool:
    """Whether this names a draft model, or a method of ours that drafts with one."""
    found = _method(name)
    return names_a_model(name) if found is None else found[0].has_model


def names_a_model(name: str) -> bool:
    """Whether this names a draft model. A method stays one, and a plugin, where a file or folder has its name."""
    if is_method(name) or not is_model_reference(name):
        return False
    return "/" in name or find_plugin(name) is None


def _method(name: str) -> tuple[_Method, str] | None:
    """The method of that name, and its argument."""
    method, colon, argument = name.partition(":")
    if method not in _METHODS or (colon and method not in _WITH_ARGUMENT):
        return None
    return _METHODS[method], argument


def _check_effect(config: DraftConfig, asked: Sequence[object]) -> None:
    """Refuse options that mean nothing to any of the drafters. All may be given with "none", to compare with it."""
    names = [one for one in asked if isinstance(one, str)]
    if config.is_plain or len(names) < len(asked):
        return
    methods = [found[0] for name in names if (found := _method(name)) is not None]
    if len(methods) == len(names) and not any(method.has_model for method in methods):
        for option, given in (
            ("--draft-branches", config.num_branches > 1),
            ("--draft-vocab", config.vocab_size is not None),
            ("min_survival", config.min_survival > 0),
        ):
            if given:
                raise OptionError(f"{option} is for draft models, and none drafts here: add one with --draft")
    ours = len(methods) + sum(map(names_a_model, names))
    if config.memory_file is not None and ours == len(names) and not any(method.has_memory for method in methods):
        raise OptionError("--draft-memory keeps texts for the drafter suffix: add --draft suffix")


def _supervised(asked: object, context: DraftContext) -> Drafter:
    """The drafter that is asked for; what it proposes is checked where it is not ours."""
    drafter, is_ours = _make(asked, context)
    _check_layers(drafter, context)
    if context.config.min_survival and not drafter.model_free:
        drafter = MinSurvivalDrafter(drafter, context.config.min_survival)
    return SupervisedDrafter(drafter, vocab_size=None if is_ours else context.vocab_size)


def _make(asked: object, context: DraftContext) -> tuple[Drafter, bool]:
    """The drafter, and whether it is ours."""
    if not isinstance(asked, str):
        return as_drafter(asked), False
    if (found := _method(asked)) is not None:
        method, argument = found
        return method.make(context, argument), True
    if "/" not in asked and (plugin := find_plugin(asked)) is not None:
        return as_drafter(make_plugin(plugin, context)), False
    if is_model_reference(asked):
        return load_model(asked, context), True
    known = ", ".join(("auto", *_METHODS, *plugin_names()))
    raise OptionError(f"unknown draft {asked!r}: give {known} or a model")


def _check_layers(drafter: Drafter, context: DraftContext) -> None:
    layers = drafter.spec.layers
    if not layers:
        return
    if context.decoder is None or context.decoder.source is None:
        raise OptionError(f"drafter {drafter.name} needs a target that is a model of ours: it wants its hidden states")
    num_layers = context.decoder.config.num_layers
    if max(layers) >= num_layers:
        raise OptionError(
            f"drafter {drafter.name} wants the hidden states of layer {max(layers)}: the model has layers 0 to "
            f"{num_layers - 1}"
        )
