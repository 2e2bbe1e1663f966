"""`binlane reload` beside a running worker, on a real broker and real databases."""

from __future__ import annotations

import json
import signal
import subprocess
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
import sqlalchemy as sa
from integration.letters import binlane
from integration.process import WorkerProcess, eventually
from integration.source import canal_insert
from integration.stage import Stage

HERE = Path(__file__).parent


def made_worker(stage: Stage, url: str) -> WorkerProcess:
    handlers = [{"type": "sql", "url": url}, {"type": "log"}]
    return stage.worker("one", tables=[{"match": "shop.*", "handlers": handlers}])


def reload(worker: WorkerProcess, table: str = "shop.t0", *more: str) -> Any:
    options = ("--table", table, "--handler", "sql", "--from-beginning", *more)
    return binlane(worker, "reload", "CONFIG", *options)


def altered(table: str, sql: str) -> bytes:
    record = json.loads(canal_insert(table, [0]))
    record |= {"data": None, "isDdl": True, "type": "ALTER", "sql": sql, "pkNames": None}
    return json.dumps(record).encode()


def named(table: str, seqs: range, note: str) -> bytes:
    """Rows with a column that they have not had before."""
    record = json.loads(canal_insert(table, seqs))
    for row in record["data"]:
        row["note"] = note
    record["mysqlType"]["note"] = "varchar(20)"
    record["sqlType"]["note"] = 12
    return json.dumps(record).encode()


def seqs(engine: sa.Engine, table: str) -> Counter[int]:
    with engine.connect() as connection:
        return Counter(row[0] for row in connection.execute(sa.text(f"SELECT seq FROM shop.{table}")))


@pytest.mark.parametrize("kind", ["postgres"])
def test_one_table_is_whole_again_and_the_others_do_not_notice(
    stage: Stage, kind: str, request: pytest.FixtureRequest
) -> None:
    url = request.getfixturevalue(kind).new_database("reloaded")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.execute(sa.text("DROP TABLE IF EXISTS shop.t0, shop.t1")) if kind == "mariadb" else None
    source = stage.source()
    source.insert("t0", records=200)
    source.insert("t1", records=200)
    source.send(altered("t0", "ALTER TABLE t0 ADD COLUMN note varchar(20)"), key=b"t0")
    source.send(named("t0", range(200, 300), "told"), key=b"t0")
    source.flush()
    worker = made_worker(stage, url).start()
    stage.wait_committed_to_the_end()
    with engine.begin() as connection:
        connection.execute(sa.text("DELETE FROM shop.t0 WHERE seq < 150"))
        connection.execute(sa.text("UPDATE shop.t0 SET seq = 9999 WHERE seq >= 250"))
        connection.execute(sa.text("DELETE FROM shop.t1 WHERE seq = 7"))

    sent = [300]

    def send() -> None:
        source.send(named("t0", range(sent[0], sent[0] + 1), "live"), key=b"t0")
        sent[0] += 1
        source.insert("t1")

    with source.going_on(send, every=0.01):
        done = reload(worker)
    assert done.returncode == 0, done.stderr
    assert "rows replaced by" in done.stdout
    stage.wait_committed_to_the_end()
    assert seqs(engine, "t0") == Counter(range(sent[0]))
    with engine.connect() as connection:
        notes = connection.execute(sa.text("SELECT note, count(*) FROM shop.t0 GROUP BY note ORDER BY 1"))
        assert {row[0]: row[1] for row in notes} == {None: 200, "told": 100, "live": sent[0] - 300}
    assert seqs(engine, "t1") == Counter(source.rows["shop.t1"]) - Counter([7]), "nobody asked for this one"
    assert set(sa.inspect(engine).get_table_names(schema="shop")) == {"t0", "t1"}
    assert worker.sigterm() == 0
    engine.dispose()


def test_a_killed_reload_leaves_the_table_as_it_was_and_the_next_one_goes_through(
    stage: Stage, tmp_path: Path
) -> None:
    source = stage.source()
    for _ in range(30):
        source.insert("t0", rows=400)
    source.flush()
    path = tmp_path / "replica.db"
    worker = made_worker(stage, f"sqlite:///{path}").start()
    stage.wait_committed_to_the_end()
    assert worker.sigterm() == 0
    engine = sa.create_engine(f"sqlite:///{path}")

    def built() -> list[str]:
        return [one for one in sa.inspect(engine).get_table_names() if "__binlane_reload_" in one]

    def count(table: str) -> int:
        with engine.connect() as connection:
            return int(connection.exec_driver_sql(f'SELECT count(*) FROM "{table}"').scalar_one())

    with engine.begin() as connection:
        connection.exec_driver_sql('DELETE FROM "shop.t0" WHERE seq < 5')
    config = str(worker.folder / "binlane.yaml")
    command = [sys.executable, "-m", "binlane", "reload", config, "--table", "shop.t0", "--handler", "sql"]
    process = subprocess.Popen([*command, "--from-beginning"], cwd=HERE.parents[1])
    eventually(lambda: any(count(one) > 0 for one in built()), every=0.005)
    process.send_signal(signal.SIGKILL)
    process.wait()
    assert built(), "it was killed half way"
    assert count("shop.t0") == 12_000 - 5
    done = reload(worker)
    assert done.returncode == 0, done.stderr
    assert "11,995 rows replaced by 12,000, from 12,000 changes" in done.stdout
    assert (count("shop.t0"), built()) == (12_000, [])
    engine.dispose()
