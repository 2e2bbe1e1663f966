"""What earlier releases have left is read by this one: tests/data/releases, made by make.py there."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
import sqlalchemy as sa
from archives import opened_tar
from delta_reading import table_at
from memory_store import loaded

from handlers.mysql.ddl import TableName
from handlers.spark.ddl.progress import Surroundings
from handlers.spark.ddl.tables import drop_table
from handlers.spark.ddl.target import Target
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef
from handlers.sql import SqlHandler
from handlers.testing import make_batch, opened
from offsets import metadata
from offsets.finished import read, reading
from offsets.journal import Entry, Journal
from offsets.stores.file import FileStore
from offsets.stores.interface import CheckpointError
from offsets.stores.sql import SqlStore
from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition

RELEASES = Path(__file__).parents[1] / "data/releases"
TIME = 1_790_000_000_000
PARTITION = TopicPartition("cdc", 0)
CHECKPOINT = Checkpoint(10, (OffsetRange(12, 15), OffsetRange(20, 21)), "AAAAAAAAAAAAAAAAAAAAAA", 3)


@pytest.fixture(params=sorted(each.name for each in RELEASES.iterdir() if (each / "left.tar.xz").exists()))
def left(request: pytest.FixtureRequest, tmp_path: Path) -> Path:
    with opened_tar(RELEASES / request.param / "left.tar.xz") as file:
        file.extractall(tmp_path)
    return tmp_path / "left"


def test_a_checkpoint_file_is_read_and_written_on(left: Path) -> None:
    store = FileStore(left / "state", "replica")
    assert loaded(store, [PARTITION]) == {PARTITION: CHECKPOINT}
    assert store.entries()[PARTITION].acknowledged == Mark(10, None)
    further = CHECKPOINT._replace(offset=15, ahead=())
    store.save({PARTITION: further})
    assert loaded(FileStore(left / "state", "replica"), [PARTITION]) == {PARTITION: further}


def test_checkpoints_in_a_database_are_read_and_written_on(left: Path) -> None:
    url = sa.make_url(f"sqlite:///{left}/checkpoints.db")
    store = SqlStore(url, "replica")
    assert loaded(store, [PARTITION]) == {PARTITION: CHECKPOINT}
    further = CHECKPOINT._replace(offset=15, ahead=())
    store.save({PARTITION: further})
    assert loaded(store, [PARTITION]) == {PARTITION: further}
    store.close()


def test_checkpoints_in_a_database_of_a_newer_release_are_refused_and_left_alone(left: Path) -> None:
    url = sa.make_url(f"sqlite:///{left}/checkpoints.db")
    engine = sa.create_engine(url)
    with engine.begin() as connection:
        connection.exec_driver_sql("UPDATE binlane_checkpoints SET format = 2")
    store = SqlStore(url, "replica")
    with pytest.raises(CheckpointError, match=r"newer binlane \(format 2; .* up to 1\): run that version"):
        loaded(store, [PARTITION])
    store.close()
    with engine.begin() as connection:
        assert connection.exec_driver_sql("SELECT format FROM binlane_checkpoints").scalar() == 2
    engine.dispose()


def test_the_metadata_of_a_commit_is_read_and_that_of_a_newer_release_tells_nothing(left: Path) -> None:
    text = json.loads((left / "metadata.json").read_text())
    assert metadata.decode(text, CHECKPOINT.offset) == CHECKPOINT
    assert metadata.decode(text.replace("binlane2:", "binlane3:"), CHECKPOINT.offset) is None


def test_the_journal_is_searched_and_written_on(left: Path) -> None:
    journal = Journal(left / "state", "replica")
    found = journal.history([PARTITION], 10)[PARTITION]
    assert [(each.offset, each.source_ms) for each in found] == [(10, TIME + 10_000), (5, TIME + 5_000)]
    journal.append([Entry(PARTITION, 15, TIME + 15_000, CHECKPOINT.topic_id)])
    assert journal.search(PARTITION, TIME + 9_000, CHECKPOINT.topic_id).lower.offset == 5
    assert [each.offset for each in journal.history([PARTITION], 10)[PARTITION]] == [15, 10, 5]


def test_the_map_of_finished_offsets_is_read(left: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """On the machine that wrote it, and since it was started."""
    [segment] = (left / "map").glob("finished-*.map")
    partition = TopicPartition("rows", 0)
    window = FileStore(left / "map", "replica").entries()[partition].window
    assert window is not None
    monkeypatch.setattr(reading, "boot_id", lambda: bytes(16))
    assert read(left / "map", [window]) == {}
    boot = segment.read_bytes()[8:24]
    monkeypatch.setattr(reading, "boot_id", lambda: boot)
    found = read(left / "map", [window])[window].ranges
    assert {number for each in found for number in range(*each)} >= set(range(100, 130, 3))
    assert not {number for each in found for number in range(*each)} & {101, 102, 128, 129}
    assert loaded(FileStore(left / "map", "replica"), [partition])[partition].offset == 100


def test_marks_in_a_database_pass_over_what_was_applied(left: Path) -> None:
    engine = sa.create_engine(f"sqlite:///{left}/target.db")
    with engine.begin() as connection:
        [table] = [name for name in sa.inspect(connection).get_table_names() if "orders" in name]
        connection.exec_driver_sql(f"UPDATE \"{table}\" SET name = 'by hand' WHERE id = 1")
    made = SqlHandler(url=f"sqlite:///{left}/target.db")
    rows = [{"id": number, "name": f"row {number}"} for number in range(4)]
    types = {"id": "int", "name": "varchar(20)"}
    with opened(made, left, worker="shop") as handler:
        handler.handle(make_batch("shop.orders", rows, key="id", types=types, topic_id="A"))
    with engine.begin() as connection:
        found = connection.exec_driver_sql(f'SELECT id, name FROM "{table}" ORDER BY id').all()
    engine.dispose()
    assert [tuple(each) for each in found] == [(0, "row 0"), (1, "by hand"), (2, "row 2"), (3, "row 3")]


def test_a_step_of_a_statement_that_was_done_beside_spark_s_tables_is_not_done_again(
    left: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(left / "ddl")  # the step is of a table of this path
    log = Path("shop/orders/_delta_log")
    log.mkdir(parents=True)
    (log / f"{0:020d}.json").touch()  # the source has made it anew since

    def ref_of(name: TableName) -> TableRef:
        return table_at(f"{name.database}/{name.table}")

    around = Surroundings(SparkOptions(mode="replica"), ref_of, LocalFiles(), "_binlane")
    target = Target(None, around, [("cdc@A", 0, 5, 0)], 0, "{}")  # type: ignore[arg-type]
    drop_table(target, TableName("shop", "orders"), "0")
    assert log.exists()
