"""Tables of several databases in one table, by a running worker, with its dead letters and a reload."""

from __future__ import annotations

import json
import re
from pathlib import Path

import pytest
import sqlalchemy as sa
from integration.letters import binlane, judging, letters, with_dead_letters
from integration.process import eventually
from integration.source import canal_insert
from integration.stage import Stage
from servers.postgres_server import PostgresServer

from worker.local.broker import Broker

QUICK = {"max_attempts": 1, "initial_delay": "10ms"}


def statement(database: str, kind: str, sql: str) -> bytes:
    record = json.loads(canal_insert("t0", [0], database))
    return json.dumps(record | {"data": None, "isDdl": True, "type": kind, "sql": sql}).encode()


@pytest.mark.parametrize("order", ["table", "row"])
def test_rows_of_each_database_are_in_one_table(
    stage: Stage, broker: Broker, postgres: PostgresServer, order: str
) -> None:
    broker.create_topic(f"{stage.topic}.dead")
    url = postgres.new_database("gathered")
    poison = stage.gate()
    bad = judging(stage, "bad", reject={"shops.t0": [1]}, reject_while=str(poison), how="at")
    source = stage.source()
    for number in (1, 2, 1):  # the last ones again, as after a crash of the source's tool
        source.send(canal_insert("t0", [0, 1, 2], f"shop_{number}"), key=b"t0")
    source.send(statement("shop_1", "TRUNCATE", "TRUNCATE TABLE t0"), key=b"t0")
    source.send(statement("shop_2", "ERASE", "DROP TABLE t0"), key=b"t0")
    source.send(canal_insert("t0", [3], "shop_2"), key=b"t0")
    source.flush()
    rule = {"match": "shops.*", "retry": QUICK, "on_failure": "dead_letter"}
    worker = stage.worker(
        tables=[rule | {"handlers": [bad, {"type": "sql", "url": url}]}],
        databases={"shops": {"match": "shop_*.*"}},
        lanes={"count": 4, "order_by": order},
        dead_letter=with_dead_letters(stage, max_ratio=1),
    ).start()
    stage.wait_committed_to_the_end()

    expected = [(f"shop_{number}", seq) for number in (1, 2) for seq in range(3)] + [("shop_2", 3)]
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        found = connection.exec_driver_sql("SELECT source_database, seq FROM shops.t0").all()
    assert sorted(map(tuple, found)) == expected
    [emptied] = [each for each in letters(stage) if b"TRUNCATE" in (each.value() or b"")]
    assert b"TRUNCATE of shop_1.t0" in dict(emptied.headers() or [])["binlane.error"]

    poison.unlink()
    done = binlane(worker, "dead-letters", "replay", "CONFIG", "--table", "shops.t0", "--yes")
    assert "shops.t0  insert of" in done.stdout
    assert sorted(row["seq"] for row in stage.run.rows("bad")) == [0, 0, 0, 1, 1, 1, 2, 2, 2, 3]
    if order == "table":
        with engine.begin() as connection:
            connection.exec_driver_sql("DELETE FROM shops.t0 WHERE seq < 2")
        done = binlane(
            worker, "reload", "CONFIG", "--table", "shops.t0", "--handler", "sql", "--from-beginning"
        )
        assert (done.returncode, done.stderr.count("Traceback")) == (0, 0), done.stderr
        with engine.connect() as connection:
            found = connection.exec_driver_sql("SELECT source_database, seq FROM shops.t0").all()
        assert sorted(map(tuple, found)) == expected
    engine.dispose()


@pytest.mark.parametrize(
    ("named", "sql", "shows"),
    [
        ("b", "RENAME TABLE a TO b, users TO people", ("people", "name")),
        ("USERS", "ALTER TABLE USERS RENAME COLUMN name TO label", ("users", "label")),
    ],
)
def test_nothing_hidden_is_shown_after_a_statement_of_gathered_tables(
    stage: Stage, tmp_path: Path, named: str, sql: str, shows: tuple[str, str]
) -> None:
    """Nor by the copy that gh-ost fills, which is not gathered here."""
    source, url = stage.source(), f"sqlite:///{tmp_path}/target.db"
    source.send(canal_insert("_users_gho", [1], "shop_1"), key=b"t0")
    source.send(canal_insert("users", [1], "shop_1"), key=b"t0")
    source.send(statement("shop_1", "ALTER", sql).replace(b'"t0"', f'"{named}"'.encode()), key=b"t0")
    shown = canal_insert(shows[0], [2], "shop_1").replace(b'"name"', f'"{shows[1]}"'.encode())
    source.send(shown, key=b"t0")
    source.send(canal_insert("t0", [3], "crm"), key=b"t0")
    source.flush()
    sql_ = {"handlers": [{"type": "sql", "url": url}]}
    worker = stage.worker(
        tables=[{"match": "shops.users", "columns": {"exclude": ["name"]}, **sql_}, {"match": "*", **sql_}],
        databases={"shops": {"match": "/shop_1.([a-z]+|USERS)/"}},
    ).start()
    eventually(lambda: worker.table(f"shops.{named}").get("state") == "blocked", within=60, what="it halts")
    eventually(lambda: worker.table("crm.t0").get("finished_records") == 1, within=60, what="others go on")
    engine = sa.create_engine(url)
    with engine.connect() as connection:
        text = "\n".join(connection.connection.driver_connection.iterdump())  # type: ignore[union-attr]
    engine.dispose()
    assert "row 3 of t0" in text
    assert '"shop_1._users_gho" VALUES(1,1)' in text
    assert re.search("row [12] of", text) is None
