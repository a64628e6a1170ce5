"""Weights that are no numbers: where they are, once a logit has shown that there are some.

Weights are not looked through when a model is loaded, which would read all of the file. A logit that is not a number is
looked at anyway; only then is it worth to ask which tensor it comes from.
"""

import numpy as np
from numpy.typing import NDArray

from foredraft.errors import ModelFileError
from foredraft.kernels.formats import BLOCK
from foredraft.models.mapping import shown
from foredraft.models.names import folder_name
from foredraft.models.source import ModelSource

_SCALES: dict[str, tuple[int, ...]] = {
    "Q4_0": (0,),
    "Q4_1": (0, 2),
    "Q5_0": (0,),
    "Q5_1": (0, 2),
    "Q8_0": (0,),
    "Q4_K": (0, 2),
    "Q5_K": (0, 2),
    "Q6_K": (208,),
}
"""Where the float16 of a block are, in bytes from its start. All else are small whole numbers: a product of a finite
one and those is finite in float32, and one that is not makes the whole block so."""
_EXPONENTS = {"F32": (np.uint32, 0x7F80_0000), "F16": (np.uint16, 0x7C00), "BF16": (np.uint16, 0x7F80)}
_CHUNK_BYTES = 1 << 24


def find_not_finite(source: ModelSource) -> str | None:
    """The name, as the file has it, of a tensor with a value that is not a number or infinite; None: all are finite.

    Of the tensors that the model needs; of a multimodal folder without the prefix of its language model. Takes about as
    long as to read the file once.
    """
    for name, tensor in source.tensors.items():
        if not _is_finite(tensor.data, tensor.format):
            return name if source.kind == "gguf" else folder_name(name, source.config.architecture)
    return None


def not_finite_error(source: ModelSource) -> ModelFileError | None:
    """The error for a model that computed a logit that is no number, if it is the file's fault; None: it is ours."""
    name = find_not_finite(source)
    if name is None:
        return None
    return ModelFileError(
        f"{source.path}: tensor {shown(name)} holds values that are not numbers (NaN) or infinite; the file is "
        "damaged, fetch it or convert the model again"
    )


def _is_finite(data: NDArray[np.uint8], format: str) -> bool:
    step = _CHUNK_BYTES // BLOCK[format][1] * BLOCK[format][1]
    return all(_chunk_is_finite(data[start : start + step], format) for start in range(0, data.size, step))


def _chunk_is_finite(data: NDArray[np.uint8], format: str) -> bool:
    if format in _EXPONENTS:
        kind, exponent = _EXPONENTS[format]
        return not ((data.view(kind) & exponent) == exponent).any()
    blocks = data.reshape(-1, BLOCK[format][1])
    halves = (np.ascontiguousarray(blocks[:, start : start + 2]).view(np.uint16) for start in _SCALES[format])
    return not any(((half & 0x7C00) == 0x7C00).any() for half in halves)
