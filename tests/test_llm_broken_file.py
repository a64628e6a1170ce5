"""Weights that are no numbers: the error names the file and the tensor, for every command that meets it."""

from pathlib import Path

import numpy as np
import pytest
from helpers.command_line import REAL, assert_refused, runner
from helpers.tiny import TinyModel

from foredraft import LLM
from foredraft.errors import ModelFileError


class Damaged(TinyModel):
    """A tiny model with one weight that is no number."""

    def weights(self) -> dict[str, np.ndarray]:  # type: ignore[type-arg]
        weights = super().weights()
        weights["model.layers.1.mlp.down_proj.weight"][3, 5] = np.nan
        return weights


@pytest.fixture(scope="module")
def broken(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return Damaged().write_gguf(tmp_path_factory.mktemp("broken") / "nan.gguf")


@pytest.mark.parametrize("draft", ["none", "auto"])
def test_weights_that_are_no_numbers_are_a_fault_of_the_file(broken: Path, draft: str) -> None:
    """Kind: a damaged file is reported as an internal error of the program."""
    with pytest.raises(ModelFileError, match=r"blk\.1\.ffn_down\.weight.*not numbers"):
        LLM(broken, draft=draft).generate("hello")


@pytest.mark.parametrize("command", [["generate", "--raw", "hello"], ["generate", "--raw", "--json", "hello"]])
def test_it_is_one_line_and_exit_code_2(broken: Path, command: list[str]) -> None:
    assert_refused(runner(REAL, broken.parent)(*command, "-m", str(broken)), "blk.1.ffn_down.weight")


def test_check_says_it_too(broken: Path) -> None:
    done = runner(REAL, broken.parent)("check", "--quick", "-m", str(broken))
    assert done.returncode == 2
    assert "blk.1.ffn_down.weight" in done.stderr.decode()
    assert "Traceback" not in done.stderr.decode()
