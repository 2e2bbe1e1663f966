from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from members import RECORDS, Member
from mock_brokers import mock_brokers
from processing import Stage

from worker.partitions import starts
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
