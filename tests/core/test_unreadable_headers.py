"""Headers that the Kafka client cannot read, because the name of one is not UTF-8, end no worker."""

from __future__ import annotations

from datetime import UTC, datetime
from pathlib import Path
from typing import Any, cast
from unittest.mock import Mock

import pytest
from building import assignment, chunk, unit
from confluent_kafka import Message
from structlog.testing import capture_logs

from worker.dead_letters.topic import headers_of, read_letter
from worker.fetching.parking import written
from worker.formats import interface
from worker.formats.debezium.flat import flat_record
from worker.formats.debezium.settings import DebeziumSettings
from worker.formats.interface import Record, UndecodableRecord, any_headers, remade
from worker.lanes.parking import Parkable
from worker.units.parking_files import ParkingLot

MARK = [("binlane.headers", b"could not be read")]


class Unreadable(Message):
    """As confluent_kafka gives such a record. Its second call would return a list with null pointers."""

    broken = False

    def headers(self) -> Any:
        found = super().headers()
        if found is None:
            assert not self.broken, "the process would have died"
            self.broken = True
            raise SystemError("returned a result with an exception set")
        return found


def unreadable(offset: int = 0) -> Record:
    made: Any = Unreadable  # the declared types are narrower than what it takes
    return cast(Record, made(topic="cdc.shop", partition=0, offset=offset, value=b"{}"))


def test_they_are_read_once_and_logged_once() -> None:
    record = unreadable(7)
    with capture_logs() as logs:
        assert any_headers(record) == any_headers(record) == any_headers(remade(record, None, b"")) == MARK
    assert [(each["event"], each["position"]) for each in logs] == [
        ("headers_unreadable", "cdc.shop[0] offset 7")
    ]


def test_a_record_with_them_is_parked(tmp_path: Path) -> None:
    lot, own = ParkingLot(tmp_path), chunk(assignment(), [unreadable()])
    parked = written(lot, Parkable(unit(), None, [own]))
    ((_, records, _),) = parked.chunks
    assert [any_headers(each) for each in records] == [MARK]
    del parked, records
    lot.close()


def test_its_dead_letter_says_that_they_could_not_be_read() -> None:
    about: dict[str, Any] = {
        "table": "shop.orders",
        "handler": None,
        "index": None,
        "error": "E",
        "worker": "w",
    }
    headers = headers_of(unreadable(), attempts=1, time=datetime.now(UTC), **about)
    letter = Message(topic="dead", partition=0, offset=1, value=b"", headers=cast(Any, headers))
    assert headers[0] == MARK[0]
    assert read_letter(cast(Record, letter)).headers == tuple(MARK)
    assert read_letter(unreadable()).table is None, "a letter that another program wrote"


def test_a_format_that_needs_them_refuses_the_record() -> None:
    """Without its operation, a delete would be taken as an update."""
    record = unreadable()
    for _ in range(2):
        with pytest.raises(UndecodableRecord, match="its headers cannot be read"):
            flat_record(record, {"id": 1, "__table": "orders", "__db": "shop"}, DebeziumSettings())


def test_no_other_thread_reads_them_while_that_is_logged(monkeypatch: pytest.MonkeyPatch) -> None:
    record, seen = unreadable(), []
    log = Mock(warning=lambda *_args, **_fields: seen.append(any_headers(record)))
    monkeypatch.setattr(interface, "log", log)
    assert any_headers(record) == MARK
    assert seen == [MARK]
