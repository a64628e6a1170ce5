"""What a model is, apart from its weights: the one description that all sources are brought to."""

import math
from dataclasses import dataclass
from typing import Literal

from foredraft.models.rope import RopeConfig

ARCHITECTURES = ("llama", "qwen2", "qwen3", "gemma3")
MAX_LAYERS = 1024
"""Far above any real model: a file that claims more is damaged."""

Activation = Literal["silu", "gelu_tanh"]


@dataclass(frozen=True, kw_only=True)
class ModelConfig:
    """Sizes and traits of a model. Widths count values, counts are `num_*`.

    Attributes:
        architecture: one of `ARCHITECTURES`.
        num_layers, model_width, ffn_width, num_heads, num_kv_heads, head_width: as named.
        vocab_size: rows of the embedding, which may be more than the tokenizer has tokens.
        context_length: how many tokens the model was made for.
        norm_epsilon: what RMS norms add to the mean square.
        rope: positions of full-attention layers, and of sliding layers when `local_rope` is None.
        local_rope: positions of sliding-window layers (gemma3).
        sliding_window: a query in a sliding layer sees itself and the `sliding_window - 1` tokens before it.
        window_layers: for each layer whether its attention slides.
        activation: of the gated feed-forward network.
        tied_embeddings: the output matrix is the embedding; there is no `output.weight`.
        qk_norm: queries and keys of each head are RMS-normed before they are turned.
        attention_bias: queries, keys and values have biases.
        attention_output_bias: so has the output of attention (`attn_output.bias`).
        post_norms: the outputs of attention and feed-forward network are normed before they are added.
        norm_weight_plus_one: norms multiply with 1 + weight (gemma3 folders; a GGUF file stores the sum).
        embedding_scale: embeddings are multiplied with this, a float32 value.
        attention_scale: scores are multiplied with this.
        logit_softcap, attention_softcap: x -> cap * tanh(x / cap) on logits and on scores, where not None.
    """

    architecture: str
    num_layers: int
    model_width: int
    ffn_width: int
    num_heads: int
    num_kv_heads: int
    head_width: int
    vocab_size: int
    context_length: int
    norm_epsilon: float
    rope: RopeConfig
    local_rope: RopeConfig | None = None
    sliding_window: int | None = None
    window_layers: tuple[bool, ...]
    activation: Activation = "silu"
    tied_embeddings: bool = False
    qk_norm: bool = False
    attention_bias: bool = False
    attention_output_bias: bool = False
    post_norms: bool = False
    norm_weight_plus_one: bool = False
    embedding_scale: float = 1.0
    attention_scale: float
    logit_softcap: float | None = None
    attention_softcap: float | None = None

    def rope_of_layer(self, layer: int) -> RopeConfig:
        """The positions that layer number `layer` uses."""
        if self.window_layers[layer] and self.local_rope is not None:
            return self.local_rope
        return self.rope

    def tensor_shapes(self) -> dict[str, tuple[int, ...]]:
        """Every tensor the model needs, by its GGUF-style name, with its shape (a matrix is (out, in))."""
        width, head = self.model_width, self.head_width
        shapes: dict[str, tuple[int, ...]] = {
            "token_embd.weight": (self.vocab_size, width),
            "output_norm.weight": (width,),
        }
        if not self.tied_embeddings:
            shapes["output.weight"] = (self.vocab_size, width)
        query_rows, key_rows = self.num_heads * head, self.num_kv_heads * head
        layer: dict[str, tuple[int, ...]] = {
            "attn_norm.weight": (width,),
            "attn_q.weight": (query_rows, width),
            "attn_k.weight": (key_rows, width),
            "attn_v.weight": (key_rows, width),
            "attn_output.weight": (width, query_rows),
            "ffn_norm.weight": (width,),
            "ffn_gate.weight": (self.ffn_width, width),
            "ffn_up.weight": (self.ffn_width, width),
            "ffn_down.weight": (width, self.ffn_width),
        }
        if self.attention_bias:
            layer |= {"attn_q.bias": (query_rows,), "attn_k.bias": (key_rows,), "attn_v.bias": (key_rows,)}
        if self.attention_output_bias:
            layer["attn_output.bias"] = (width,)
        if self.qk_norm:
            layer |= {"attn_q_norm.weight": (head,), "attn_k_norm.weight": (head,)}
        if self.post_norms:
            layer |= {"post_attention_norm.weight": (width,), "post_ffw_norm.weight": (width,)}
        for index in range(self.num_layers):
            shapes |= {f"blk.{index}.{name}": shape for name, shape in layer.items()}
        return shapes


def attention_scale(width: float) -> float:
    """What attention scores are multiplied with when they are scaled for keys of this width."""
    return 1.0 / math.sqrt(width)
