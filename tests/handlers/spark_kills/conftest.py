"""Tables whose workers end or stop at a storage operation."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from kill_lab import Place
from shifts import Shifts

MakePlace = Callable[..., Place]


@pytest.fixture(scope="session")
def shifts() -> Iterator[Shifts]:
    made = Shifts()
    yield made
    made.close()


@pytest.fixture
def make_place(shifts: Shifts, tmp_path: Path) -> MakePlace:
    def make(mode: str, format_: str = "delta", **more: Any) -> Place:
        return Place(shifts, tmp_path / "here", mode, format_, **more)

    return make
