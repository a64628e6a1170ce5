"""Results kept as JSON Lines while they are measured, so that an interrupted run can go on."""

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

Cell = dict[str, Any]

# Runs are named by engine and mode: "foredraft lookup", "llama.cpp none".
OURS = "foredraft"
THEIRS = "llama.cpp"


@dataclass
class Records:
    """A file of cells. A cell is one prompt at one temperature and seed, measured in all modes side by side.

    The first line holds the settings; a run goes on only under the same ones. A cell is one line, written
    when all its modes are measured: an interruption loses a whole cell, never the pairing within one.
    """

    path: Path
    settings: Mapping[str, Any]
    cells: list[Cell] = field(default_factory=list)

    def open(self) -> None:
        """Read what is there, or begin the file. Raises ValueError when its settings are others."""
        lines = self._whole_lines()
        if not lines:
            self.path.parent.mkdir(parents=True, exist_ok=True)
            self._append({"settings": dict(self.settings)})
            return
        found = json.loads(lines[0]).get("settings")
        wanted = json.loads(json.dumps(dict(self.settings)))
        if found != wanted:
            changed = sorted(k for k in {*(found or {}), *wanted} if (found or {}).get(k) != wanted.get(k))
            raise ValueError(f"{self.path} has other settings ({', '.join(changed)}); give another --records file")
        self.cells = [json.loads(line) for line in lines[1:]]

    def add(self, cell: Cell) -> None:
        """Keep a cell, on the disk before this returns."""
        self._append(cell)
        self.cells.append(cell)

    def by_key(self) -> dict[tuple[str, float, int | None], Cell]:
        """The cells there are, by prompt, temperature and seed."""
        return {(cell["prompt"], cell["temperature"], cell["seed"]): cell for cell in self.cells}

    def _append(self, entry: Mapping[str, Any]) -> None:
        with self.path.open("a", encoding="utf-8") as file:
            file.write(json.dumps(entry) + "\n")
            file.flush()
            os.fsync(file.fileno())

    def _whole_lines(self) -> list[str]:
        """All lines; half a line at the end, from an interrupted write, is cut off the file."""
        if not self.path.exists():
            return []
        data = self.path.read_bytes()
        whole = data[: data.rfind(b"\n") + 1]
        if len(whole) < len(data):
            os.truncate(self.path, len(whole))
        return whole.decode("utf-8").split("\n")[:-1]
