"""A target that goes away: nothing is wrong with the batch, and it is applied once when all is well."""

from __future__ import annotations

import socket
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from threading import Event, Thread
from typing import Any

import pytest
import sqlalchemy as sa
from servers.mariadb_server import MariaDBServer
from servers.server_process import ServerProcess
from sql_lab import SqlLab, orders

from handlers import TargetUnavailable
from handlers.sql.applying import Applier
from handlers.sql.handler import DatabaseError, SqlHandler

TYPES = {"id": "int", "n": "int"}
Start = Callable[[], ServerProcess]


@pytest.fixture(params=["own_postgres", "own_mariadb"])
def start_own(request: pytest.FixtureRequest) -> Start:
    start: Start = request.getfixturevalue(request.param)
    return start


def event(number: int) -> dict[str, Any]:
    return {"id": number, "n": 0}


def numbers(sql: SqlLab) -> list[int]:
    return sorted(one["id"] for one in sql.rows())


class Disturbed(Applier):
    """Does all but the commit, then lets `disturb` have its way."""

    disturb: Callable[[sa.Connection], None]

    def apply(self, connection: sa.Connection, *arguments: Any, **options: Any) -> None:
        super().apply(connection, *arguments, **options)
        self.disturb(connection)


@contextmanager
def disturbed(handler: SqlHandler, disturb: Callable[[sa.Connection], None]) -> Iterator[None]:
    applier = handler._applier
    assert applier is not None
    handler._applier = Disturbed(applier._options, applier._naming, applier._marks, applier._writer)
    handler._applier.disturb = disturb
    try:
        yield
    finally:
        handler._applier = applier


def end_session(sql: SqlLab) -> Callable[[sa.Connection], None]:
    def end(connection: sa.Connection) -> None:
        is_postgresql = sql.dialect == "postgresql"
        own = "pg_backend_pid()" if is_postgresql else "connection_id()"
        session = connection.exec_driver_sql(f"SELECT {own}").scalar_one()
        sql.run(f"SELECT pg_terminate_backend({session})" if is_postgresql else f"KILL {session}")

    return end


def test_a_connection_that_ends_in_the_middle_of_a_transaction_loses_nothing(server: SqlLab) -> None:
    with server.handler() as handler:
        handler.handle(orders(event(1), key=None, types=TYPES))
        batch = orders(event(2), event(3), key=None, types=TYPES, offset=1)
        with disturbed(handler, end_session(server)), pytest.raises(TargetUnavailable, match=server.dialect):
            handler.handle(batch)
        assert numbers(server) == [1]
        handler.handle(batch)
    assert numbers(server) == [1, 2, 3]


def test_a_server_that_restarts_is_waited_for(start_own: Start, tmp_path: Path) -> None:
    server = start_own()
    sql = SqlLab(server.url, tmp_path)
    with sql.handler() as handler:
        handler.handle(orders(event(1), key=None, types=TYPES))
        server.stop()
        batch = orders(event(2), key=None, types=TYPES, offset=1)
        for _ in range(2):
            with pytest.raises(TargetUnavailable) as told_:
                handler.handle(batch)
            assert "127.0.0.1" in str(told_.value)
        server.start()
        sql.engine.dispose()
        handler.handle(batch)
    assert numbers(sql) == [1, 2]
    sql.close()


def test_a_server_without_transactions_is_waited_for(request: pytest.FixtureRequest, tmp_path: Path) -> None:
    server = request.getfixturevalue("own_postgres")()
    sql = SqlLab(server.url, tmp_path)
    with sql.handler() as handler:
        handler.handle(orders(event(1), key=None, types=TYPES))
        server.use_up_transactions()
        with pytest.raises(TargetUnavailable):  # it finds its connection lost
            handler.handle(orders(event(2), key=None, types=TYPES, offset=1))
        with pytest.raises(TargetUnavailable) as waits:
            handler.handle(orders(event(2), key=None, types=TYPES, offset=1))
        assert "not accepting commands" in str(waits.value)
        assert not waits.value.others_go_on
    sql.close()


class LogsStatements(MariaDBServer):
    settings = {**MariaDBServer.settings, "log-bin": "ON", "binlog-format": "STATEMENT"}  # noqa: RUF012


def test_a_server_whose_log_takes_statements_alone_is_waited_for(tmp_path: Path) -> None:
    """It takes none of sessions in READ COMMITTED then."""
    server = LogsStatements()
    server.start()
    try:
        sql = SqlLab(server.url, tmp_path)
        with sql.handler() as handler, pytest.raises(TargetUnavailable, match="BINLOG_FORMAT"):
            handler.handle(orders(event(1), key=None, types=TYPES))
        sql.close()
    finally:
        server.close()


def test_a_worker_does_not_start_without_its_target(start_own: Start, tmp_path: Path) -> None:
    server = start_own()
    sql = SqlLab(server.url, tmp_path)
    server.stop()
    with pytest.raises(DatabaseError, match=r"(postgresql|mysql) at 127\.0\.0\.1"), sql.handler():
        pass


# ---- the answer to the commit is lost


class Proxy:
    """Between the handler and the server. After `cut` it closes instead of passing the next answer."""

    def __init__(self, port: int) -> None:
        self._to = ("127.0.0.1", port)
        self._cutting = Event()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port: int = self._listener.getsockname()[1]
        self._thread = Thread(target=self._accept, name="proxy", daemon=True)
        self._thread.start()

    def cut(self) -> None:
        self._cutting.set()

    def close(self) -> None:
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:
                return
            server = socket.create_connection(self._to)
            Thread(target=self._pump, args=(client, server), name="proxy-up", daemon=True).start()
            Thread(target=self._pump, args=(server, client, True), name="proxy-down", daemon=True).start()

    def _pump(self, source: socket.socket, target: socket.socket, is_answer: bool = False) -> None:
        with suppress(OSError):
            while data := source.recv(65536):
                if is_answer and self._cutting.is_set():
                    self._cutting.clear()
                    break
                target.sendall(data)
        for one in (source, target):
            with suppress(OSError):
                one.shutdown(socket.SHUT_RDWR)  # wakes the thread that reads from it
            one.close()


def test_a_commit_whose_answer_is_lost_is_not_done_twice(server: SqlLab) -> None:
    url = sa.make_url(server.url)
    assert url.port is not None
    proxy = Proxy(url.port)
    through = SqlLab(url.set(port=proxy.port).render_as_string(hide_password=False), server.folder)
    with through.handler() as handler:
        handler.handle(orders(event(1), key=None, types=TYPES))
        batch = orders(event(2), key=None, types=TYPES, offset=1)
        with disturbed(handler, lambda _: proxy.cut()), pytest.raises(TargetUnavailable):
            handler.handle(batch)
        through.engine.dispose()
        handler.handle(batch)
        handler.handle(orders(event(3), key=None, types=TYPES, offset=2))
    assert numbers(server) == [1, 2, 3]
    through.close()
    proxy.close()


# ---- others in the way


def test_a_deadlock_is_tried_again_at_once(make_sql: Callable[[str], SqlLab]) -> None:
    sql = make_sql("postgres")
    table = sql.ref("shop.orders")
    update = [{"before": event(number), "after": {"id": number, "n": 1}} for number in (1, 2)]
    waits = "SELECT count(*) FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with sql.handler() as handler, sql.engine.connect() as other:
        handler.handle(orders(event(1), event(2), types=TYPES))
        for offset in range(2, 12):
            other.exec_driver_sql(f"UPDATE {table} SET n = 7 WHERE id = 2")
            batch = orders(*update, types=TYPES, offset=offset)
            thread = Thread(target=handler.handle, args=(batch,), name="batch")
            thread.start()
            while not sql.run(waits)[0][0]:
                pass
            try:
                other.exec_driver_sql(f"UPDATE {table} SET n = 7 WHERE id = 1")
                other.commit()
                break
            except sa.exc.OperationalError:  # the server ended this side, which began late
                other.rollback()
            finally:
                thread.join(30)
        else:
            pytest.fail("the server never ended the batch")
    assert [one["n"] for one in sql.rows()] == [1, 1]
