"""Each change is in one file, however often, in whatever pieces and to however many workers it comes."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import ExitStack
from random import Random
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import structlog
from parquet_lab import HOUR_MS, NOON_MS, Lake, orders, part
from servers.s3_server import S3Server

from handlers import Batch, TargetUnavailable
from handlers.files.handler import FilesHandler
from handlers.files.parquet_chain import BrokenFile
from handlers.progress import FormerTopic
from handlers.sharding import shard_of
from handlers.spark.log.stores.local import LocalFiles
from handlers.testing import make_batch, opened


def numbers(*ranges: tuple[int, int]) -> list[tuple[int, int]]:
    return [(number, 0) for first, end in ranges for number in range(first, end)]


def test_a_batch_that_comes_again_writes_nothing(lake: Lake) -> None:
    batch = orders(0, 10)
    with lake.handler() as handler:
        handler.handle(batch)
        handler.handle(batch)
    with lake.handler() as after_a_restart:
        after_a_restart.handle(batch)
    assert lake.places() == numbers((0, 10))
    assert len(lake.files()) == 1


@pytest.mark.parametrize("seed", range(8))
def test_batches_cut_otherwise_by_several_workers_are_written_once(lake: Lake, seed: int) -> None:
    """Each of them believes that the partition is its own, as one that was frozen does; some restart."""
    random = Random(seed)
    batch = orders(0, 120, every_ms=HOUR_MS // 20)
    with ExitStack() as stack:
        workers = [stack.enter_context(lake.handler()) for _ in range(3)]
        done = 0
        while done < 120:
            start = random.randint(max(0, done - 25), done)
            end = random.randint(start, min(120, start + 40))
            if start < end:
                random.choice(workers).handle(part(batch, start, end))
                done = max(done, end)
            if random.random() < 0.2:
                workers[random.randrange(3)] = stack.enter_context(lake.handler())
    assert lake.places() == numbers((0, 120))
    assert len(lake.files()) > 5


def test_a_worker_that_has_lost_the_partition_meets_the_file_of_the_one_that_has_it(lake: Lake) -> None:
    """Both know the files up to 9; their batches begin alike and end differently, in another hour each."""
    batch = orders(0, 40, every_ms=HOUR_MS // 10)
    with lake.handler() as old, lake.handler() as new:
        for handler in (old, new):
            handler.handle(part(batch, 0, 10))
        old.handle(part(batch, 10, 15))
        new.handle(part(batch, 8, 33))
        old.handle(part(batch, 15, 40))
    assert lake.places() == numbers((0, 40))


def test_a_crash_between_two_files_of_a_batch_writes_the_first_once(
    lake: Lake, monkeypatch: pytest.MonkeyPatch
) -> None:
    rows = [{"after": {"id": 1}}, {"sql": "TRUNCATE t"}, {"after": {"id": 2}}]
    batch = make_batch("shop.orders", rows, key="id", types={"id": "int"}, topic="cdc")
    put, left = LocalFiles.put, [2]

    def full(self: LocalFiles, path: str, data: bytes | pa.Buffer) -> None:
        left[0] -= 1
        if left[0] < 0:
            raise _full(path)
        put(self, path, data)

    with lake.handler() as handler:
        monkeypatch.setattr(LocalFiles, "put", full)
        with pytest.raises(TargetUnavailable, match="no space"):
            handler.handle(batch)
        monkeypatch.setattr(LocalFiles, "put", put)
    with lake.handler() as again:
        again.handle(batch)
    assert lake.places() == numbers((0, 3))


def _full(path: str) -> OSError:
    from handlers.spark.log.stores.interface import FilesError

    return FilesError(f"cannot write {path}: no space left on device", is_outage=True)


def test_what_is_in_the_way_of_a_table_makes_it_wait(lake: Lake) -> None:
    in_the_way = lake.folder / "lake" / "shop" / "orders"
    with lake.handler() as handler:
        in_the_way.parent.mkdir(parents=True)
        in_the_way.write_text("in the way")
        with pytest.raises(TargetUnavailable, match="orders") as caught:
            handler.handle(orders(0, 3))
        assert caught.value.others_go_on
        in_the_way.unlink()
        handler.handle(orders(0, 3))
    assert len(lake.places()) == 3


def test_partitions_and_topics_are_apart(lake: Lake) -> None:
    with lake.handler() as handler:
        handler.handle(orders(50, 2, partition=0))
        handler.handle(orders(3, 2, partition=1))
        handler.handle(orders(3, 2, topic="other"))
        both = [*orders(52, partition=0).changes, *orders(5, partition=1).changes]
        handler.handle(Batch("shop.orders", both, database="shop", name="orders"))
    found = [(one["_topic"], one["_partition"], one["_offset"]) for one in lake.rows()]
    assert found == [
        *[("cdc", 0, offset) for offset in (50, 51, 52)],
        *[("cdc", 1, offset) for offset in (3, 4, 5)],
        *[("other", 0, offset) for offset in (3, 4)],
    ]


def test_rows_of_one_record_are_told_apart_by_their_index(lake: Lake) -> None:
    rows = [{"after": {"id": number}, "offset": 7, "index": number} for number in range(4)]
    batch = make_batch("shop.orders", rows, key="id", topic="cdc")
    with lake.handler() as handler:
        handler.handle(part(batch, 0, 2))
    with lake.handler() as handler:
        handler.handle(batch)
    assert lake.places() == [(7, 0), (7, 1), (7, 2), (7, 3)]


def test_a_partition_that_comes_back_is_looked_at_anew(lake: Lake) -> None:
    """Meanwhile another worker has written, in later hours."""
    mine = {("cdc", 0)}
    batch = orders(0, 60, every_ms=HOUR_MS // 10)
    with lake.handler(partitions=lambda: mine) as one, lake.handler() as other:
        one.handle(part(batch, 0, 10))
        mine.clear()
        one.release([("cdc", 0)])
        one.handle(part(batch, 5, 12))  # late: it was under way
        other.handle(part(batch, 5, 50))
        mine.add(("cdc", 0))
        one.handle(part(batch, 45, 60))
    assert lake.places() == numbers((0, 60))


# ---- order_by: row


def by_shard(batch: Batch) -> dict[int | None, Batch]:
    shards: dict[int | None, list[Any]] = {}
    for change in batch.changes:
        shards.setdefault(shard_of(change), []).append(change)
    return {
        shard: Batch(batch.table, changes, database=batch.database, name=batch.name, shard=shard)
        for shard, changes in shards.items()
    }


def test_shards_advance_each_for_itself_and_whole_batches_know_what_they_did(lake: Lake) -> None:
    batch = orders(0, 200)
    shards = by_shard(batch)
    ahead = list(shards.values())[:5]
    with lake.handler() as handler:
        for one in ahead:
            handler.handle(one)
            handler.handle(one)
    with lake.handler() as by_table:
        by_table.handle(batch)
    with lake.handler() as by_row_again:
        for one in shards.values():
            by_row_again.handle(one)
    assert lake.places() == numbers((0, 200))


def test_files_of_the_other_order_that_go_further_are_told_once(lake: Lake) -> None:
    """A worker that is late with its batches of the whole table would not meet those of shards."""
    batch = orders(0, 20)
    with structlog.testing.capture_logs() as logs:
        with lake.handler() as by_table:
            by_table.handle(part(batch, 0, 10))
        assert logs == []
        with lake.handler() as by_row:
            for one in by_shard(part(batch, 10, 20)).values():
                by_row.handle(one)
        with lake.handler() as by_table_again:
            by_table_again.handle(batch)
    told = [line for line in logs if line["event"] == "files_of_other_order"]
    assert [("-s" in line["path"], line["table"]) for line in told] == [
        (False, "shop.orders"),
        (True, "shop.orders"),
    ]
    assert lake.places() == numbers((0, 20))


# ---- topics made anew


def test_a_topic_that_was_made_anew_is_written_from_its_beginning(lake: Lake) -> None:
    with lake.handler() as handler:
        handler.handle(orders(0, 5, topic_id="A"))
    with lake.handler() as handler:
        handler.handle(orders(0, 3, topic_id="B"))
        handler.handle(orders(0, 3, topic_id="B"))
    with lake.handler() as handler:
        handler.handle(orders(2, 4, topic_id="B"))
        with pytest.raises(FormerTopic):
            handler.handle(orders(5, 3, topic_id="A"))
    assert lake.places() == sorted(numbers((0, 5), (0, 6)))


# ---- what is found


def test_only_the_newest_folder_and_one_footer_are_read(lake: Lake, monkeypatch: pytest.MonkeyPatch) -> None:
    batch = orders(0, 100, every_ms=HOUR_MS)
    with lake.handler() as handler:
        for start in range(0, 100, 10):
            handler.handle(part(batch, start, start + 10))
    listed: list[str] = []
    lists = LocalFiles.list
    monkeypatch.setattr(
        LocalFiles, "list", lambda self, folder: (listed.append(folder), lists(self, folder))[1]
    )
    with lake.handler() as handler:
        handler.handle(part(batch, 95, 100))
        handler.handle(part(batch, 95, 100))
    assert len(listed) == 3, "the table's, the source's and its newest hour's"
    assert lake.places() == numbers((0, 100))


def test_an_empty_folder_of_an_hour_hides_nothing(lake: Lake) -> None:
    with lake.handler() as handler:
        handler.handle(orders(0, 5))
    (lake.files()[0].parents[1] / "hour=2030-01-01-00").mkdir()
    with lake.handler() as handler:
        handler.handle(orders(0, 7))
    assert lake.places() == numbers((0, 7))


def test_a_newest_file_that_is_damaged_has_its_table_wait_by_name(lake: Lake) -> None:
    """As a target that is down: no change is to blame, and none may be skipped or set aside for it."""
    with lake.handler() as handler:
        handler.handle(orders(0, 5))
    [file] = lake.files()
    whole = file.read_bytes()
    for damage in (b"PAR1 no", pa.BufferOutputStream().getvalue().to_pybytes()):
        file.write_bytes(damage)
        with lake.handler() as handler, pytest.raises(TargetUnavailable, match=f"{file.name}.*Restore it"):
            handler.handle(orders(0, 7))
    table = pa.table({"id": [1]})
    pq.write_table(table, file)
    with lake.handler() as handler:
        with pytest.raises(TargetUnavailable, match="another program wrote it") as broken:
            handler.handle(orders(0, 7))
        assert broken.value.others_go_on
        assert isinstance(broken.value.__cause__, BrokenFile)
        file.write_bytes(whole)
        handler.handle(orders(0, 7))
    assert lake.places() == numbers((0, 7))


def test_what_is_passed_over_is_counted(lake: Lake) -> None:
    counted: dict[str, float] = {}

    class Metrics:
        def count(self, name: str, amount: float = 1, **labels: str) -> None:
            counted[name] = counted.get(name, 0) + amount

        def observe(self, name: str, seconds: float, **labels: str) -> None: ...

    with lake.handler(metrics=Metrics()) as handler:
        handler.handle(orders(0, 5))
        handler.handle(orders(3, 4))
    assert counted["binlane_handler_passed_over_total"] == 2


def test_a_change_of_long_ago_is_found_again(lake: Lake) -> None:
    """A year of fewer than four digits."""
    batch = orders(0, 4, time_ms=-60_000_000_000_000)
    with lake.handler() as handler:
        handler.handle(part(batch, 0, 2))
        handler.handle(orders(2, 2))
    with lake.handler() as after_a_restart:
        after_a_restart.handle(part(batch, 0, 2))
        after_a_restart.handle(orders(2, 4))
    assert lake.places() == numbers((0, 6))
    hours = ["0068-09-03-13", "2025-11-13-12", "2025-11-13-12"]
    assert [name.split("/")[1] for name in lake.names()] == [f"hour={hour}" for hour in hours]


# ---- object stores


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    yield s3.new_bucket()
    s3.honest()


def keys(s3: S3Server, bucket: str) -> list[str]:
    return sorted(one["path"] for page in obstore.list(s3.client(bucket)) for one in page)


def offsets(s3: S3Server, bucket: str) -> list[int]:
    found = []
    for key in keys(s3, bucket):
        data = pa.BufferReader(bytes(obstore.get(s3.client(bucket), key).bytes()))
        found += pq.read_table(data, partitioning=None)["_offset"].to_pylist()
    return sorted(found)


def test_an_object_store_takes_the_same_files(s3: S3Server, bucket: str) -> None:
    def handler() -> Any:
        return opened(FilesHandler(directory=f"s3://{bucket}/raw", format="parquet"))

    with handler() as one, handler() as two:
        one.handle(orders(0, 5))
        s3.lost_answers = 1  # the client asks again, and is told that the file is there: it is its own
        two.handle(orders(0, 9))
        one.handle(orders(3, 9, time_ms=NOON_MS + HOUR_MS))
    with handler() as again:
        again.handle(orders(0, 15))
    assert s3.lost_answers == 0
    assert offsets(s3, bucket) == list(range(15))
    assert keys(s3, bucket)[0] == (
        "raw/shop/orders/source=cdc-0/hour=2025-11-13-12/0000-00000000000000000000-000000.parquet"
    )


def test_a_store_that_is_away_is_waited_for(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    from handlers.spark.log.stores import object_stores

    monkeypatch.setattr(object_stores, "_TRIES_SECONDS", 0.3)
    for name, value in {**s3.environment, "AWS_ENDPOINT_URL": "http://127.0.0.1:9"}.items():
        monkeypatch.setenv(name, value)
    away = FilesHandler(directory="s3://lake/raw", format="parquet")
    with (
        opened(away) as handler,
        pytest.raises(TargetUnavailable, match=r"cannot (list|write) s3://lake/raw"),
    ):
        handler.handle(orders(0))
