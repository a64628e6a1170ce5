"""Write rope_expected.json: inverse frequencies and magnitudes that transformers computes.

Not run by the tests: it needs torch and transformers. Made with torch 2.13.0 (CPU) and transformers 5.24.0.
"""

import json
from pathlib import Path
from typing import Any

from transformers import AutoConfig
from transformers.models.gemma3.modeling_gemma3 import Gemma3RotaryEmbedding
from transformers.models.llama.modeling_llama import LlamaRotaryEmbedding

LLAMA: dict[str, Any] = {
    "model_type": "llama",
    "architectures": ["LlamaForCausalLM"],
    "vocab_size": 96,
    "hidden_size": 256,
    "intermediate_size": 160,
    "num_hidden_layers": 2,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 131072,
}
GEMMA3: dict[str, Any] = LLAMA | {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "head_dim": 256,
    "num_hidden_layers": 6,
    "sliding_window": 512,
}
LLAMA3 = {
    "rope_type": "llama3",
    "factor": 32.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 8192,
}
YARN = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 32768}
CASES: dict[str, dict[str, Any]] = {
    "default": LLAMA,
    "base and width": LLAMA | {"rope_theta": 1000000.0, "head_dim": 128},
    "base in rope_parameters": LLAMA | {"rope_parameters": {"rope_type": "default", "rope_theta": 500000.0}},
    "linear": LLAMA | {"rope_scaling": {"type": "linear", "factor": 3.0}},
    "llama3": LLAMA | {"rope_theta": 500000.0, "rope_scaling": LLAMA3},
    "llama3 in rope_parameters": LLAMA | {"rope_parameters": LLAMA3 | {"rope_theta": 500000.0, "factor": 8.0}},
    "yarn": LLAMA | {"rope_theta": 1000000.0, "rope_scaling": YARN},
    "yarn of a small model": LLAMA | {"rope_scaling": YARN | {"original_max_position_embeddings": 16}},
    "yarn with betas": LLAMA | {"rope_scaling": YARN | {"beta_fast": 16.0, "beta_slow": 2.0}},
    "yarn not truncated": LLAMA | {"rope_scaling": YARN | {"truncate": False}},
    "yarn with an attention factor": LLAMA | {"rope_scaling": YARN | {"attention_factor": 0.8}},
    "yarn with mscale": LLAMA | {"rope_scaling": YARN | {"mscale": 1.5, "mscale_all_dim": 0.7}},
    "yarn with one mscale": LLAMA | {"rope_scaling": YARN | {"mscale": 1.5}},
    "yarn without a context": LLAMA | {"rope_scaling": {"rope_type": "yarn", "factor": 2.0}},
    "gemma3": GEMMA3,
    "gemma3 of 4B": GEMMA3
    | {
        "rope_theta": 1000000.0,
        "rope_local_base_freq": 10000.0,
        "rope_scaling": {"rope_type": "linear", "factor": 8.0},
    },
    "gemma3 with rope_parameters": GEMMA3
    | {
        "rope_parameters": {
            "full_attention": {"rope_type": "linear", "factor": 8.0, "rope_theta": 2000000.0},
            "sliding_attention": {"rope_type": "default", "rope_theta": 20000.0},
        }
    },
}


def bits(frequencies: Any) -> list[int]:
    """Float32 values as whole numbers, so that nothing is lost."""
    return [int(value) for value in frequencies.numpy().view("uint32")]


def expected(config: dict[str, Any]) -> dict[str, Any]:
    """Frequencies and magnitude of full attention, and of sliding attention where there is such."""
    values = json.loads(json.dumps(config))
    model_config = AutoConfig.for_model(values.pop("model_type"), **values)
    if config["model_type"] == "llama":
        rope = LlamaRotaryEmbedding(model_config)
        return {"full": bits(rope.inv_freq), "full_magnitude": rope.attention_scaling}
    rope = Gemma3RotaryEmbedding(model_config)
    return {
        "full": bits(rope.full_attention_inv_freq),
        "full_magnitude": rope.full_attention_attention_scaling,
        "sliding": bits(rope.sliding_attention_inv_freq),
        "sliding_magnitude": rope.sliding_attention_attention_scaling,
    }


def main() -> None:
    """Write the file."""
    cases = {name: {"config": config} | expected(config) for name, config in CASES.items()}
    lines = (f"{json.dumps(name)}: {json.dumps(case)}" for name, case in cases.items())
    Path(__file__).with_name("rope_expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n")


if __name__ == "__main__":
    main()
