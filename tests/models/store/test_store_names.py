"""What the name of a model may be: a built-in name, a path, a hub id; and the line for everything else."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from foredraft.errors import ModelFileError, UserError
from foredraft.models import store


@pytest.fixture(autouse=True)
def _in_an_empty_folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(store, "pull_built_in", lambda model, **options: Path("pulled") / model.name)


def test_an_existing_file_is_taken_as_it_is(tmp_path: Path) -> None:
    (tmp_path / "m.gguf").write_bytes(b"")
    assert store.resolve("m.gguf") == Path("m.gguf")
    assert store.resolve(tmp_path / "m.gguf") == tmp_path / "m.gguf"


def test_an_existing_folder_is_taken_even_when_it_looks_like_a_hub_id(tmp_path: Path) -> None:
    (tmp_path / "org" / "name").mkdir(parents=True)
    assert store.resolve("org/name") == Path("org/name")


def test_the_home_folder_is_expanded(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(tmp_path))
    (tmp_path / "m.gguf").write_bytes(b"")
    assert store.resolve("~/m.gguf") == tmp_path / "m.gguf"


def test_a_built_in_name_means_the_same_in_every_folder(tmp_path: Path) -> None:
    (tmp_path / "smollm2-135m").mkdir()
    assert store.resolve("smollm2-135m") == Path("pulled/smollm2-135m")
    assert store.resolve("./smollm2-135m") == Path("smollm2-135m")


@pytest.mark.parametrize(
    "name",
    ["missing.gguf", "./missing", "../missing", "/no/such/place", "~/missing", "models/missing.gguf", "a/b/c",
     "missing/", "a/b:c/d\0"],
)  # fmt: skip
def test_a_path_that_is_not_there(name: str) -> None:
    with pytest.raises(ModelFileError, match="no such file or folder: ") as caught:
        store.resolve(name)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("name", ["smolm2-135m", "SmolLM2-135M", "smollm2-135m.gguf", "models/smollm-135m.gguf"])
def test_a_name_close_to_a_built_in_one_is_answered_with_it(name: str) -> None:
    with pytest.raises(ModelFileError, match="did you mean the built-in model smollm2-135m"):
        store.resolve(name)


def test_a_name_close_to_nothing_is_answered_with_the_choices() -> None:
    with pytest.raises(ModelFileError, match=r"'x' is neither .* \(smollm2-135m\); .* is written org/name"):
        store.resolve("x")


@pytest.mark.parametrize("name", ["", " ", "x" * 5000, "a b/c", "org/", "/", "~nobody-of-that-name/m"])
def test_odd_names_are_refused_or_found_but_never_crash(name: str) -> None:
    if name == "/":
        assert store.resolve(name) == Path("/")
        return
    with pytest.raises(ModelFileError):
        store.resolve(name)


@given(name=st.text())
def test_any_name_is_resolved_or_refused_in_one_line(name: str) -> None:
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("foredraft.models.store.hub.pull_from_hub", lambda repo, wanted, **options: Path(repo))
        try:
            message = str(store.resolve(name))[:0]
        except UserError as error:
            message = str(error)
    assert "\n" not in message


@pytest.mark.parametrize(
    ("name", "expected"),
    [
        ("smollm2-135m", True),
        ("org/name:Q4_0", True),
        ("draft.gguf", True),
        ("lookup", False),
        ("auto", False),
        ("none", False),
    ],
)
def test_a_reference_to_a_model_is_told_from_the_name_of_a_method(name: str, *, expected: bool) -> None:
    assert store.is_model_reference(name) is expected
