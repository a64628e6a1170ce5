"""The tiny models of `weights.py` as GGUF files, written the way llama.cpp's converter writes them.

What differs from the Hugging Face folder: names; the rows of the query and key matrices of the llama family
are reordered (its GGUF files rotate neighbouring pairs); Gemma's norms have the one added; the frequency
factors of llama3's rope scaling are a tensor; and how far back Gemma's local layers rotate and which layers
they are is not in the file but known from the architecture.
"""

import math
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import gguf
import numpy as np
import numpy.typing as npt

from .weights import FloatArray, encode, exponent, integers, make_weights

ARCHITECTURES = {"llama": "llama", "qwen2": "qwen2", "qwen3": "qwen3", "gemma3_text": "gemma3"}
LAYER_NAMES = {
    "self_attn.q_proj": "attn_q",
    "self_attn.k_proj": "attn_k",
    "self_attn.v_proj": "attn_v",
    "self_attn.o_proj": "attn_output",
    "self_attn.q_norm": "attn_q_norm",
    "self_attn.k_norm": "attn_k_norm",
    "mlp.gate_proj": "ffn_gate",
    "mlp.up_proj": "ffn_up",
    "mlp.down_proj": "ffn_down",
    "input_layernorm": "attn_norm",
    "post_attention_layernorm": "ffn_norm",
}
GEMMA_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}


def gguf_name(name: str, architecture: str) -> str:
    """The GGUF name of a Hugging Face tensor."""
    fixed = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in fixed:
        return fixed[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    names = LAYER_NAMES | (GEMMA_NAMES if architecture == "gemma3" else {})
    return f"blk.{layer}.{names[part]}.{kind}"


def interleave(values: npt.NDArray[Any], num_heads: int) -> npt.NDArray[Any]:
    """Reorder the rows of each head from halves (i, i + E/2) to neighbouring pairs (2i, 2i + 1)."""
    rest = values.shape[1:]
    halves = values.reshape(num_heads, 2, values.shape[0] // num_heads // 2, *rest)
    return np.ascontiguousarray(halves.swapaxes(1, 2).reshape(values.shape))


def num_heads_to_interleave(name: str, config: Mapping[str, Any]) -> int | None:
    """How many heads a tensor has whose rows must be reordered, None for all other tensors."""
    if config["model_type"] != "llama":
        return None
    heads = {"q_proj": config["num_attention_heads"], "k_proj": config["num_key_value_heads"]}
    found: int | None = heads.get(name.split(".")[-2])
    return found


def llama3_factors(config: Mapping[str, Any]) -> FloatArray:
    """By how much each rope frequency is divided, as the converter stores it in rope_freqs.weight."""
    scaling = config["rope_scaling"]
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    original = scaling["original_max_position_embeddings"]
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    factors = []
    for i in range(0, head, 2):
        wavelength = 2 * math.pi * config["rope_theta"] ** (i / head)
        smooth = (original / wavelength - low) / (high - low)
        smooth = min(max(smooth, 0.0), 1.0)
        factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def q8_0_bytes(k: npt.NDArray[np.int64], e: int) -> npt.NDArray[np.uint8]:
    """Blocks of 32 weights k * 2**-e: the scale in float16, then the integers. Exact, nothing is rounded."""
    rows, columns = k.shape
    blocks = np.zeros((rows, columns // 32, 34), dtype=np.uint8)
    blocks[..., :2] = np.array([2.0**-e], dtype="<f2").view(np.uint8)
    blocks[..., 2:] = k.astype(np.int8).view(np.uint8).reshape(rows, columns // 32, 32)
    return blocks.reshape(rows, -1)


def add_metadata(writer: gguf.GGUFWriter, config: Mapping[str, Any]) -> None:
    """The hyperparameters, and a vocabulary of single characters and one merge."""
    head = config.get("head_dim") or config["hidden_size"] // config["num_attention_heads"]
    writer.add_context_length(config["max_position_embeddings"])
    writer.add_embedding_length(config["hidden_size"])
    writer.add_block_count(config["num_hidden_layers"])
    writer.add_feed_forward_length(config["intermediate_size"])
    writer.add_head_count(config["num_attention_heads"])
    writer.add_head_count_kv(config["num_key_value_heads"])
    writer.add_key_length(head)
    writer.add_value_length(head)
    writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
    writer.add_rope_freq_base(config["rope_theta"])
    if config["model_type"] == "llama":
        writer.add_rope_dimension_count(head)
    if config["model_type"] == "gemma3_text":
        writer.add_sliding_window(config["sliding_window"])
    scaling = config.get("rope_scaling")
    if scaling and scaling["rope_type"] == "linear":
        writer.add_rope_scaling_type(gguf.RopeScalingType.LINEAR)
        writer.add_rope_scaling_factor(scaling["factor"])
    if scaling and scaling["rope_type"] == "yarn":
        writer.add_rope_scaling_type(gguf.RopeScalingType.YARN)
        writer.add_rope_scaling_factor(scaling["factor"])
        writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
    size = config["vocab_size"]
    writer.add_vocab_size(size)
    writer.add_tokenizer_model("gpt2")
    writer.add_tokenizer_pre("gpt-2")
    characters = [f"<|{i}|>" if i < 3 else chr(ord("!") + i - 3) for i in range(size - 1)]
    writer.add_token_list([*characters, "ab"])
    writer.add_token_types([gguf.TokenType.CONTROL if i < 3 else gguf.TokenType.NORMAL for i in range(size)])
    writer.add_token_merges(["a b"])
    writer.add_bos_token_id(config["bos_token_id"])
    writer.add_eos_token_id(config["eos_token_id"])


def write_gguf(path: Path, config: Mapping[str, Any], seed: int, *, tensor_format: str = "F32") -> Path:
    """Write the model as a GGUF file with its matrices in F32, F16, BF16 or Q8_0; return the path.

    `config` is in the style of transformers 4. The weights stand for the same numbers in every format.
    """
    architecture = ARCHITECTURES[config["model_type"]]
    writer = gguf.GGUFWriter(path, architecture)
    add_metadata(writer, config)
    if (config.get("rope_scaling") or {}).get("rope_type") == "llama3":
        writer.add_tensor("rope_freqs.weight", llama3_factors(config))
    for name, values in make_weights(config, seed).items():
        new_name = gguf_name(name, architecture)
        heads = num_heads_to_interleave(name, config)
        if values.ndim == 1:
            one = 1.0 if architecture == "gemma3" else 0.0
            writer.add_tensor(new_name, values + np.float32(one) if heads is None else interleave(values, heads))
            continue
        if tensor_format == "Q8_0":
            k = integers(name, values.shape, seed)
            raw = q8_0_bytes(k if heads is None else interleave(k, heads), exponent(name, values.shape))
        else:
            data = encode(values if heads is None else interleave(values, heads), tensor_format)
            raw = np.frombuffer(data, dtype=np.uint8).reshape(values.shape[0], -1)
        writer.add_tensor(new_name, raw, raw_dtype=gguf.GGMLQuantizationType[tensor_format])
    writer.write_header_to_file()
    writer.write_kv_data_to_file()
    writer.write_tensors_to_file()
    writer.close()
    return path
