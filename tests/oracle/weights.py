"""Tiny models whose weights are made from a seed: the same numbers on every machine, no binary file.

The recipe. The tensor NAME of a model with seed SEED is made from `numpy.random.PCG64([SEED,
crc32(NAME)])`, of which only `random_raw` is used (NumPy promises that stream for good). The top byte of
every 64-bit word, less 128, gives an integer k in -128..127, in row-major order, and

- a norm's weight is j / 128 with j = k >> 2, plus one except for Gemma, whose folders store the weight less
  one;
- a bias is k * 2**-9;
- the embedding is k * 2**-7;
- any other matrix of shape (rows, columns) is k * 2**-e with e = floor(log2(74 * sqrt(columns) / 1.2)), so
  that its output is about as large as its input (74 is the standard deviation of k).

Every weight is thus an integer of at most eight bits times a power of two: exact in float32, float16 and
bfloat16 alike, so one set of expected logits serves all three.
"""

import json
import math
import zlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

FloatArray = npt.NDArray[np.float32]
Shape = tuple[int, ...]


def tensor_shapes(config: Mapping[str, Any]) -> dict[str, Shape]:
    """Names (Hugging Face's) and shapes of all tensors of a model with this config.json."""
    family = config["model_type"]
    width, ffn = config["hidden_size"], config["intermediate_size"]
    head = config.get("head_dim") or width // config["num_attention_heads"]
    query, key = head * config["num_attention_heads"], head * config["num_key_value_heads"]
    qkv_bias = family == "qwen2" or config.get("attention_bias", False)
    output_bias = family != "qwen2" and config.get("attention_bias", False)
    shapes: dict[str, Shape] = {"model.embed_tokens.weight": (config["vocab_size"], width)}
    for layer in range(config["num_hidden_layers"]):
        p = f"model.layers.{layer}."
        for name, rows in (("q_proj", query), ("k_proj", key), ("v_proj", key)):
            shapes[f"{p}self_attn.{name}.weight"] = (rows, width)
            if qkv_bias:
                shapes[f"{p}self_attn.{name}.bias"] = (rows,)
        shapes[f"{p}self_attn.o_proj.weight"] = (width, query)
        if output_bias:
            shapes[f"{p}self_attn.o_proj.bias"] = (width,)
        if family in ("qwen3", "gemma3_text"):
            shapes[f"{p}self_attn.q_norm.weight"] = (head,)
            shapes[f"{p}self_attn.k_norm.weight"] = (head,)
        shapes[f"{p}mlp.gate_proj.weight"] = (ffn, width)
        shapes[f"{p}mlp.up_proj.weight"] = (ffn, width)
        shapes[f"{p}mlp.down_proj.weight"] = (width, ffn)
        norms = ["input_layernorm", "post_attention_layernorm"]
        if family == "gemma3_text":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for name in norms:
            shapes[f"{p}{name}.weight"] = (width,)
    shapes["model.norm.weight"] = (width,)
    if not config["tie_word_embeddings"]:
        shapes["lm_head.weight"] = (config["vocab_size"], width)
    return shapes


def exponent(name: str, shape: Shape) -> int:
    """The e of the recipe: the weights of this tensor are integers times 2**-e."""
    if name.endswith(".bias"):
        return 9
    if name == "model.embed_tokens.weight":
        return 7
    return math.floor(math.log2(74 * math.sqrt(shape[-1]) / 1.2))


def integers(name: str, shape: Shape, seed: int) -> npt.NDArray[np.int64]:
    """The k of the recipe, in -128..127."""
    stream = np.random.PCG64([seed, zlib.crc32(name.encode())])
    raw: npt.NDArray[np.uint64] = np.asarray(stream.random_raw(math.prod(shape)), dtype=np.uint64)
    return (raw >> np.uint64(56)).astype(np.int64).reshape(shape) - 128


def make_weights(config: Mapping[str, Any], seed: int) -> dict[str, FloatArray]:
    """All tensors of a model, by the recipe above."""
    weights: dict[str, FloatArray] = {}
    for name, shape in tensor_shapes(config).items():
        k = integers(name, shape, seed)
        if name.endswith("norm.weight"):
            one = 0.0 if config["model_type"] == "gemma3_text" else 1.0
            weights[name] = (one + (k >> 2) / 128.0).astype(np.float32)
        else:
            weights[name] = (k * 2.0 ** -exponent(name, shape)).astype(np.float32)
    return weights


def encode(values: FloatArray, dtype: str) -> bytes:
    """The bytes of a tensor in a safetensors dtype; raises ValueError where that would change a weight."""
    if dtype == "F32":
        return values.astype("<f4").tobytes()
    if dtype == "F16":
        halves = values.astype("<f2")
        if not np.array_equal(halves.astype(np.float32), values):
            raise ValueError("a weight of the recipe is not exact in float16")
        return halves.tobytes()
    if dtype == "BF16":
        bits = np.ascontiguousarray(values, dtype="<f4").view("<u4")
        if np.any(bits & 0xFFFF):
            raise ValueError("a weight of the recipe is not exact in bfloat16")
        return (bits >> 16).astype("<u2").tobytes()
    raise ValueError(f"unknown dtype {dtype}")


def write_safetensors(path: Path, weights: Mapping[str, FloatArray], *, dtype: str) -> None:
    """Write one safetensors file: eight bytes of header length, the header in JSON, the data."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    chunks, offset = [], 0
    for name, values in weights.items():
        data = encode(values, dtype)
        header[name] = {
            "dtype": dtype,
            "shape": list(values.shape),
            "data_offsets": [offset, offset + len(data)],
        }
        chunks.append(data)
        offset += len(data)
    text = json.dumps(header, separators=(",", ":")).encode()
    text += b" " * (-len(text) % 8)
    path.write_bytes(len(text).to_bytes(8, "little") + text + b"".join(chunks))


def write_folder(
    folder: Path, config: Mapping[str, Any], seed: int, *, dtype: str = "F32", num_shards: int = 1
) -> Path:
    """Write config.json and the weights as transformers' save_pretrained does; return the folder."""
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "config.json").write_text(json.dumps(dict(config), indent=2), encoding="utf-8")
    weights = make_weights(config, seed)
    if num_shards == 1:
        write_safetensors(folder / "model.safetensors", weights, dtype=dtype)
        return folder
    names = list(weights)
    weight_map = {}
    for shard in range(num_shards):
        file_name = f"model-{shard + 1:05d}-of-{num_shards:05d}.safetensors"
        part = {name: weights[name] for name in names[shard::num_shards]}
        write_safetensors(folder / file_name, part, dtype=dtype)
        weight_map.update(dict.fromkeys(part, file_name))
    total = sum(len(encode(values, dtype)) for values in weights.values())
    index = {"metadata": {"total_size": total}, "weight_map": weight_map}
    (folder / "model.safetensors.index.json").write_text(json.dumps(index, indent=2), encoding="utf-8")
    return folder
