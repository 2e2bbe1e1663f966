"""The servers that tests stand on: each keeps its data, and leaves nothing behind."""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import textwrap
import time
from collections.abc import Callable
from pathlib import Path

import psutil
import pymysql
import pytest
import redis
from servers.mariadb_server import MariaDBServer
from servers.postgres_server import PostgresServer
from servers.redis_node import RedisNode
from servers.server_process import ProgramMissing, ServerProcess
from sqlalchemy import create_engine, text

TESTS = str(Path(__file__).parents[1])


def write_and_count(url: str) -> int:
    engine = create_engine(url)
    with engine.begin() as connection:
        connection.execute(text("CREATE TABLE IF NOT EXISTS kept (id int)"))
        connection.execute(text("INSERT INTO kept VALUES (1)"))
        count: int = connection.execute(text("SELECT count(*) FROM kept")).scalar_one()
    engine.dispose()
    return count


def test_postgres_keeps_what_was_committed_over_a_kill_and_a_restart(
    own_postgres: Callable[[], PostgresServer],
) -> None:
    server = own_postgres()
    url = server.new_database("kept")
    assert write_and_count(url) == 1
    server.kill()
    server.start()
    assert write_and_count(url) == 2
    server.restart()
    assert write_and_count(url) == 3


def test_redis_keeps_what_was_written_over_a_kill_and_a_restart(own_redis: Callable[[], RedisNode]) -> None:
    server = own_redis()
    client = redis.Redis.from_url(server.new_database("kept"))
    client.set("key", "value")
    server.kill()
    server.start()
    assert client.get("key") == b"value"
    server.restart()
    assert client.get("key") == b"value"
    client.close()


def test_mariadb_is_in_utc_and_takes_every_character(mariadb: MariaDBServer) -> None:
    engine = create_engine(mariadb.new_database("utc"))
    with engine.connect() as connection:
        assert connection.execute(text("SELECT timediff(now(), utc_timestamp())")).scalar_one().seconds == 0
        assert connection.execute(text("SELECT '🙂'")).scalar_one() == "🙂"
    engine.dispose()


def test_each_test_has_an_empty_database(
    postgres: PostgresServer, mariadb: MariaDBServer, redis_server: RedisNode
) -> None:
    for server in (postgres, mariadb):
        assert write_and_count(server.new_database("fresh")) == 1
        assert write_and_count(server.new_database("fresh")) == 1
    client = redis.Redis.from_url(redis_server.new_database("fresh"))
    client.set("key", "value")
    redis_server.new_database("other")
    assert client.dbsize() == 1
    redis_server.new_database("fresh")
    assert client.dbsize() == 0
    client.close()


def test_servers_never_run_as_root(
    postgres: PostgresServer, mariadb: MariaDBServer, redis_server: RedisNode
) -> None:
    assert all(psutil.Process(server.pid).uids().real != 0 for server in (postgres, mariadb, redis_server))


def test_a_wrong_password_is_refused(mariadb: MariaDBServer) -> None:
    with pytest.raises(pymysql.err.OperationalError, match="Access denied"):
        pymysql.connect(host="127.0.0.1", port=mariadb.port, user="binlane", password="wrong")


def test_a_missing_program_is_told_with_its_package() -> None:
    server = RedisNode()
    with pytest.raises(ProgramMissing, match="apt-get install redis-server"):
        server.program("redis-server-of-tomorrow")
    server.close()


CHILD = """
    import sys, time
    sys.path.insert(0, {tests!r})
    from servers.{module} import {name}
    server = {name}()
    server.start()
    print(server.pid, server.directory, flush=True)
    time.sleep(600)
"""


@pytest.mark.parametrize(
    "kind", [RedisNode, PostgresServer, MariaDBServer], ids=["redis", "postgres", "mariadb"]
)
def test_a_server_ends_with_the_process_that_started_it(
    kind: type[ServerProcess], request: pytest.FixtureRequest
) -> None:
    fixtures = {RedisNode: "redis_server", PostgresServer: "postgres", MariaDBServer: "mariadb"}
    request.getfixturevalue(fixtures[kind])  # says what is missing
    script = textwrap.dedent(CHILD).format(
        tests=TESTS, module=kind.__module__.rpartition(".")[2], name=kind.__name__
    )
    child = subprocess.Popen([sys.executable, "-c", script], stdout=subprocess.PIPE, text=True)
    assert child.stdout is not None
    pid, directory = child.stdout.readline().split()
    os.kill(child.pid, signal.SIGKILL)
    child.wait()
    child.stdout.close()
    deadline = time.monotonic() + 40
    while time.monotonic() < deadline and (psutil.pid_exists(int(pid)) or Path(directory).exists()):
        time.sleep(0.05)
    assert not psutil.pid_exists(int(pid))
    assert not Path(directory).exists()
