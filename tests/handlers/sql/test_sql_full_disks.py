"""A disk that is full: the target waits for room, and no row is blamed."""

from __future__ import annotations

import pwd
import secrets
import subprocess
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest
import sqlalchemy as sa
from servers.mariadb_server import MariaDBServer
from sql_lab import SqlLab, orders

from handlers import Batch, TargetUnavailable
from handlers.sql.handler import SqlHandler

MakeLab = Callable[[str], SqlLab]


def numbers(lab: SqlLab) -> list[int]:
    return sorted(one["id"] for one in lab.rows(columns="id"))


@contextmanager
def filled(handler: SqlHandler) -> Iterator[None]:
    """SQLite as on a disk that is full."""
    pages: list[Any] = []

    def narrow(connection: Any, *_: Any) -> None:
        cursor = connection.cursor()
        pages.append(cursor.execute("PRAGMA page_count").fetchone()[0])
        cursor.execute(f"PRAGMA max_page_count = {pages[-1]}")

    assert handler._engine is not None
    handler._engine.dispose()
    sa.event.listen(handler._engine, "connect", narrow)
    yield
    assert pages
    sa.event.remove(handler._engine, "connect", narrow)
    handler._engine.dispose()


def test_a_full_sqlite_file_is_waited_for(make_sql: MakeLab) -> None:
    lab = make_sql("sqlite")
    types = {"id": "int", "n": "text"}
    batch = orders({"id": 2, "n": "y" * 100_000}, types=types, offset=1)
    with lab.handler() as handler:
        handler.handle(orders({"id": 1, "n": "x"}, types=types))
        with filled(handler), pytest.raises(TargetUnavailable, match="full"):
            handler.handle(batch)
        handler.handle(batch)
    assert numbers(lab) == [1, 2]


class SmallMariaDB(MariaDBServer):
    """Its tables have no more room than one file that may not grow far."""

    mebibytes = 32

    def command(self) -> list[str]:
        file = f"--innodb-data-file-path=ibdata1:12M:autoextend:max:{self.mebibytes}M"
        return [*super().command(), "--innodb-file-per-table=0", file]


@contextmanager
def small_mariadb(folder: Path) -> Iterator[tuple[SqlLab, Callable[[], None]]]:
    server = SmallMariaDB()
    try:
        server.start()
        lab = SqlLab(server.new_database("target"), folder)

        def grow() -> None:
            server.stop()
            server.mebibytes = 512
            server.start()
            lab.engine.dispose()

        yield lab, grow
        lab.close()
    finally:
        server.close()


@contextmanager
def small_postgres(lab: SqlLab) -> Iterator[tuple[SqlLab, Callable[[], None]]]:
    """shop.orders on a file system of its own, which only root may mount."""
    lasting = lab.engine.execution_options(isolation_level="AUTOCOMMIT")
    with TemporaryDirectory(dir="/tmp") as above:  # whose path the server's account may walk
        Path(above).chmod(0o755)
        folder = Path(above, "disk")
        folder.mkdir()
        size = f"size=24m,uid={pwd.getpwnam('nobody').pw_uid},mode=700"
        if subprocess.run(["mount", "-t", "tmpfs", "-o", size, "tmpfs", folder], check=False).returncode:
            pytest.skip("only root may mount a file system")
        try:
            with lasting.connect() as connection:
                connection.exec_driver_sql(f"CREATE TABLESPACE small LOCATION '{folder}'")
            lab.make("shop.orders", "id int PRIMARY KEY, n text")
            lab.run("ALTER TABLE shop.orders SET TABLESPACE small")
            yield lab, lambda: subprocess.run(["mount", "-o", "remount,size=256m", folder], check=True)
            lab.run("DROP TABLE shop.orders")
            with lasting.connect() as connection:
                connection.exec_driver_sql("DROP TABLESPACE small")
        finally:
            subprocess.run(["umount", "--lazy", folder], check=True)


@pytest.fixture(params=["postgres", "mariadb"])
def small(
    request: pytest.FixtureRequest, make_sql: MakeLab, tmp_path: Path
) -> Iterator[tuple[SqlLab, Callable[[], None]]]:
    """A database that is soon full, and how it gets more room."""
    is_postgres = request.param == "postgres"
    with small_postgres(make_sql("postgres")) if is_postgres else small_mariadb(tmp_path) as made:
        yield made


def handle_all(handler: SqlHandler, batches: list[Batch]) -> None:
    for batch in batches:
        handler.handle(batch)


def test_a_full_disk_is_waited_for(small: tuple[SqlLab, Callable[[], None]]) -> None:
    lab, grow = small
    types = {"id": "int", "n": "longtext"}
    batches = [
        orders({"id": number, "n": secrets.token_hex(2 << 20)}, types=types, offset=number)
        for number in range(1, 10)
    ]
    with lab.handler() as handler:
        with pytest.raises(TargetUnavailable, match=r"(?i)no space|full") as waits:
            handle_all(handler, batches)
        assert not waits.value.others_go_on
        assert 0 < len(numbers(lab)) < len(batches)
        grow()
        handler._engine.dispose()  # type: ignore[union-attr]
        handle_all(handler, batches)
    assert numbers(lab) == list(range(1, 10))
