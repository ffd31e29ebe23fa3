"""A landing folder, and payments to put into it."""

from __future__ import annotations

import json
import os
from dataclasses import dataclass
from pathlib import Path

import pytest

SCHEMA = "id STRING, account STRING, amount BIGINT, at TIMESTAMP"


@dataclass(frozen=True, slots=True)
class Place:
    """Everything of one test: a landing folder, outputs and a checkpoint."""

    root: Path

    @property
    def landing(self) -> Path:
        """The folder that the pipeline reads."""
        return self.root / "in"

    @property
    def checkpoint(self) -> Path:
        """The pipeline's checkpoint."""
        return self.root / "checkpoint"

    def land(self, name: str, *rows: tuple[str, str, int, str] | str) -> None:
        """Put a file with payments (id, account, amount, time of 1 January 2025) or raw lines there, whole."""
        lines = []
        for row in rows:
            if isinstance(row, str):
                lines.append(row)
            else:
                identity, account, amount, clock = row
                payment = {"id": identity, "account": account, "amount": amount, "at": f"2025-01-01T{clock}Z"}
                lines.append(json.dumps(payment))
        hidden = self.landing / f".{name}"
        hidden.write_text("\n".join(lines) + "\n")
        order = 1_700_000_000 + len(list(self.landing.iterdir()))
        os.utime(hidden, (order, order))
        hidden.rename(self.landing / f"{name}.json")


@pytest.fixture
def place(tmp_path: Path) -> Place:
    """An empty place."""
    place = Place(tmp_path)
    place.landing.mkdir()
    return place
