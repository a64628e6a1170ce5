"""From a model file or folder to a decoder that runs."""

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
    return CachedDecoder(source.config, chosen.compile(make_recipe(source, token_ids=token_ids)), chosen)
