"""The tiny models: their configs, prompts and the logits that transformers computes for them."""

import json
from pathlib import Path
from typing import Any

CASES: dict[str, dict[str, Any]] = json.loads(Path(__file__).with_name("expected.json").read_text(encoding="utf-8"))

# What llama.cpp cannot read from a GGUF file: a window for qwen2, a scale of Gemma's attention of its own, a
# bias of qwen3's attention output. For all others llama.cpp itself was seen to compute the expected logits.
NOT_GGUF = ("qwen2-window", "gemma3", "qwen3-bias-yarn")
GGUF_CASES = [name for name in CASES if name not in NOT_GGUF]
