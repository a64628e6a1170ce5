"""Drafters from outside: objects that users bring, and those that installed packages offer by name."""

from collections.abc import Callable
from importlib.metadata import EntryPoint, entry_points

from foredraft.drafters.base import Drafter, DrafterSpec
from foredraft.errors import OptionError, UserError

ENTRY_POINTS = "foredraft.drafters"
"""Group of entry points whose values are callables that take a `DraftContext` and return a drafter."""

_GUIDE = "see docs/adding-a-drafter.md"


def plugin_names() -> list[str]:
    """Names of the drafters that installed packages bring."""
    return sorted({point.name for point in entry_points(group=ENTRY_POINTS)})


def find_plugin(name: str) -> EntryPoint | None:
    """The entry point of that name, if an installed package has one.

    Raises OptionError where several packages have one.
    """
    found = list(entry_points(group=ENTRY_POINTS, name=name))
    if len({point.value for point in found}) > 1:
        values = " and ".join(sorted({point.value for point in found}))
        raise OptionError(f"drafter {name!r} is offered by several packages ({values}): uninstall all but one")
    return found[0] if found else None


def make_plugin(point: EntryPoint, context: object) -> object:
    """What the callable of an entry point returns. Raises OptionError for anything that goes wrong there."""
    try:
        make: Callable[[object], object] = point.load()
        if not callable(make):
            raise TypeError(f"{point.value} is no function that makes a drafter")
        return make(context)
    except UserError:
        raise
    except Exception as error:
        line = " ".join(f"{type(error).__name__}: {error}".split())
        raise OptionError(f"drafter {point.name!r} ({point.value}) cannot be made: {line}") from error


def as_drafter(brought: object) -> Drafter:
    """The object itself. Raises OptionError where it is no drafter: the line says what is missing."""
    if isinstance(brought, type):
        raise OptionError(f"drafter {brought.__name__} is a class: give an object of it, {brought.__name__}(...)")
    what = f"drafter {type(brought).__name__}"
    if not isinstance(brought, Drafter):
        raise OptionError(f"{what} must be of a subclass of foredraft.drafters.Drafter; {_GUIDE}")
    spec = getattr(brought, "spec", None)
    if not isinstance(spec, DrafterSpec):
        raise OptionError(f"{what} needs a `spec`: DrafterSpec(name=...); {_GUIDE}")
    if not isinstance(spec.name, str) or not spec.name.strip() or "\n" in spec.name:
        raise OptionError(f"{what} needs a `name` in its spec that is one line of text, got {spec.name!r}")
    for field in ("model_free", "needs_prompt_features", "can_begin_late", "observes_skipped_rounds"):
        if not isinstance(getattr(spec, field), bool):
            raise OptionError(f"{what}: `{field}` of its spec must be True or False, got {getattr(spec, field)!r}")
    if not isinstance(spec.layers, tuple) or not all(type(layer) is int and layer >= 0 for layer in spec.layers):
        raise OptionError(f"{what}: `layers` of its spec must be a tuple of numbers from 0, got {spec.layers!r}")
    if not isinstance(spec.identity, str):
        raise OptionError(f"{what}: `identity` of its spec must be a text, got {spec.identity!r}")
    return brought
