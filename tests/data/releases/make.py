"""Makes what a worker of this release leaves, for later releases to be tried on: with the release checked
out, python tests/data/releases/make.py

It becomes `VERSION/left.tar.xz` beside this script, once for each release. Those that read it:
tests/deployment/test_upgrading.py, tests/handlers/spark_engine/test_spark_upgrading.py.
"""

from __future__ import annotations

import json
import os
import sys
import tarfile
import tempfile
import time
from pathlib import Path
from typing import Any

import sqlalchemy as sa

TESTS = Path(__file__).parents[2]
sys.path[:0] = [str(TESTS.parent), str(TESTS), str(TESTS / "offsets"), str(TESTS / "handlers")]

from delta_reading import table_at  # noqa: E402

from handlers.mysql.ddl import TableName  # noqa: E402
from handlers.spark.ddl.progress import Surroundings  # noqa: E402
from handlers.spark.ddl.tables import drop_table  # noqa: E402
from handlers.spark.ddl.target import Target  # noqa: E402
from handlers.spark.engine.merge_scheduler import Merger  # noqa: E402
from handlers.spark.log.stores.local import LocalFiles  # noqa: E402
from handlers.spark.options import SparkOptions  # noqa: E402
from handlers.spark.table_ref import TableRef  # noqa: E402
from handlers.sql import SqlHandler  # noqa: E402
from handlers.testing import make_batch, opened  # noqa: E402
from offsets import metadata  # noqa: E402
from offsets.journal import Entry, Journal  # noqa: E402
from offsets.stores.file import FileStore  # noqa: E402
from offsets.stores.sql import SqlStore  # noqa: E402
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition  # noqa: E402
from worker import __version__  # noqa: E402

PARTITION = TopicPartition("cdc", 0)
CHECKPOINT = Checkpoint(10, (OffsetRange(12, 15), OffsetRange(20, 21)), "AAAAAAAAAAAAAAAAAAAAAA", 3)
ROWS = [{"id": number, "name": f"row {number}"} for number in range(3)]


def main() -> None:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name) / "left"
        checkpoints(folder)
        finished_map(folder / "map")
        sql(folder)
        spark(folder)
        ddl_steps(folder / "ddl")
        target = Path(__file__).parent / __version__.rpartition(".")[0] / "left.tar.xz"
        target.parent.mkdir(exist_ok=True)
        with tarfile.open(target, "w:xz") as file:
            file.add(folder, "left")
        sys.stdout.write(f"{target}: {target.stat().st_size} bytes\n")


def checkpoints(folder: Path) -> None:
    """state/: the checkpoint file and the journal; checkpoints.db: `checkpoint.url`; metadata.json: the text
    of a commit."""
    state = folder / "state"
    FileStore(state, "replica").save({PARTITION: CHECKPOINT}, {PARTITION: Mark(10, None)})
    journal = Journal(state, "replica", clock=lambda: 1_790_000_000.0)
    journal.append([Entry(PARTITION, 5, 1_790_000_005_000, CHECKPOINT.topic_id)])
    journal.append([Entry(PARTITION, 10, 1_790_000_010_000, CHECKPOINT.topic_id)])
    store = SqlStore(sa.make_url(f"sqlite:///{folder}/checkpoints.db"), "replica")
    store.open()
    store.save({PARTITION: CHECKPOINT}, {PARTITION: Mark(10, None)})
    store.close()
    (folder / "metadata.json").write_text(json.dumps(metadata.encode(CHECKPOINT, stamp=7)))


def finished_map(folder: Path) -> None:
    """Of a worker that was killed: everything up to 100 is finished, and each third beyond."""
    from map_kills import Worker

    worker = Worker(folder, segment_bytes=4096)
    worker.poll(0, range(100))
    worker.runs[0][0][0].finish(range(100))
    worker.checkpoint()
    worker.poll(0, range(100, 130))
    worker.runs[0][-1][0].finish(range(100, 130, 3))


def sql(folder: Path) -> None:
    """target.db: a table with its marks."""
    made = SqlHandler(url=f"sqlite:///{folder}/target.db")
    with opened(made, folder, worker="shop") as handler:
        types = {"id": "int", "name": "varchar(20)"}
        handler.handle(make_batch("shop.orders", ROWS, key="id", types=types, topic_id="A"))


def spark(folder: Path) -> None:
    """lake/: two rows merged, one that waits, a statement that waits behind it, and a row behind that."""
    from spark_lake import Lake, change

    Merger.offer = lambda merger, table: False  # type: ignore[assignment]  # nothing is merged by itself
    lake = Lake(folder, merge={"at_close": "0s"})
    for offset in range(2):
        lake.take(change(offset, ROWS[offset]), topic_id="A")
    lake.sink().merge()
    for later in (3600, 7200):  # what is merged is written down, and goes
        lake.sink().merges.tidy(time.monotonic() + later)
    lake.take(change(2, ROWS[2]), topic_id="A")
    drop = "ALTER TABLE orders DROP COLUMN name"
    lake.take(change(3, None, None, op="ddl", sql=drop), topic_id="A")
    lake.take(change(4, {"id": 4}, {"id": "int"}), topic_id="A")
    lake.close()


def ddl_steps(folder: Path) -> None:
    """_binlane/ddl/: a table that was dropped, which is told beside it."""
    log = folder / "shop/orders/_delta_log"
    log.mkdir(parents=True)
    os.chdir(folder)
    (log / f"{0:020d}.json").touch()
    drop_table(dropping(), TableName("shop", "orders"), "0")


def dropping() -> Target:
    """The statement at offset 5."""

    def ref_of(name: TableName) -> TableRef:
        return table_at(f"{name.database}/{name.table}")

    no_session: Any = None
    around = Surroundings(SparkOptions(mode="replica"), ref_of, LocalFiles(), "_binlane")
    return Target(no_session, around, [("cdc@A", 0, 5, 0)], 0, "{}")


if __name__ == "__main__":
    main()
