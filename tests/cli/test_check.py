"""`foredraft check` on real weights: it passes, and what is wrong makes it fail."""

import json
from collections.abc import Callable
from pathlib import Path

import pytest
from helpers.command_line import Run, assert_refused
from helpers.tiny import TinyModel

from foredraft.accept import Accepted
from foredraft.cli.check import _methods
from foredraft.cli.main import main
from foredraft.drafters import names_a_model
from foredraft.tree import DraftTree


def test_everything_is_equal_on_the_real_model(real: Run, smollm2_path: Path, tmp_path: Path) -> None:
    result = real("check", "-m", str(smollm2_path), "--quick", "--output", "check.json")
    text = result.stdout.decode()
    assert result.returncode == 0, text + result.stderr.decode()
    assert "comparisons of 2 prompts with lookup, suffix," in result.stderr.decode()
    assert "\x1b" not in text
    assert "completions are those of plain decoding" in text
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["holds"] is True
    assert found["model"] == smollm2_path.name
    assert all(cell["num_completions"] == 2 and cell["num_rounds"] for cell in found["comparisons"])
    assert all(cell["refused"] is cell["failed"] is None for cell in found["comparisons"])
    assert sum(cell["num_accepted_tokens"] for cell in found["comparisons"]) > 0
    controls = [test for test in found["distributions"] if test["control"]]
    assert controls
    assert all(test["p_value"] < found["threshold"] for test in controls)
    rules = [test for test in found["distributions"] if not test["control"]]
    assert all(test["p_value"] >= found["threshold"] and test["num_accepted_tokens"] for test in rules)


def test_a_drafter_that_the_model_is_too_small_for_is_left_out_and_told(real: Run, tmp_path: Path) -> None:
    """Kind: the check of a sound model fails, since one of the ways of drafting cannot be had with it."""
    TinyModel(context_length=4096).write_gguf(tmp_path / "tiny.gguf")
    result = real("check", "-m", "tiny.gguf", "--quick", "--json")
    assert result.returncode == 0, result.stderr.decode()
    assert b"skip is left out: --draft skip needs a model of at least 3 layers" in result.stderr
    assert "skip" not in {cell["config"]["drafters"][0] for cell in json.loads(result.stdout)["comparisons"]}
    assert_refused(real("check", "-m", "tiny.gguf", "--quick", "--draft", "skip"), "at least 3 layers")


def accept_everything(tree: DraftTree, target_token: Callable[[int], int]) -> Accepted:
    """As if every draft were right."""
    path = tuple(range(1, tree.num_nodes)) if tree.is_chain else ()
    return Accepted(path, target_token(path[-1] if path else 0))


def test_a_wrong_acceptor_is_reported_with_exit_code_1(
    smollm2_path: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capfdbinary: pytest.CaptureFixture[bytes]
) -> None:
    monkeypatch.setattr("foredraft.accept.rules.walk", accept_everything)
    (tmp_path / "p.txt").write_text("one two one two one two one\n")
    arguments = ["check", "-m", str(smollm2_path), "--draft", "lookup", "--quick", "--prompts", str(tmp_path / "p.txt")]
    code = main([*arguments, "--output", str(tmp_path / "check.json")])
    text = capfdbinary.readouterr().out.decode()
    assert code == 1
    assert "completions are not those of plain decoding" in text
    assert "lookup:4, temperature 0, plain" in text
    assert '"one two one two one two one": text, token_ids' in text
    assert "without speculation" in text
    found = json.loads((tmp_path / "check.json").read_text())
    assert found["holds"] is False
    greedy = next(cell for cell in found["comparisons"] if cell["temperature"] == 0)
    where = greedy["differences"][0]["first_divergence"]
    assert where["gap"] == where["plain_logit"] - where["drafted_logit"] > 0


def test_mistakes_are_refused_before_anything_runs(real: Run, smollm2_path: Path, tmp_path: Path) -> None:
    model = ("-m", str(smollm2_path))
    assert_refused(real("check", *model, "--draft", "none"), "--draft none")
    assert_refused(real("check", *model, "--draft", "medusaa"), "medusaa")
    assert_refused(real("check", *model, "--prompts", "missing.txt"), "missing.txt")
    (tmp_path / "file").touch()
    assert_refused(real("check", *model, "--trace", "file/folder"), "--trace", "file/folder")
    assert_refused(real("check", *model, "--output", "missing/c.json"), "missing")
    (tmp_path / "p.txt").write_text("word " * 9000)
    assert_refused(real("check", *model, "--quick", "-q", "--prompts", "p.txt"), "context")


def test_a_method_is_checked_where_a_folder_has_its_name(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Kind: a file or folder that happens to lie there is taken for a draft model."""
    monkeypatch.chdir(tmp_path)
    for name in ("lookup", "skip:3-4"):
        Path(name).mkdir()
        assert _methods([name], quiet=True) == [(name,)]
        assert not names_a_model(name)
        assert names_a_model(f"./{name}")
