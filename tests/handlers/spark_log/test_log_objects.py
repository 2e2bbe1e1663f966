"""Object stores hold what a store promises, or are refused: S3, with a server of its own."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from types import SimpleNamespace
from typing import Any

import obstore
import pyarrow as pa
import pytest
from deltalake import DeltaTable
from files_contract import OneWinsContract
from log_lab import change, place_of, places_of, take
from servers.s3_server import S3Server

from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.delta.commits.exactly_once import MergeConflict
from handlers.spark.delta.modes.bringing import Bringing
from handlers.spark.delta.without_spark import WithoutSpark
from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.store_choice import commits_are_safe, files_for
from handlers.spark.log.stores import object_stores as object_files
from handlers.spark.log.stores.interface import AlreadyThere, Files, FilesError, StoreOverwrites
from handlers.spark.log.stores.object_stores import ObjectFiles
from handlers.spark.options import SparkOptions, SparkSection
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
    table = _ObjectTable(files, f"{root}/shop/t")
    table.put({"id": 1, "name": "one"}, {"id": 2, "name": "two"})
    assert table.commit(files)
    for row in ({"id": 1, "name": "one"}, {"id": 2, "_op": "delete"}, {"id": 3, "name": "three"}):
        table.put(row)
    assert sorted(read_at(f"{root}/shop/t").column("name").to_pylist()) == ["one", "three"]
    with pytest.raises(LookupError, match="neither a table"):
        read_at(f"{root}/shop/no")


class _ObjectTable:
    """A replica in a store, and its log."""

    def __init__(self, files: Files, path: str) -> None:
        folder = f"{path.rpartition('/shop/')[0]}/_binlane/shop/t/pending"
        self.ref = TableRef(f"delta.`{path}`", path, folder, "binlane:shop.t")
        self.shape = Shape(pa.schema([("id", pa.int64()), ("name", pa.string())]), ("id",))
        self.log = SegmentLog(files, folder)
        self.log.load()

    def put(self, *rows: dict[str, Any]) -> None:
        schema = log_schema(self.shape, mode="replica", prefix="_")
        told = [{"_op": "upsert", **row} for row in rows]
        self.log.append(pa.Table.from_pylist(told, schema=schema), Marks(), key=("id",))

    def commit(self, files: Files) -> bool:
        """The newest segment."""
        newest = self.log.segments[-1]
        note = CommitNote("w", "spark", newest.number, newest.number, 0, {})
        what = Bringing(self.ref, [newest], self.shape, note, newest.number - 1)
        return WithoutSpark(OPTIONS, files).apply(what) is not None


OPTIONS = SparkOptions(mode="replica")


def test_commits_checkpoints_statements_and_upkeep_in_a_store(s3: S3Server, files: Files, root: str) -> None:
    table = _ObjectTable(files, f"{root}/shop/t")
    for number in range(12):
        table.put({"id": number % 5, "name": f"n{number}"}, {"id": 7, "_op": "delete"})
        assert table.commit(files)
    names = {entry.name for entry in files.list(f"{table.ref.path}/_delta_log")}
    assert {"_last_checkpoint", f"{10:020d}.checkpoint.parquet"} <= names
    next_version = WithoutSpark(OPTIONS, files).next_version(table.ref)
    assert next_version is not None
    assert next_version.alter("ADD COLUMNS", lambda columns: columns.add("more", "string"))
    with pytest.raises(MergeConflict):
        next_version.alter("ADD COLUMNS", lambda columns: columns.add("late", "string"))
    assert WithoutSpark(OPTIONS, files).optimize(table.ref)
    assert WithoutSpark(OPTIONS, files).vacuum(table.ref, 0)
    expected = [(number, f"n{10 + number if number < 2 else number + 5}", None) for number in range(5)]
    read = read_at(table.ref.path or "").sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in read] == expected
    path = (table.ref.path or "").replace("s3a://", "s3://")
    options = {**s3.environment, "AWS_ALLOW_HTTP": "true"}
    by_rs = DeltaTable(path, storage_options=options).to_pyarrow_table().sort_by("id").to_pylist()
    assert [tuple(row.values()) for row in by_rs] == expected


def test_of_two_commits_of_a_version_a_store_keeps_the_first(files: Files, root: str) -> None:
    table = _ObjectTable(files, f"{root}/shop/t")
    table.put({"id": 1, "name": "one"})
    assert table.commit(files)
    one, other = (WithoutSpark(OPTIONS, files).next_version(table.ref) for _ in range(2))
    assert one is not None
    assert other is not None
    one.put("WRITE", {}, note="one")
    with pytest.raises(MergeConflict, match="another writer has put version 1"):
        other.put("WRITE", {}, note="other")


@pytest.mark.parametrize(
    ("root", "section", "is_classic", "expected"),
    [
        ("/lake", {}, True, True),
        ("s3a://b/lake", {"single_writer": True}, True, False),
        ("s3a://b/lake", {"single_writer": True}, False, True),
        ("s3a://b/lake", {}, False, False),
        (
            "s3a://b/lake",
            {"single_writer": True, "conf": {"spark.delta.logStore.s3a.impl": "S3DynamoDBLogStore"}},
            False,
            False,
        ),
        ("abfss://c@a.dfs.core.windows.net/lake", {}, False, True),
        ("gs://b/lake", {}, False, True),
        ("wasb://b/lake", {}, False, False),
    ],
)
def test_commits_without_spark_only_where_sparks_own_go_well_with_them(
    root: str, section: dict[str, Any], is_classic: bool, expected: bool
) -> None:
    spark = SimpleNamespace(is_classic=is_classic, section=SparkSection.model_validate(section))
    assert commits_are_safe(root, spark, assume_local=True) is expected
