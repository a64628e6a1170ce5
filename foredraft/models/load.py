"""From a model file or folder to a decoder that runs."""

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from foredraft.kernels.choose import choose_kernels
from foredraft.kernels.operations import Kernels
from foredraft.models.cached_decoder import CachedDecoder
from foredraft.models.decoder import make_recipe
from foredraft.models.source import ModelSource, open_model


def load_decoder(
    path: str | Path | ModelSource,
    *,
    kernels: Kernels | str = "native",
    token_ids: NDArray[np.int32] | None = None,
) -> CachedDecoder:
    """Open a model and make it run.

    kernels: a set of kernels, which several decoders may share, or the name of one.
    token_ids: the tokens whose logits are computed, in rising order; None: all.
    Raises what `open_model` raises, and UnsupportedModelError for traits that cannot be computed.
    """
    source = path if isinstance(path, ModelSource) else open_model(path)
    chosen = choose_kernels(kernels) if isinstance(kernels, str) else kernels
    forward = chosen.compile(make_recipe(source, token_ids=token_ids))
    return CachedDecoder(source.config, forward, chosen, source)


def load_part(
    whole: CachedDecoder, layers: Sequence[int], *, token_ids: NDArray[np.int32] | None = None
) -> CachedDecoder:
    """The decoder without some of its layers, with a cache of its own. Matrices of the file are not loaded again.

    layers: those that stay, in rising order. token_ids: as for `load_decoder`; their rows of the output matrix are
    a copy.
    Raises ValueError for a decoder that was not loaded from a model.
    """
    source = whole.source
    if source is None:
        raise ValueError("only a decoder that was loaded from a model has parts")
    recipe = make_recipe(source, layers=layers, token_ids=token_ids)
    windows = tuple(source.config.window_layers[layer] for layer in layers)
    config = replace(source.config, num_layers=len(layers), window_layers=windows)
    return CachedDecoder(config, whole.kernels.compile(recipe, like=whole.compiled), whole.kernels)


def exposing(whole: CachedDecoder, hidden_layers: Sequence[int]) -> CachedDecoder:
    """The same decoder, whose passes also return the hidden states after some layers. It shares weights and cache.

    Raises ValueError for a decoder that was not loaded from a model, or a layer that it does not have.
    """
    layers = sorted(set(hidden_layers))
    if tuple(layers) == whole.hidden_layers:
        return whole
    source = whole.source
    if source is None:
        raise ValueError("only a decoder that was loaded from a model can show its hidden states")
    if layers and not 0 <= layers[0] <= layers[-1] < whole.config.num_layers:
        raise ValueError(f"the model has layers 0 to {whole.config.num_layers - 1}, got {layers}")
    forward = whole.kernels.compile(make_recipe(source, hidden_layers=layers), like=whole.compiled)
    return CachedDecoder(whole.config, forward, whole.kernels, source, hidden_layers=layers, cache=whole.cache)
