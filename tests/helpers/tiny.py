"""Tiny models of random weights, of every family, as a folder and as a GGUF file with the same numbers.

    TinyModel(family="qwen2", seed=1).write_folder(tmp_path / "model", dtype="BF16")
    TinyModel(family="llama", width=256, ffn_width=512).write_gguf(tmp_path / "model.gguf", format="Q4_K")

Both come with a byte-level BPE tokenizer of 275 tokens and a ChatML template.
"""

import json
import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from gguf import GGMLQuantizationType, GGUFWriter, RopeScalingType, TokenType

from foredraft.kernels.formats import dequantize
from foredraft.models.names import folder_name
from foredraft.models.source import ModelSource
from helpers.quantise import quantise

Floats = npt.NDArray[np.float32]

FAMILIES = ("llama", "qwen2", "qwen3", "gemma3")
_CLASSES = {
    "llama": "LlamaForCausalLM",
    "qwen2": "Qwen2ForCausalLM",
    "qwen3": "Qwen3ForCausalLM",
    "gemma3": "Gemma3ForCausalLM",
}
_LAYER_NAMES = {
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
_GEMMA3_NAMES = {
    "post_attention_layernorm": "post_attention_norm",
    "pre_feedforward_layernorm": "ffn_norm",
    "post_feedforward_layernorm": "post_ffw_norm",
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 64,
}
"""A rope scaling that is felt within the context of a tiny model."""
SPECIAL_TOKENS = ("<|endoftext|>", "<|im_start|>", "<|im_end|>")
_MERGES = [
    "t h",
    "th e",
    "Ġ t",
    "Ġ a",
    "i n",
    "e r",
    "o n",
    "Ġ the",
    "a n",
    "r e",
    "Ġ w",
    "Ġ s",
    "e s",
    "o r",
    "n d",
    "Ġa nd",
]
CHAT_TEMPLATE = (
    "{% for message in messages %}{{ '<|im_start|>' + message['role'] + '\\n' + message['content'] + "
    "'<|im_end|>\\n' }}{% endfor %}{% if add_generation_prompt %}{{ '<|im_start|>assistant\\n' }}{% endif %}"
)


def byte_characters() -> list[str]:
    """GPT-2's printable character for each byte, in the order of the bytes."""
    kept = [*range(33, 127), *range(161, 173), *range(174, 256)]
    others = iter(range(256, 512))
    return [chr(byte) if byte in kept else chr(next(others)) for byte in range(256)]


def vocabulary() -> list[str]:
    """All tokens: the bytes, the merges, the special tokens."""
    return [*byte_characters(), *(merge.replace(" ", "") for merge in _MERGES), *SPECIAL_TOKENS]


@dataclass(frozen=True, kw_only=True)
class TinyModel:
    """Sizes and traits; `rope_scaling` is that of config.json, `attention_bias` applies to llama and
    qwen3."""

    family: str = "llama"
    num_layers: int = 2
    width: int = 64
    ffn_width: int = 128
    num_heads: int = 4
    num_kv_heads: int = 2
    head_width: int = 16
    vocab_size: int = 288
    context_length: int = 256
    tied: bool = False
    attention_bias: bool = False
    rope_scaling: Mapping[str, Any] | None = None
    sliding_window: int = 8
    seed: int = 0

    def config(self) -> dict[str, Any]:
        """What stands in config.json."""
        end = vocabulary().index("<|endoftext|>")
        config: dict[str, Any] = {
            "architectures": [_CLASSES[self.family]],
            "model_type": "gemma3_text" if self.family == "gemma3" else self.family,
            "vocab_size": self.vocab_size,
            "hidden_size": self.width,
            "intermediate_size": self.ffn_width,
            "num_hidden_layers": self.num_layers,
            "num_attention_heads": self.num_heads,
            "num_key_value_heads": self.num_kv_heads,
            "head_dim": self.head_width,
            "max_position_embeddings": self.context_length,
            "rms_norm_eps": 1e-6,
            "rope_theta": 10000.0,
            "rope_scaling": dict(self.rope_scaling) if self.rope_scaling else None,
            "tie_word_embeddings": self.tied,
            "bos_token_id": end,
            "eos_token_id": end,
            "torch_dtype": "float32",
        }
        if self.family == "gemma3":
            return config | {
                "hidden_activation": "gelu_pytorch_tanh",
                "query_pre_attn_scalar": self.head_width,
                "sliding_window": self.sliding_window,
                "sliding_window_pattern": 6,
                "rope_theta": 1000000.0,
                "rope_local_base_freq": 10000.0,
            }
        return config | {"hidden_act": "silu", "attention_bias": self.attention_bias}

    def weights(self) -> dict[str, Floats]:
        """Hugging Face name -> values; matrices keep the size of what they multiply about the same."""
        random = np.random.default_rng(self.seed)
        plus_one = self.family == "gemma3"
        weights: dict[str, Floats] = {}
        for name, shape in self._shapes().items():
            values = random.standard_normal(shape, dtype=np.float32)
            if "norm" in name:
                values = np.float32(0.1) * values + np.float32(0.0 if plus_one else 1.0)
            elif name.endswith(".bias"):
                values = np.float32(0.1) * values
            elif "embed_tokens" in name:
                values = values * np.float32(1 / math.sqrt(self.width) if plus_one else 0.3 if self.tied else 1.0)
            else:
                values = values * np.float32((2 if name.startswith("lm_head") else 1) / math.sqrt(shape[-1]))
            weights[name] = values
        return weights

    def _shapes(self) -> dict[str, tuple[int, ...]]:
        query, key = self.num_heads * self.head_width, self.num_kv_heads * self.head_width
        shapes: dict[str, tuple[int, ...]] = {"model.embed_tokens.weight": (self.vocab_size, self.width)}
        bias = self.attention_bias and self.family in ("llama", "qwen3")
        norms = ["input_layernorm", "post_attention_layernorm"]
        if self.family == "gemma3":
            norms += ["pre_feedforward_layernorm", "post_feedforward_layernorm"]
        for layer in range(self.num_layers):
            p = f"model.layers.{layer}."
            shapes |= {f"{p}{norm}.weight": (self.width,) for norm in norms}
            for name, rows in (("q_proj", query), ("k_proj", key), ("v_proj", key)):
                shapes[f"{p}self_attn.{name}.weight"] = (rows, self.width)
                if bias or self.family == "qwen2":
                    shapes[f"{p}self_attn.{name}.bias"] = (rows,)
            shapes[f"{p}self_attn.o_proj.weight"] = (self.width, query)
            if bias:
                shapes[f"{p}self_attn.o_proj.bias"] = (self.width,)
            if self.family in ("qwen3", "gemma3"):
                shapes[f"{p}self_attn.q_norm.weight"] = (self.head_width,)
                shapes[f"{p}self_attn.k_norm.weight"] = (self.head_width,)
            shapes[f"{p}mlp.gate_proj.weight"] = (self.ffn_width, self.width)
            shapes[f"{p}mlp.up_proj.weight"] = (self.ffn_width, self.width)
            shapes[f"{p}mlp.down_proj.weight"] = (self.width, self.ffn_width)
        shapes["model.norm.weight"] = (self.width,)
        if not self.tied:
            shapes["lm_head.weight"] = (self.vocab_size, self.width)
        return shapes

    def write_folder(self, path: Path, *, dtype: str = "F32", num_shards: int = 1) -> Path:
        """Write the model as a folder with F32, F16 or BF16 weights; return it."""
        path.mkdir(parents=True, exist_ok=True)
        (path / "config.json").write_text(json.dumps(self.config(), indent=1))
        write_shards(path, self.weights(), dtype=dtype, num_shards=num_shards)
        write_tokenizer(path)
        return path

    def write_gguf(self, path: Path, *, format: str | Callable[[str], str] = "F32") -> Path:
        """Write the model as a GGUF file, as llama.cpp's converter does; return the path.

        `format` is that of the matrices, or a function from the GGUF name of a matrix to its format.
        """
        writer = GGUFWriter(path, self.family)
        self.add_metadata(writer)
        for name, values in self.weights().items():
            self._add_tensor(writer, name, values, format)
        if self.rope_scaling and self.rope_scaling["rope_type"] == "llama3":
            writer.add_tensor("rope_freqs.weight", llama3_factors(self.rope_scaling, self.head_width))
        writer.write_header_to_file()
        writer.write_kv_data_to_file()
        writer.write_tensors_to_file()
        writer.close()
        return path

    def _add_tensor(self, writer: GGUFWriter, name: str, values: Floats, format: str | Callable[[str], str]) -> None:
        new_name = gguf_name(name, self.family)
        if self.family == "llama" and ".q_proj." in name:
            values = interleave(values, self.num_heads)
        if self.family == "llama" and ".k_proj." in name:
            values = interleave(values, self.num_kv_heads)
        if self.family == "gemma3" and "norm" in name:
            values = values + np.float32(1.0)
        chosen = "F32" if values.ndim == 1 else format if isinstance(format, str) else format(new_name)
        writer.add_tensor(new_name, quantise(values, chosen), raw_dtype=GGMLQuantizationType[chosen])

    def add_metadata(self, writer: GGUFWriter) -> None:
        """Give a GGUF file all metadata of the model and its tokenizer."""
        config = self.config()
        writer.add_context_length(self.context_length)
        writer.add_embedding_length(self.width)
        writer.add_block_count(self.num_layers)
        writer.add_feed_forward_length(self.ffn_width)
        writer.add_head_count(self.num_heads)
        writer.add_head_count_kv(self.num_kv_heads)
        writer.add_key_length(self.head_width)
        writer.add_value_length(self.head_width)
        writer.add_layer_norm_rms_eps(config["rms_norm_eps"])
        writer.add_rope_freq_base(config["rope_theta"])
        if self.family == "gemma3":
            writer.add_sliding_window(self.sliding_window)
        scaling = self.rope_scaling or {"rope_type": "default"}
        if scaling["rope_type"] in ("linear", "yarn"):
            writer.add_rope_scaling_type(RopeScalingType(scaling["rope_type"]))
            writer.add_rope_scaling_factor(scaling["factor"])
        if scaling["rope_type"] == "yarn":
            writer.add_rope_scaling_orig_ctx_len(scaling["original_max_position_embeddings"])
        tokens = vocabulary()
        writer.add_tokenizer_model("gpt2")
        writer.add_tokenizer_pre("gpt-2")
        writer.add_token_list(tokens)
        types = [TokenType.CONTROL if token in SPECIAL_TOKENS else TokenType.NORMAL for token in tokens]
        writer.add_token_types(types)
        writer.add_token_merges(_MERGES)
        writer.add_bos_token_id(config["bos_token_id"])
        writer.add_eos_token_id(config["eos_token_id"])
        writer.add_add_bos_token(False)
        writer.add_chat_template(CHAT_TEMPLATE)


def gguf_name(name: str, family: str) -> str:
    """The GGUF name of a Hugging Face tensor."""
    whole = {
        "model.embed_tokens.weight": "token_embd.weight",
        "model.norm.weight": "output_norm.weight",
        "lm_head.weight": "output.weight",
    }
    if name in whole:
        return whole[name]
    _, _, layer, rest = name.split(".", 3)
    part, _, kind = rest.rpartition(".")
    names = _LAYER_NAMES | (_GEMMA3_NAMES if family == "gemma3" else {})
    return f"blk.{layer}.{names[part]}.{kind}"


def interleave(values: Floats, num_heads: int) -> Floats:
    """Reorder the rows of each head from halves (i, i + E/2) to pairs (2i, 2i + 1), as the converter does."""
    halves = values.reshape(num_heads, 2, -1, *values.shape[1:])
    return np.ascontiguousarray(halves.swapaxes(1, 2)).reshape(values.shape)


def uninterleave(values: Floats, num_heads: int) -> Floats:
    """Undo `interleave`."""
    pairs = values.reshape(num_heads, -1, 2, *values.shape[1:])
    return np.ascontiguousarray(pairs.swapaxes(1, 2)).reshape(values.shape)


def dequantised(source: ModelSource, *, num_layers: int) -> dict[str, Floats]:
    """The weights of the first layers of an opened GGUF file, as a Hugging Face folder has them."""
    config = replace(source.config, num_layers=num_layers, window_layers=source.config.window_layers[:num_layers])
    heads = {"attn_q": config.num_heads, "attn_k": config.num_kv_heads}
    weights: dict[str, Floats] = {}
    for name in config.tensor_shapes():
        tensor = source.tensors[name]
        values = dequantize(tensor.data, tensor.format, tensor.shape)
        part = name.split(".")[-2]
        if config.rope.style == "interleaved" and part in heads:
            values = uninterleave(values, heads[part])
        if config.architecture == "gemma3" and "norm" in name:
            values = values - np.float32(1.0)
        weights[folder_name(name, config.architecture)] = values
    return weights


def llama3_factors(scaling: Mapping[str, Any], head_width: int, base: float = 10000.0) -> Floats:
    """The `rope_freqs.weight` that llama.cpp's converter writes for llama3 scaling."""
    factors = []
    low, high = scaling["low_freq_factor"], scaling["high_freq_factor"]
    context = scaling["original_max_position_embeddings"]
    for pair in range(head_width // 2):
        wavelength = 2 * math.pi * base ** (2 * pair / head_width)
        if wavelength < context / high:
            factors.append(1.0)
        elif wavelength > context / low:
            factors.append(scaling["factor"])
        else:
            smooth = (context / wavelength - low) / (high - low)
            factors.append(1 / ((1 - smooth) / scaling["factor"] + smooth))
    return np.array(factors, dtype=np.float32)


def encode(values: Floats, dtype: str) -> bytes:
    """Values as F32, F16 or BF16, little endian."""
    if dtype == "BF16":
        bits = values.astype("<f4").view("<u4")
        return bytes(((bits + 0x7FFF + ((bits >> 16) & 1)) >> 16).astype("<u2").tobytes())
    return values.astype({"F32": "<f4", "F16": "<f2"}[dtype]).tobytes()


def safetensors_bytes(weights: Mapping[str, Floats], *, dtype: str) -> bytes:
    """A safetensors file, laid out as the safetensors library does it."""
    header: dict[str, Any] = {"__metadata__": {"format": "pt"}}
    content: list[bytes] = []
    end = 0
    for name, values in weights.items():
        content.append(encode(values, dtype))
        places = [end, end := end + len(content[-1])]
        header[name] = {"dtype": dtype, "shape": list(values.shape), "data_offsets": places}
    text = json.dumps(header).encode()
    text += b" " * (-len(text) % 8)
    return len(text).to_bytes(8, "little") + text + b"".join(content)


def write_shards(path: Path, weights: Mapping[str, Floats], *, dtype: str, num_shards: int = 1) -> None:
    """Write safetensors files, and an index when there are several."""
    names = list(weights)
    weight_map: dict[str, str] = {}
    for shard in range(num_shards):
        numbers = f"-{shard + 1:05d}-of-{num_shards:05d}" if num_shards > 1 else ""
        file = f"model{numbers}.safetensors"
        chosen = names[shard::num_shards]
        (path / file).write_bytes(safetensors_bytes({name: weights[name] for name in chosen}, dtype=dtype))
        weight_map |= dict.fromkeys(chosen, file)
    if num_shards > 1:
        index = {"metadata": {}, "weight_map": weight_map}
        (path / "model.safetensors.index.json").write_text(json.dumps(index))


def write_tokenizer(path: Path) -> None:
    """Write tokenizer.json and tokenizer_config.json."""
    from tokenizers import AddedToken, Tokenizer, decoders, models, pre_tokenizers

    tokens = vocabulary()
    vocab = {token: index for index, token in enumerate(tokens) if token not in SPECIAL_TOKENS}
    merges = [(left, right) for left, right in (merge.split(" ") for merge in _MERGES)]
    tokenizer = Tokenizer(models.BPE(vocab=vocab, merges=merges))
    tokenizer.pre_tokenizer = pre_tokenizers.ByteLevel(add_prefix_space=False)
    tokenizer.decoder = decoders.ByteLevel()
    tokenizer.add_special_tokens([AddedToken(token, special=True, normalized=False) for token in SPECIAL_TOKENS])
    tokenizer.save(str(path / "tokenizer.json"))
    settings = {
        "tokenizer_class": "PreTrainedTokenizerFast",
        "eos_token": "<|endoftext|>",
        "bos_token": None,
        "add_bos_token": False,
        "chat_template": CHAT_TEMPLATE,
    }
    (path / "tokenizer_config.json").write_text(json.dumps(settings))
