"""What a server is to serve, as the models that its pool may have to load."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from foredraft.cache.capacity import parse_memory
from foredraft.errors import OptionError
from foredraft.files import user_path
from foredraft.llm import LLM
from foredraft.models.generation_defaults import generation_defaults
from foredraft.models.source import open_model
from foredraft.server.options import ServerOptions
from foredraft.server.pool import ModelPool, ModelSpec, ServedModel

OPENAI_DEFAULTS = {"temperature": 1.0}
"""How is sampled where a request says nothing, nor the makers of a model are asked."""
LEAST_CACHE = 256 * 2**20
"""Bytes of cache below which it is better to have one model at a time in memory."""


@dataclass(frozen=True, kw_only=True)
class Served:
    """A model to be served.

    name: for clients. path: where it is. load: loads it, with a cache of so many bytes; None: by the free memory.
    """

    name: str
    path: Path
    load: Callable[[int | None], LLM]


def default_name(reference: str) -> str:
    """The name of a model for clients: of a file or folder its own, else what it was asked for by."""
    path = user_path(reference)
    if not path.exists():
        return reference
    path = path.resolve()
    return path.stem if path.suffix == ".gguf" else path.name


def model_pool(
    models: Sequence[Served], options: ServerOptions, *, memory: str | None = None, kv_memory: str | None = None
) -> ModelPool:
    """The models, none of them loaded yet. memory, kv_memory: sizes, of all together and of the cache of each.

    Raises UserError for a model that is missing, damaged or too large for the memory.
    """
    weights = [open_model(model.path).num_bytes for model in models]
    most = None if memory is None else parse_memory(memory, option="--memory")
    asked = None if kv_memory is None else parse_memory(kv_memory)
    caches = [asked] * len(models) if asked is not None or most is None else _caches(models, weights, most)
    specs = [
        ModelSpec(
            name=model.name,
            num_bytes=size + (cache or 0),
            load=lambda model=model, cache=cache: _load(model, cache, options),  # type: ignore[misc]
        )
        for model, size, cache in zip(models, weights, caches, strict=True)
    ]
    return ModelPool(specs, memory=most)


def _caches(models: Sequence[Served], weights: Sequence[int], memory: int) -> list[int | None]:
    """What is left of the memory for caches, shared by all models; where that would be little, for one at a time."""
    shared = (memory - sum(weights)) // len(models)
    if shared >= LEAST_CACHE:
        return [shared] * len(models)
    for model, size in zip(models, weights, strict=True):
        if memory - size < LEAST_CACHE:
            least = size + LEAST_CACHE
            raise OptionError(f"--memory {memory} is too little for {model.name}: give at least {least}")
    return [memory - size for size in weights]


def _load(model: Served, cache: int | None, options: ServerOptions) -> ServedModel:
    llm = model.load(cache)
    chat: dict[str, Any] = {}
    if options.chat_template is not None:
        chat["chat_template"] = options.chat_template
    if options.chat_template_kwargs:
        chat["chat_template_kwargs"] = options.chat_template_kwargs
    defaults = {**OPENAI_DEFAULTS, **_advised(llm, options.generation_config)}
    return ServedModel(name=model.name, llm=llm, defaults=defaults, chat_options=chat)


def _advised(llm: LLM, wanted: str | None) -> Mapping[str, Any]:
    """What the makers of the model, or a folder, advise on sampling."""
    if wanted in (None, "none"):
        return {}
    return (llm.generation_defaults if wanted == "auto" else generation_defaults(user_path(wanted))).sampling
