"""Object stores hold what a store promises, or are refused: S3, with a server of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import obstore
import pyarrow as pa
import pytest
from files_contract import OneWinsContract
from log_lab import change, place_of, places_of, take
from servers.s3_server import S3Server

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.plain_table import make_table
from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.store_choice import files_for
from handlers.spark.log.stores import object_stores as object_files
from handlers.spark.log.stores.conditional_put_check import StoreOverwrites
from handlers.spark.log.stores.interface import AlreadyThere, Files, FilesError
from handlers.spark.log.stores.object_stores import ObjectFiles
from handlers.spark.read.in_duckdb import read_at
from handlers.spark.rows.shape import Shape, log_schema
from handlers.spark.table_ref import TableRef

CONNECT: Any = SimpleNamespace(is_classic=False, session=None)


@pytest.fixture(autouse=True)
def _environment(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    yield
    s3.honest()


@pytest.fixture
def bucket(s3: S3Server) -> str:
    return s3.new_bucket()


@pytest.fixture
def root(bucket: str) -> str:
    return f"s3a://{bucket}/shop lake"


@pytest.fixture
def files(root: str) -> Files:
    files = files_for(root, CONNECT)
    assert isinstance(files, ObjectFiles)
    return files


class TestS3(OneWinsContract):
    sets_times = False
    has_folders = False

    @pytest.fixture
    def seen(self, s3: S3Server, bucket: str) -> Callable[[str], bytes]:
        return lambda name: bytes(obstore.get(s3.client(bucket), f"shop lake/{name}").bytes())


def test_a_store_that_overwrites_is_refused_before_anything_is_put(
    s3: S3Server, bucket: str, files: Files, root: str
) -> None:
    s3.ignores_conditions = True
    for _ in range(2):
        with pytest.raises(StoreOverwrites, match=rf"{root}: this store accepted two puts .*If-None-Match"):
            files.prove(root)
    with pytest.raises(StoreOverwrites):
        files.put(f"{root}/one", b"x")
    assert obstore.list(s3.client(bucket)).collect() == []
    s3.honest()
    files.put(f"{root}/one", b"x")
    assert [entry.name for entry in files.list(root)] == ["one"]


def test_a_store_is_proven_once(s3: S3Server, files: Files, root: str) -> None:
    files.prove(root)
    before = len(s3.puts)
    files.put(f"{root}/one", b"x")
    assert len(s3.puts) == before + 1


def test_a_proof_whose_first_answer_was_lost_is_made_with_another_file(
    s3: S3Server, bucket: str, files: Files, root: str
) -> None:
    s3.lost_answers = 1
    files.put(f"{root}/one", b"x")
    assert s3.lost_answers == 0
    assert [entry.name for entry in files.list(root)] == ["one"]
    assert len(obstore.list(s3.client(bucket)).collect()) == 1


def test_a_put_whose_answer_was_lost_is_told_apart_by_what_the_log_holds(
    s3: S3Server, files: Files, root: str
) -> None:
    changes = [change(offset) for offset in range(6)]
    log = SegmentLog(files, f"{root}/pending")
    take(log, changes[:2])
    s3.lost_answers = 1  # the client asks again, and is told that the file is there: it is its own
    take(log, changes[:4])
    assert s3.lost_answers == 0
    take(log, changes)
    again = SegmentLog(files, f"{root}/pending")
    again.load()
    assert places_of(files, again) == [place_of(one) for one in changes]


def test_a_put_that_met_another_and_was_not_kept_is_put_again(s3: S3Server, files: Files, root: str) -> None:
    files.prove(root)
    s3.conflicts = 2
    files.put(f"{root}/one", b"x")
    assert files.read(f"{root}/one") == b"x"
    with pytest.raises(AlreadyThere):
        files.put(f"{root}/one", b"y")


def test_a_put_that_is_always_in_conflict_is_an_outage_and_leaves_nothing(
    s3: S3Server, files: Files, root: str
) -> None:
    files.prove(root)
    s3.conflicts = 100
    with pytest.raises(FilesError, match=rf"cannot write {root}/one: .*keeps reporting it as busy") as told:
        files.put(f"{root}/one", b"x")
    assert told.value.is_outage
    assert not files.exists(f"{root}/one")


def test_a_listing_of_many_pages_is_whole(s3: S3Server, bucket: str, files: Files, root: str) -> None:
    s3.fill(bucket, [f"shop lake/log/{number:020d}" for number in range(1_100)])
    assert len(files.list(f"{root}/log")) == 1_100
    files.delete_tree(f"{root}/log")
    assert files.list(f"{root}/log") == []


def test_a_folder_s_marker_of_hadoop_is_no_file(s3: S3Server, bucket: str, files: Files, root: str) -> None:
    s3.fill(bucket, ["shop lake/log/", "shop lake/log/sub/", "shop lake/log/1"])
    assert sorted((entry.name, entry.is_folder) for entry in files.list(f"{root}/log")) == [
        ("1", False),
        ("sub", True),
    ]


def test_a_store_that_is_away_is_an_outage(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AWS_ENDPOINT_URL", "http://127.0.0.1:9")
    monkeypatch.setattr("handlers.spark.log.stores.object_stores._TRIES_SECONDS", 1)
    files = files_for("s3a://lake/shop", CONNECT)
    with pytest.raises(FilesError, match="cannot write s3a://lake/shop/") as told:
        files.put("s3a://lake/shop/one", b"x")
    assert told.value.is_outage
    assert "\n" not in str(told.value)


def test_a_bucket_that_is_not_there_is_no_outage(files: Files) -> None:
    files = files_for("s3a://no-such-bucket/shop", CONNECT)
    with pytest.raises((FilesError, FileNotFoundError)) as told:
        files.prove("s3a://no-such-bucket/shop")
    assert not getattr(told.value, "is_outage", False)


def test_a_store_of_another_kind_is_told() -> None:
    with pytest.raises(
        FilesError, match=r"cannot reach oss://lake/shop: .*with Spark Connect also the warehouse"
    ):
        files_for("oss://lake/shop", CONNECT)


@pytest.mark.parametrize(
    ("said", "told"),
    [
        ("403 for GET http://a/b?sv=1&sig=TOP%2Babc%3D&se=2", "403 for GET http://a/b?sv=1&sig=***&se=2"),
        ("GET https://h/b/x?X-Amz-Signature=0123abcd", "GET https://h/b/x?X-Amz-Signature=***"),
        ("GET http://user:secret@127.0.0.1:9/b/x/y failed", "GET http://user:***@127.0.0.1:9/b/x/y failed"),
        ("GET http://127.0.0.1:9000/b/x (403 Forbidden)", "GET http://127.0.0.1:9000/b/x (403 Forbidden)"),
    ],
)
def test_what_a_url_tells_of_credentials_is_not_told(said: str, told: str) -> None:
    assert object_files._first_line(Exception(said)) == told


def test_a_table_and_its_waiting_changes_are_read_without_spark(files: Files, root: str) -> None:
    ref = TableRef(f"delta.`{root}/shop/t`", f"{root}/shop/t", f"{root}/_binlane/shop/t/pending")
    merged = pa.table({"id": pa.array([1, 2], pa.int64()), "name": ["one", "two"]})
    make_table(files, ref, merged, CommitNote("w", "spark", 1, 1, 0, {}), mode="replica")
    log = SegmentLog(files, ref.log_folder)
    log.load()
    shape = Shape(merged.schema, ("id",))
    schema = log_schema(shape, mode="replica", prefix="_")
    for row in ({"id": 1, "name": "one"}, {"id": 2, "_op": "delete"}, {"id": 3, "name": "three"}):
        log.append(pa.Table.from_pylist([{"_op": "upsert", **row}], schema=schema), Marks(), key=("id",))
    assert sorted(read_at(f"{root}/shop/t").column("name").to_pylist()) == ["one", "three"]
    with pytest.raises(LookupError, match="neither a table"):
        read_at(f"{root}/shop/no")
