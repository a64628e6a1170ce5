"""The decoder's logits of real GGUF files agree with transformers' on the same dequantised weights.

SmolLM2 is always tested; the other files of real_expected.json where the folder $FOREDRAFT_MODELS has them.
"""

import functools
import hashlib
import json
import os
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from foredraft.models.load import load_decoder

EXPECTED: dict[str, dict[str, Any]] = json.loads(
    Path(__file__).with_name("real_expected.json").read_text(encoding="utf-8")
)
ALWAYS = "smollm2-135m"
FOLDER = Path(os.environ["FOREDRAFT_MODELS"]) if "FOREDRAFT_MODELS" in os.environ else None
OTHERS = [name for name in EXPECTED if name != ALWAYS and FOLDER is not None and (FOLDER / f"{name}.gguf").exists()]
# The long prompt is slow on the reference operations, whose window the tiny models test.
LONGEST_ON_REFERENCE = 100
TOLERANCES = {"reference": 1e-3, "native": 2e-2}


@pytest.fixture(params=[ALWAYS, *OTHERS])
def real_model(request: pytest.FixtureRequest) -> tuple[str, Path]:
    """Name and path of a file, checked to be the very file that the expected logits are of."""
    name: str = request.param
    if name == ALWAYS:
        return name, request.getfixturevalue("smollm2_path")
    assert FOLDER is not None
    return name, FOLDER / f"{name}.gguf"


@functools.cache
def digest(path: Path) -> str:
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def squared_errors(
    logits_V: npt.NDArray[np.float32], row: dict[str, Any], sampled: list[int]
) -> npt.NDArray[np.float64]:
    """[2, 2]: squared norms of the difference and of what was expected, for both samples of a row's entries."""
    pairs = []
    for ids, values in ((row["largest_ids"], row["largest"]), (sampled, row["sampled"])):
        expected = np.array(values, dtype=np.float64)
        pairs.append((np.sum((logits_V[ids] - expected) ** 2), np.sum(expected**2)))
    return np.array(pairs, dtype=np.float64)


@pytest.mark.parametrize("kernels", ["reference", "native"])
def test_real_file(real_model: tuple[str, Path], kernels: str) -> None:
    name, path = real_model
    expected = EXPECTED[name]
    assert digest(path) == expected["sha256"], f"{path} is not the file that the expected logits were made from"
    decoder = load_decoder(path, kernels=kernels)
    total = np.zeros((2, 2))
    for prompt in expected["prompts"]:
        if kernels == "reference" and len(prompt["token_ids"]) > LONGEST_ON_REFERENCE:
            continue
        logits_SV = decoder.logits(prompt["token_ids"])
        assert logits_SV.shape == (len(prompt["token_ids"]), expected["vocab_size"])
        for row in prompt["rows"]:
            logits_V = logits_SV[row["position"]]
            total += squared_errors(logits_V, row, expected["sampled_ids"])
            norm = float(np.linalg.norm(logits_V.astype(np.float64)))
            assert abs(norm / row["norm"] - 1) < 0.05
            if kernels == "reference":
                assert int(np.argmax(logits_V)) == row["largest_ids"][0]
    # Over all positions: a single one, the first of a text most of all, may be off by some more.
    largest, sampled = np.sqrt(total[:, 0] / total[:, 1])
    assert max(largest, sampled) < TOLERANCES[kernels], f"relative errors: largest {largest}, sampled {sampled}"
