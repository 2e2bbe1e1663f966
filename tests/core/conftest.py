from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from members import RECORDS, Member
from mock_brokers import mock_brokers
from process_stage import ProcessStage
from processing import Stage

from worker.partitions import starts
from worker.processes import slot
from worker.units.parking_files import ParkingLot


@pytest.fixture(autouse=True)
def _no_processor_goes_on() -> Iterator[None]:
    yield
    while Stage.made:
        Stage.made.pop().end()


@pytest.fixture
def lot(tmp_path: Path) -> Iterator[ParkingLot]:
    lot = ParkingLot(tmp_path)
    yield lot
    lot.close()
    assert list(tmp_path.iterdir()) == []


@pytest.fixture(scope="session")
def _mock_servers() -> Iterator[str]:
    with mock_brokers(RECORDS) as address:
        yield address


@pytest.fixture
def mock_servers(_mock_servers: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """Mock brokers with a topic `t`. They never tell its id: an assignment need not wait long for it."""
    monkeypatch.setattr(starts, "_ID_SECONDS", 0.1)
    return _mock_servers


@pytest.fixture
def member(mock_servers: str) -> Iterator[Callable[[str], Member]]:
    made: list[Member] = []

    def make(strategy: str) -> Member:
        made.append(Member(mock_servers, strategy))
        return made[-1]

    yield make
    for each in made:
        each.consumer.close()


@pytest.fixture
def make(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[..., ProcessStage]]:
    monkeypatch.setattr(slot, "_LONGEST_PAUSE", 0.05)
    made: list[ProcessStage] = []

    def stage(*rules: dict[str, Any], **more: Any) -> ProcessStage:
        made.append(ProcessStage(tmp_path, *rules, **more))
        return made[-1]

    yield stage
    for each in made:
        each.close()


@pytest.fixture
def writing(tmp_path: Path) -> Callable[..., dict[str, Any]]:
    """writing(does={...}): the entry of a handler. `kind`: another class."""

    def entry(kind: str = "Writing", **options: Any) -> dict[str, Any]:
        return {"type": f"process_handlers:{kind}", "file": str(tmp_path / "events.jsonl"), **options}

    return entry
