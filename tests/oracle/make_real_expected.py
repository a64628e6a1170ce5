"""Write real_expected.json: logits of real GGUF files, dequantised and computed by transformers.

Not run by the tests: it needs torch, transformers and the files themselves. Made with torch 2.13.0 (CPU)
and transformers 5.24.0 by, from the folder `tests`:

    python -m oracle.make_real_expected FOLDER_WITH_THE_GGUF_FILES

transformers dequantises each tensor with `gguf.quants.dequantize` and computes in float32. All logits of a
real vocabulary would be megabytes, so a position keeps its 32 largest logits, 256 entries drawn once for
the file, and the norm of the whole row.
"""

import gc
import hashlib
import json
import sys
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import AutoModelForCausalLM, AutoTokenizer

FILES = ("smollm2-135m", "qwen2.5-coder-0.5b", "gemma3-270m")
NUM_LARGEST = 32
NUM_SAMPLED = 256

PROMPTS = (
    "The capital of France is Paris, and the capital of Italy is",
    "def fibonacci(n: int) -> int:\n    if n < 2:\n        return n\n    return fibonacci(n - 1) +",
    "Question: Ali ordered 850 kilos of coal. It comes in bags of 50 kg that cost $18 each. "
    "How much does he pay?\nAnswer: Ali needs 850 / 50 = 17 bags. 17 bags cost 17 * 18 =",
)
# Longer than the window of 512 tokens that most layers of the Gemma file look back.
LONG_PROMPT = "\n".join(f"{n} times 7 is {7 * n}, and {n} squared is {n * n}." for n in range(1, 31))


def rounded(values: Any) -> list[float]:
    """The values with seven significant digits."""
    return [float(f"{float(value):.7g}") for value in values]


def expected_rows(model: Any, token_ids: list[int], positions: list[int], sampled: list[int]) -> dict[str, Any]:
    """What is kept of the logits of one prompt."""
    with torch.no_grad():
        logits_SV = model(torch.tensor([token_ids])).logits[0].float().numpy()
    rows = []
    for position in positions:
        logits_V = logits_SV[position]
        largest = np.argsort(-logits_V, kind="stable")[:NUM_LARGEST]
        rows.append(
            {
                "position": position,
                "norm": float(f"{np.linalg.norm(logits_V.astype(np.float64)):.7g}"),
                "largest_ids": [int(i) for i in largest],
                "largest": rounded(logits_V[largest]),
                "sampled": rounded(logits_V[sampled]),
            }
        )
    return {"token_ids": token_ids, "rows": rows}


def expected_of_file(path: Path) -> dict[str, Any]:
    """The expected logits of one GGUF file."""
    tokenizer = AutoTokenizer.from_pretrained(path.parent, gguf_file=path.name)
    model = AutoModelForCausalLM.from_pretrained(path.parent, gguf_file=path.name, dtype=torch.float32)
    model.eval()
    print(model.config, file=sys.stderr)
    vocab_size = model.get_output_embeddings().weight.shape[0]
    generator = np.random.Generator(np.random.PCG64(0))
    sampled = sorted(int(i) for i in generator.choice(vocab_size, size=NUM_SAMPLED, replace=False))
    prompts = []
    for text in PROMPTS:
        token_ids = tokenizer(text).input_ids
        last = len(token_ids) - 1
        prompts.append(expected_rows(model, token_ids, [0, last // 3, 2 * last // 3, last], sampled))
    if path.stem.startswith("gemma3"):
        token_ids = tokenizer(LONG_PROMPT).input_ids
        assert len(token_ids) > 600, len(token_ids)
        prompts.append(expected_rows(model, token_ids, [len(token_ids) - 1], sampled))
    digest = hashlib.sha256(path.read_bytes()).hexdigest()
    del model
    gc.collect()
    return {"sha256": digest, "vocab_size": vocab_size, "sampled_ids": sampled, "prompts": prompts}


def main() -> None:
    """Read the files in the folder given, write real_expected.json beside this script."""
    folder = Path(sys.argv[1])
    torch.set_num_threads(2)
    result = {name: expected_of_file(folder / f"{name}.gguf") for name in FILES}
    target = Path(__file__).with_name("real_expected.json")
    target.write_text(json.dumps(result, separators=(",", ":")) + "\n", encoding="utf-8")
    print(f"{target}: {target.stat().st_size} bytes", file=sys.stderr)


if __name__ == "__main__":
    main()
