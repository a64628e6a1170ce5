"""Check what a wheel holds: the package, its compiled module and its types, and nothing else.

python scripts/check_wheel.py WHEEL
"""

import sys
import zipfile

NEEDED = (
    "foredraft/__init__.py",
    "foredraft/py.typed",
    "foredraft/_native.pyi",
    "foredraft/cli/main.py",
    "foredraft/inspect/page.html",
)
ROOTS = ("foredraft/", "foredraft-")
"""How every name in the wheel begins: the package, and its metadata."""


def faults(names: list[str]) -> list[str]:
    """What is wrong with a wheel that holds these names."""
    found = [f"{name} is missing" for name in NEEDED if name not in names]
    if sum(name.startswith("foredraft/_native.") and name.endswith(".so") for name in names) != 1:
        found.append("there must be exactly one compiled module foredraft/_native.*.so")
    found += [f"{name} does not belong into a wheel" for name in names if not name.startswith(ROOTS)]
    if not any(name.endswith("licenses/LICENSE") for name in names):
        found.append("the licence is missing")
    return found


def main() -> int:
    """Print the faults of the wheel that is the argument; exit code 1 if there are any."""
    [path] = sys.argv[1:]
    with zipfile.ZipFile(path) as wheel:
        found = faults(wheel.namelist())
    for fault in found:
        print(f"{path}: {fault}", file=sys.stderr)
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
