"""A statement that the server would not take: its row is rejected, and the server is not down for it."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import pytest
from sql_lab import SqlLab, orders

from handlers import Rejected

MakeLab = Callable[[str], SqlLab]
TYPES = {"id": "int", "n": "longtext"}
DEFAULT = 16 << 20
"""MariaDB's max_allowed_packet, if nobody sets it."""


@pytest.fixture
def mariadb_lab(make_sql: MakeLab) -> SqlLab:
    lab = make_sql("mariadb")
    assert lab.run("SELECT @@GLOBAL.max_allowed_packet")[0][0] == DEFAULT
    return lab


def row(number: int, size: int = 1) -> dict[str, Any]:
    return {"id": number, "n": "y" * size}


def sizes(lab: SqlLab) -> dict[int, int]:
    return {one["id"]: one["size"] for one in lab.rows(columns="id, length(n) AS size")}


@pytest.mark.parametrize("mebibytes", [16, 17, 40])
def test_only_the_row_that_is_larger_than_a_packet_is_rejected(mariadb_lab: SqlLab, mebibytes: int) -> None:
    changes = [row(1), row(2, mebibytes << 20), row(3)]
    with mariadb_lab.handler() as handler:
        with pytest.raises(Rejected, match=rf"{DEFAULT}.*max_allowed_packet.*offset 1\b") as told:
            handler.handle(orders(*changes, types=TYPES))
        assert told.value.at == 1
        assert f"takes {mebibytes << 20}"[:8] in str(told.value)
        handler.handle(orders(row(1), types=TYPES))
        handler.handle(orders(row(3), types=TYPES, offset=2))
    assert sizes(mariadb_lab) == {1: 1, 3: 1}


def test_bytes_are_measured_as_they_are_sent(mariadb_lab: SqlLab) -> None:
    types = {"id": "int", "n": "longblob"}
    with mariadb_lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": b"y" * (7 << 20)}, types=types))
        with pytest.raises(Rejected, match="max_allowed_packet"):  # a byte is sent as two digits
            handler.handle(orders({"id": 2, "n": b"y" * (9 << 20)}, types=types, offset=1))
    assert sizes(mariadb_lab) == {1: 7 << 20}


def test_the_largest_statement_that_fits_is_sent(mariadb_lab: SqlLab) -> None:
    with mariadb_lab.handler() as handler:
        handler.handle(orders(row(1), types=TYPES))
        with pytest.raises(Rejected) as told:
            handler.handle(orders(row(1, DEFAULT), types=TYPES, offset=1))
        words = str(told.value).split()
        beyond = int(words[words.index("takes") + 1]) - DEFAULT
        largest = DEFAULT - beyond - 1
        with pytest.raises(Rejected):
            handler.handle(orders(row(1, largest + 1), types=TYPES, offset=1))
        handler.handle(orders(row(1, largest), types=TYPES, offset=1))
    assert sizes(mariadb_lab) == {1: largest}


@pytest.fixture
def narrow_lab(mariadb_lab: SqlLab) -> Any:
    """Its server takes packets of 64 KiB."""
    mariadb_lab.run("SET GLOBAL max_allowed_packet = 65536")
    mariadb_lab.engine.dispose()
    yield mariadb_lab
    mariadb_lab.run(f"SET GLOBAL max_allowed_packet = {DEFAULT}")


def test_rows_that_are_too_large_together_are_written(narrow_lab: SqlLab) -> None:
    with narrow_lab.handler() as handler:
        handler.handle(orders(*(row(number, 10_000) for number in range(20)), types=TYPES))
        gone = [{"before": row(number, 10_000), "after": None} for number in range(20)]
        handler.handle(orders(*gone[:10], types=TYPES, offset=20))
    assert sizes(narrow_lab) == dict.fromkeys(range(10, 20), 10_000)


def test_a_limit_that_was_raised_counts_at_once(narrow_lab: SqlLab) -> None:
    with narrow_lab.handler() as handler:
        with pytest.raises(Rejected, match=r"takes 1000\d\d bytes.*65536"):
            handler.handle(orders(row(1, 100_000), types=TYPES))
        narrow_lab.run("SET GLOBAL max_allowed_packet = 1048576")
        handler.handle(orders(row(1, 100_000), types=TYPES))
    assert sizes(narrow_lab) == {1: 100_000}


def test_postgresql_gets_no_message_that_it_would_not_read(
    make_sql: MakeLab, monkeypatch: pytest.MonkeyPatch
) -> None:
    lab = make_sql("postgres")
    monkeypatch.setattr("handlers.sql.target.engine._POSTGRESQL_BYTES", 1 << 20)  # really 1 GiB
    with lab.handler() as handler:
        handler.handle(orders(*(row(number, 300_000) for number in range(5)), types=TYPES))
        with pytest.raises(Rejected, match=r"take 10485\d\d bytes.*less than 1 GiB.*offset 6\b") as told:
            handler.handle(orders(row(5), row(6, 1 << 20), row(7), types=TYPES, offset=5))
    assert told.value.at == 1
    assert sizes(lab) == dict.fromkeys(range(5), 300_000)
