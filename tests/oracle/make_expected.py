"""Write expected.json: logits that transformers computes for tiny models of every family.

Not run by the tests: it needs torch and transformers. Made with torch 2.13.0 (CPU) and transformers 5.24.0
by, from the folder `tests`:

    python -m oracle.make_expected

Every case is computed from a folder with the config in the style of transformers 4 and again from one in
the style of transformers 5 (`rope_parameters`); both must give the same logits. It then changes one thing
about each case (a rope base, a window ...) and asserts that the logits move by more than ten times the
tests' tolerance, so that the expected values can tell a wrong implementation from a right one.
"""

import json
import sys
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from .weights import make_weights, tensor_shapes, write_folder

POSITIONS = (0, 13, 26, 39)
NUM_TOKENS = 40
TOLERANCE = 1e-3

SMALL: dict[str, Any] = {
    "vocab_size": 96,
    "hidden_size": 64,
    "intermediate_size": 160,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "max_position_embeddings": 256,
    "rms_norm_eps": 1e-5,
    "rope_theta": 10000.0,
    "tie_word_embeddings": False,
    "torch_dtype": "float32",
    "bos_token_id": 1,
    "eos_token_id": 2,
}
LLAMA = SMALL | {"model_type": "llama", "architectures": ["LlamaForCausalLM"], "hidden_act": "silu"}
QWEN2 = SMALL | {"model_type": "qwen2", "architectures": ["Qwen2ForCausalLM"], "hidden_act": "silu"}
QWEN3 = SMALL | {"model_type": "qwen3", "architectures": ["Qwen3ForCausalLM"], "hidden_act": "silu"}
GEMMA3 = SMALL | {
    "model_type": "gemma3_text",
    "architectures": ["Gemma3ForCausalLM"],
    "hidden_activation": "gelu_pytorch_tanh",
    "tie_word_embeddings": True,
    "num_hidden_layers": 7,
    "head_dim": 32,
    "query_pre_attn_scalar": 24,
    "sliding_window": 8,
    "sliding_window_pattern": 6,
    "rope_theta": 1000000.0,
    "rope_local_base_freq": 10000.0,
    "rms_norm_eps": 1e-6,
}
LLAMA3_ROPE = {
    "rope_type": "llama3",
    "factor": 8.0,
    "low_freq_factor": 1.0,
    "high_freq_factor": 4.0,
    "original_max_position_embeddings": 32,
}
YARN_ROPE = {"rope_type": "yarn", "factor": 4.0, "original_max_position_embeddings": 1024}

CASES: dict[str, dict[str, Any]] = {
    "llama": LLAMA,
    "llama-odd-sizes": LLAMA
    | {
        "vocab_size": 97,
        "hidden_size": 72,
        "intermediate_size": 100,
        "num_attention_heads": 3,
        "num_key_value_heads": 1,
    },
    "llama-tied-linear": LLAMA | {"tie_word_embeddings": True, "rope_scaling": {"rope_type": "linear", "factor": 4.0}},
    "llama-bias-llama3": LLAMA | {"attention_bias": True, "rope_scaling": LLAMA3_ROPE},
    "llama-yarn": LLAMA | {"head_dim": 32, "max_position_embeddings": 4096, "rope_scaling": YARN_ROPE},
    "qwen2-tied": QWEN2 | {"tie_word_embeddings": True, "rms_norm_eps": 1e-6},
    "qwen2-window": QWEN2 | {"use_sliding_window": True, "sliding_window": 8, "max_window_layers": 1},
    "qwen3-tied": QWEN3 | {"head_dim": 32, "tie_word_embeddings": True},
    "qwen3-bias-yarn": QWEN3
    | {
        "head_dim": 16,
        "attention_bias": True,
        "max_position_embeddings": 4096,
        "rope_scaling": YARN_ROPE,
    },
    "gemma3": GEMMA3,
    "gemma3-linear": GEMMA3 | {"query_pre_attn_scalar": 32, "rope_scaling": {"rope_type": "linear", "factor": 8.0}},
}

# What a careless implementation would do: name of the case, change to its config.
MISTAKES: dict[str, list[dict[str, Any]]] = {
    "llama": [{"rope_theta": 500000.0}, {"rms_norm_eps": 1e-1}],
    "llama-odd-sizes": [{"rope_theta": 500000.0}],
    "llama-tied-linear": [{"rope_scaling": None}],
    "llama-bias-llama3": [{"rope_scaling": None}, {"rope_scaling": LLAMA3_ROPE | {"high_freq_factor": 8.0}}],
    "llama-yarn": [
        {"rope_scaling": None},
        {"rope_scaling": YARN_ROPE | {"attention_factor": 1.0}},
        {"rope_scaling": YARN_ROPE | {"beta_fast": 16.0}},
        {"rope_scaling": YARN_ROPE | {"truncate": False}},
    ],
    "qwen2-tied": [{"rope_theta": 500000.0}],
    "qwen2-window": [{"sliding_window": 9}, {"max_window_layers": 0}],
    "qwen3-tied": [{"rope_theta": 500000.0}],
    "qwen3-bias-yarn": [{"rope_scaling": YARN_ROPE | {"attention_factor": 1.0}}],
    "gemma3": [
        {"sliding_window": 9},
        {"sliding_window_pattern": 7},
        {"query_pre_attn_scalar": 32},
        {"rope_local_base_freq": 1000000.0},
        {"rope_theta": 10000.0},
        {"hidden_activation": "silu"},
    ],
    "gemma3-linear": [{"rope_scaling": None}],
}


def logits_of(config: dict[str, Any], seed: int, token_ids: list[int]) -> np.ndarray[Any, Any]:
    """transformers' float32 logits of the whole sequence, [S, V]."""
    with tempfile.TemporaryDirectory() as folder:
        write_folder(Path(folder), config, seed)
        model, info = AutoModelForCausalLM.from_pretrained(
            folder, dtype=torch.float32, attn_implementation="eager", output_loading_info=True
        )
    assert not any(info[key] for key in ("missing_keys", "unexpected_keys", "mismatched_keys")), info
    names = {name: tuple(t.shape) for name, t in model.state_dict().items()}
    if config["tie_word_embeddings"]:
        names.pop("lm_head.weight", None)
    assert names == tensor_shapes(config), set(names) ^ set(tensor_shapes(config))
    ours = make_weights(config, seed)
    assert all(np.array_equal(t.numpy(), ours[n]) for n, t in model.state_dict().items() if n in ours)
    model.eval()
    with torch.no_grad():
        logits: np.ndarray[Any, Any] = model(torch.tensor([token_ids])).logits[0].numpy()
    return logits


def relative_error(actual: np.ndarray[Any, Any], expected: np.ndarray[Any, Any]) -> float:
    """Norm of the difference over norm of what is expected."""
    return float(np.linalg.norm(actual - expected) / np.linalg.norm(expected))


def saved_config(config: dict[str, Any]) -> dict[str, Any]:
    """The config as transformers 5 saves it."""
    with tempfile.TemporaryDirectory() as folder:
        Path(folder, "config.json").write_text(json.dumps(config), encoding="utf-8")
        AutoConfig.from_pretrained(folder).save_pretrained(folder)
        saved: dict[str, Any] = json.loads(Path(folder, "config.json").read_text(encoding="utf-8"))
    return saved


def expected_of_case(name: str, config: dict[str, Any], seed: int) -> dict[str, Any]:
    """One entry of expected.json, checked as the module says."""
    tokens = np.random.Generator(np.random.PCG64(seed)).integers(0, config["vocab_size"], NUM_TOKENS)
    token_ids = [int(t) for t in tokens]
    logits_SV = logits_of(config, seed, token_ids)
    new_style = saved_config(config)
    again = relative_error(logits_of(new_style, seed, token_ids), logits_SV)
    assert again < 1e-6, (name, again)
    rows = list(POSITIONS)
    for mistake in MISTAKES[name]:
        moved = relative_error(logits_of(config | mistake, seed, token_ids)[rows], logits_SV[rows])
        print(f"{name:20} {mistake} moves the logits by {moved:.3g}", file=sys.stderr)
        assert moved > 10 * TOLERANCE, (name, mistake, moved)
    return {
        "seed": seed,
        "config": {"transformers4": config, "transformers5": new_style},
        "token_ids": token_ids,
        "positions": rows,
        "logits": [[float(f"{float(v):.7g}") for v in logits_SV[p]] for p in rows],
    }


def main() -> None:
    """Compute all cases and write expected.json beside this script."""
    torch.set_num_threads(1)
    result = {name: expected_of_case(name, config, 100 + i) for i, (name, config) in enumerate(CASES.items())}
    target = Path(__file__).with_name("expected.json")
    lines = [f"{json.dumps(name)}: {json.dumps(case)}" for name, case in result.items()]
    target.write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")
    print(f"{target}: {target.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
