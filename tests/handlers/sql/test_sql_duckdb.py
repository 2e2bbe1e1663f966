"""What is DuckDB's own: one process has the file, and in it handlers go one after the other."""

from __future__ import annotations

import subprocess
import sys
from collections.abc import Callable
from threading import Thread

import pytest
from sql_lab import SqlLab, orders

from handlers.sql.handler import DatabaseError
from handlers.sql.target.engine import check_url

MakeLab = Callable[[str], SqlLab]
TYPES = {"id": "int", "n": "int"}
_HOLDS = "import duckdb, sys; file = duckdb.connect(sys.argv[1]); print('open', flush=True); sys.stdin.read()"


def test_a_file_that_another_process_has_open_stops_the_worker_by_name(make_sql: MakeLab) -> None:
    sql = make_sql("duckdb")
    file = str(check_url(sql.url).database)
    holder = subprocess.Popen(
        [sys.executable, "-c", _HOLDS, file], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )
    try:
        assert holder.stdout is not None
        assert holder.stdout.readline() == "open\n"
        told = rf"(?s)DuckDB file .*lock .*{holder.pid}"
        with pytest.raises(DatabaseError, match=told), sql.handler():
            pass
    finally:
        holder.communicate("")
    with sql.handler() as handler:
        handler.handle(orders({"id": 1, "n": 0}, types=TYPES))
    assert sql.rows() == [{"id": 1, "n": 0}]


def test_two_handlers_share_a_file(make_sql: MakeLab) -> None:
    sql = make_sql("duckdb")
    with sql.handler(worker="one") as one, sql.handler(worker="two") as two:

        def write(handler: object, table: str) -> None:
            for number in range(30):
                batch = orders({"id": number, "n": 0}, table=table, types=TYPES, offset=number)
                handler.handle(batch)  # type: ignore[attr-defined]  # either

        threads = [
            Thread(target=write, args=(handler, table), name=table)
            for handler, table in ((one, "shop.orders"), (two, "shop.items"))
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join(60)
    assert [len(sql.rows(table)) for table in ("shop.orders", "shop.items")] == [30, 30]


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("duckdb://", "DuckDB needs a file"),
        ("duckdb:///:memory:", "DuckDB needs a file"),
        ("duckdb://host/file.duckdb", "DuckDB needs a file"),
        ("duckdb:///file.duckdb?access_mode=read_only", "has no settings"),
        ("duckdb+other:///file.duckdb", "there is no driver"),
    ],
)
def test_what_is_no_file_is_refused(url: str, told: str) -> None:
    with pytest.raises(ValueError, match=told):
        check_url(url)
