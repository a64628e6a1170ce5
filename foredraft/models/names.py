"""What Hugging Face folders call the tensors that GGUF files, and foredraft, name differently."""

import re

_WHOLE = {
    "token_embd.weight": "model.embed_tokens.weight",
    "output_norm.weight": "model.norm.weight",
    "output.weight": "lm_head.weight",
}
_LAYER = {
    "attn_norm": "input_layernorm",
    "attn_q": "self_attn.q_proj",
    "attn_k": "self_attn.k_proj",
    "attn_v": "self_attn.v_proj",
    "attn_output": "self_attn.o_proj",
    "attn_q_norm": "self_attn.q_norm",
    "attn_k_norm": "self_attn.k_norm",
    "ffn_norm": "post_attention_layernorm",
    "ffn_gate": "mlp.gate_proj",
    "ffn_up": "mlp.up_proj",
    "ffn_down": "mlp.down_proj",
}
# In gemma the norm after attention is applied to its output, and the feed-forward network has norms of its
# own.
_GEMMA3_LAYER = {
    "post_attention_norm": "post_attention_layernorm",
    "ffn_norm": "pre_feedforward_layernorm",
    "post_ffw_norm": "post_feedforward_layernorm",
}
_LAYER_NAME = re.compile(r"blk\.(\d+)\.(\w+)\.(weight|bias)")
# Multimodal models keep the language model under a name of its own; where depends on the version that saved
# them.
_PREFIXES = (
    ("language_model.model.", "model."),
    ("model.language_model.", "model."),
    ("language_model.lm_head.", "lm_head."),
)


def folder_name(name: str, architecture: str) -> str:
    """The Hugging Face name of a tensor with this GGUF-style name, in a model of text only."""
    if name in _WHOLE:
        return _WHOLE[name]
    match = _LAYER_NAME.fullmatch(name)
    if match is None:
        raise ValueError(f"not the name of a tensor of a decoder: {name!r}")
    layer, part, kind = match.groups()
    names = _LAYER | (_GEMMA3_LAYER if architecture == "gemma3" else {})
    return f"model.layers.{layer}.{names[part]}.{kind}"


def text_model_name(name: str) -> str:
    """The name a tensor of a multimodal folder has in a model of text only; other names as they are."""
    for prefix, plain in _PREFIXES:
        if name.startswith(prefix):
            return plain + name.removeprefix(prefix)
    return name
