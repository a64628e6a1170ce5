"""Rotary position embeddings: the angle per position of every pair of values in a head.

The formulas are those of `ROPE_INIT_FUNCTIONS` in transformers' modeling_rope_utils.py, in float32. Powers
are computed in float64 and rounded, which is what a correctly rounded float32 power gives.
"""

import math
from dataclasses import dataclass
from typing import Literal

import numpy as np
from numpy.typing import NDArray

Floats = NDArray[np.float32]

Scaling = Literal["none", "linear", "llama3", "yarn"]
Style = Literal["neox", "interleaved"]


@dataclass(frozen=True, kw_only=True)
class RopeConfig:
    """How positions turn queries and keys.

    Attributes:
        base: the longest wavelength is about 2 pi times this.
        dim: how many values of a head are turned; always the width of a head in the supported families.
        style: which values form a pair: "neox" i and i + dim/2, "interleaved" 2i and 2i + 1.
        scaling: how frequencies are stretched beyond the context the model was first trained with.
        factor: by how much they are stretched.
        original_context: the context of that first training (llama3 and yarn).
        low_freq_factor, high_freq_factor: llama3; wavelengths beyond original_context / low_freq_factor are
            stretched whole, those under original_context / high_freq_factor are not.
        beta_fast, beta_slow, truncate: yarn; turns within the original context that bound the ramp between
            unstretched and stretched pairs, and whether the bounds are rounded outwards to whole pairs.
        attention_factor: yarn; what cosine and sine are multiplied with.
        frequency_factors: divisors of the frequencies, one for each pair, that a GGUF file brings
            (`rope_freqs.weight`, which is how llama3 scaling is stored there).
    """

    base: float
    dim: int
    style: Style = "neox"
    scaling: Scaling = "none"
    factor: float = 1.0
    original_context: int = 0
    low_freq_factor: float = 1.0
    high_freq_factor: float = 4.0
    beta_fast: float = 32.0
    beta_slow: float = 1.0
    truncate: bool = True
    attention_factor: float = 1.0
    frequency_factors: tuple[float, ...] | None = None

    @property
    def magnitude(self) -> float:
        """What cosine and sine are multiplied with: 1.0 except for yarn."""
        return self.attention_factor if self.scaling == "yarn" else 1.0

    def inverse_frequencies(self) -> Floats:
        """Radians per position of each pair, float32 of shape [dim / 2]."""
        powers = _powers(self.base, self.dim)
        if self.frequency_factors is not None:
            powers = powers * np.array(self.frequency_factors, dtype=np.float32)
        one = np.float32(1.0)
        if self.scaling == "none":
            return one / powers
        if self.scaling == "linear":
            return one / powers / np.float32(self.factor)
        if self.scaling == "llama3":
            return self._llama3(one / powers)
        return self._yarn(powers)

    def _llama3(self, frequencies: Floats) -> Floats:
        """Source: `_compute_llama3_parameters`, after Meta's llama-models `apply_scaling`."""
        low, high, factor = self.low_freq_factor, self.high_freq_factor, np.float32(self.factor)
        wavelengths = np.float32(2 * math.pi) / frequencies
        smooth = (np.float32(self.original_context) / wavelengths - np.float32(low)) / np.float32(high - low)
        smoothed = (np.float32(1.0) - smooth) * frequencies / factor + smooth * frequencies
        out = np.where(wavelengths < self.original_context / high, frequencies, smoothed)
        out = np.where(wavelengths > self.original_context / low, frequencies / factor, out)
        return np.asarray(out, dtype=np.float32)

    def _yarn(self, powers: Floats) -> Floats:
        """Source: `_compute_yarn_parameters`, after Peng et al. 2023, "YaRN", section 3.2."""
        low = _correction_dim(self.beta_fast, self)
        high = _correction_dim(self.beta_slow, self)
        if self.truncate:
            low, high = math.floor(low), math.ceil(high)
        low, high = max(low, 0), min(high, self.dim - 1)
        if low == high:
            high += 0.001
        pairs = np.arange(self.dim // 2, dtype=np.float32)
        ramp = np.clip((pairs - np.float32(low)) / np.float32(high - low), np.float32(0.0), np.float32(1.0))
        one = np.float32(1.0)
        unstretched = one - ramp
        stretched_frequencies = one / (np.float32(self.factor) * powers)
        frequencies: Floats = stretched_frequencies * (one - unstretched) + one / powers * unstretched
        return frequencies


def yarn_attention_factor(factor: float, mscale: float = 1.0, mscale_all_dim: float = 0.0) -> float:
    """The default of `attention_factor`, and DeepSeek's variant of it when both `mscale` values are given."""

    def scale(weight: float) -> float:
        return 1.0 if factor <= 1 else 0.1 * weight * math.log(factor) + 1.0

    if mscale and mscale_all_dim:
        return scale(mscale) / scale(mscale_all_dim)
    return scale(1.0)


def _powers(base: float, dim: int) -> Floats:
    exponents = np.arange(0, dim, 2).astype(np.float32) / np.float32(dim)
    base = float(np.float32(base))
    return np.array([math.pow(base, float(exponent)) for exponent in exponents], dtype=np.float32)


def _correction_dim(num_turns: float, rope: RopeConfig) -> float:
    """The pair that turns `num_turns` times within the original context, as a real number."""
    turns = math.log(rope.original_context / (num_turns * 2 * math.pi))
    return rope.dim * turns / (2 * math.log(rope.base))
