"""Spark reads segments as they are meant, and its Hadoop libraries hold what a store promises."""

from __future__ import annotations

import datetime as dt
from collections.abc import Iterator
from decimal import Decimal
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pyarrow as pa
import pytest
from files_contract import FilesContract
from log_lab import change, place_of, places_of, rows, take
from spark_sessions import SparkKeeper

from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.store_choice import files_for
from handlers.spark.log.stores.hadoop import HadoopFiles
from handlers.spark.log.stores.interface import Files, FilesError, temporary_name
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.runtime.session import SharedSpark

SCHEMA = pa.schema(
    [
        ("_op", pa.string()),
        ("_source_time", pa.timestamp("us", tz="UTC")),
        ("_absent", pa.list_(pa.string())),
        ("id", pa.int64()),
        ("small", pa.int8()),
        ("price", pa.decimal128(12, 2)),
        ("huge", pa.decimal128(38, 10)),
        ("ratio", pa.float32()),
        ("at", pa.timestamp("us")),
        ("day", pa.date32()),
        ("blob", pa.binary()),
        ("is_new", pa.bool_()),
        ("_before", pa.struct([("at", pa.timestamp("us")), ("price", pa.decimal128(12, 2))])),
    ]
)
NTZ = dt.datetime(1969, 12, 31, 23, 59, 59, 999_999)
ROW = {
    "_op": "upsert",
    "_source_time": dt.datetime(2026, 11, 21, 8, 0, 0, 123_456, tzinfo=dt.UTC),
    "_absent": ["price", "订单"],
    "id": -(2**63),
    "small": -128,
    "price": Decimal("-9999999999.99"),
    "huge": Decimal("1234567890123456789012345678.0123456789"),
    "ratio": 1.5,
    "at": NTZ,
    "day": dt.date(1582, 10, 4),
    "blob": b"\x00\xff",
    "is_new": True,
    "_before": {"at": NTZ, "price": Decimal("0.01")},
}


_LINK = "fs.viewfs.mounttable.test.link./lake"
_ZONE = "spark.sql.session.timeZone"


@pytest.fixture(scope="module")
def spark(spark_keeper: SparkKeeper, tmp_path_factory: pytest.TempPathFactory) -> Iterator[SharedSpark]:
    folder = tmp_path_factory.mktemp("spark")
    (folder / "mounted").mkdir()
    shared = spark_keeper.get()
    context = shared.session._jsparkSession.sparkContext()
    context.hadoopConfiguration().set(_LINK, f"file://{folder}/mounted")
    zone = shared.session.conf.get(_ZONE)
    # A time without a zone must not notice: new sessions begin with the context's settings.
    context.conf().set(_ZONE, "Asia/Shanghai")
    shared.session.conf.set(_ZONE, "Asia/Shanghai")
    yield shared
    context.conf().set(_ZONE, zone)
    shared.session.conf.set(_ZONE, zone)
    context.hadoopConfiguration().unset(_LINK)


@pytest.fixture
def mounted(spark: SharedSpark) -> Path:
    conf = spark.session._jsparkSession.sessionState().newHadoopConf()
    return Path(conf.get("fs.viewfs.mounttable.test.link./lake").removeprefix("file://"))


class TestHadoop(FilesContract):
    @pytest.fixture
    def folder(self, tmp_path: Path) -> Path:
        return tmp_path

    @pytest.fixture
    def root(self, folder: Path) -> str:
        return f"file:{folder}"

    @pytest.fixture
    def files(self, spark: SharedSpark, root: str) -> Files:
        return HadoopFiles(spark.session, root)

    def test_a_file_stays_until_another_is_whole(self, files: Files, root: str) -> None:
        files.put(f"{root}/log/last", b"old")
        with pytest.raises(TypeError):  # the write ends before its first byte
            files.replace(f"{root}/log/last", cast(Any, 1.5))
        assert files.read(f"{root}/log/last") == b"old"
        files.replace(f"{root}/log/last", b"new")
        assert files.read(f"{root}/log/last") == b"new"
        assert [each.name for each in files.list(f"{root}/log") if not each.name.endswith(".crc")] == ["last"]


class TestAnotherScheme(FilesContract):
    """Hadoop's own view of several stores as one: configured in the session, and not the default."""

    @pytest.fixture
    def folder(self, mounted: Path, tmp_path: Path) -> Path:
        (mounted / tmp_path.name).mkdir()
        return mounted / tmp_path.name

    @pytest.fixture
    def root(self, folder: Path) -> str:
        return f"viewfs://test/lake/{folder.name}"

    @pytest.fixture
    def files(self, spark: SharedSpark, root: str) -> Files:
        files = files_for(root, spark)
        assert isinstance(files, HadoopFiles)
        return files


def test_spark_reads_the_types_and_values_that_were_put(spark: SharedSpark, tmp_path: Path) -> None:
    log = SegmentLog(LocalFiles(), f"{tmp_path}/orders/_binlane/pending")
    nothing = {"_op": "delete", "_source_time": ROW["_source_time"], "id": 1}
    log.append(pa.Table.from_pylist([ROW], SCHEMA), Marks())
    log.append(SCHEMA.empty_table(), Marks())
    log.append(pa.Table.from_pylist([nothing], SCHEMA), Marks())
    frame = spark.session.read.parquet(log.folder)
    assert {field.name: field.dataType.simpleString() for field in frame.schema.fields} == {
        "_op": "string",
        "_source_time": "timestamp",
        "_absent": "array<string>",
        "id": "bigint",
        "small": "tinyint",
        "price": "decimal(12,2)",
        "huge": "decimal(38,10)",
        "ratio": "float",
        "at": "timestamp_ntz",
        "day": "date",
        "blob": "binary",
        "is_new": "boolean",
        "_before": "struct<at:timestamp_ntz,price:decimal(12,2)>",
    }
    found = frame.orderBy("id").toArrow().to_pylist()
    assert found == [ROW, {**dict.fromkeys(SCHEMA.names), **nothing}]


def test_spark_passes_over_what_is_not_a_segment_yet(spark: SharedSpark, tmp_path: Path) -> None:
    log = SegmentLog(LocalFiles(), f"{tmp_path}/pending")
    for offset in range(4):
        take(log, [change(offset)])
    log.remove(2)
    Path(log.folder, temporary_name()).write_bytes(b"PAR1 torn")
    found = spark.session.read.parquet(log.folder).orderBy("_offset").select("_offset").collect()
    assert [row["_offset"] for row in found] == [2, 3]


@pytest.mark.soak
def test_delta_leaves_the_log_in_its_tables_folder_alone(spark: SharedSpark, tmp_path: Path) -> None:
    table = f"{tmp_path}/orders"
    log = SegmentLog(LocalFiles(), f"{table}/_binlane/pending")
    mine = spark.session.newSession()
    mine.conf.set("spark.databricks.delta.retentionDurationCheck.enabled", "false")
    # VACUUM lists folders in that many tasks: 10,000 of them else.
    mine.conf.set("spark.sql.sources.parallelPartitionDiscovery.parallelism", "2")
    take(log, [change(0)])  # the log may be there before its table
    mine.range(7, 8).write.format("delta").mode("append").save(table)
    mine.sql(f"VACUUM delta.`{table}` RETAIN 0 HOURS")
    assert [row["id"] for row in mine.sql(f"SELECT id FROM delta.`{table}`").collect()] == [7]
    log.load()
    assert log.last == 1


def test_a_log_is_kept_in_any_store_of_hadoops(spark: SharedSpark, mounted: Path, tmp_path: Path) -> None:
    folder = f"viewfs://test/lake/{tmp_path.name}/shop/orders/_binlane/pending"
    files = files_for(folder, spark)
    changes = [change(offset) for offset in range(6)]
    for one in changes:
        log = SegmentLog(files, folder)
        log.load()
        take(log, changes[: one.offset + 1])
    log.remove(2)
    again = SegmentLog(files, folder)
    again.load()
    assert again.segments == log.segments
    assert places_of(files, again) == [place_of(one) for one in changes[2:]]
    assert spark.session.read.parquet(folder).count() == 4
    late = SegmentLog(LocalFiles(), f"{mounted}/{tmp_path.name}/shop/orders/_binlane/pending")
    late.load()
    assert late.marks == log.marks


def test_a_plain_path_belongs_to_the_session_s_default_store(spark: SharedSpark, tmp_path: Path) -> None:
    assert isinstance(files_for(str(tmp_path), spark), LocalFiles)
    other = spark.session.newSession()
    other.conf.set("fs.defaultFS", "viewfs://test/")
    beside: Any = SimpleNamespace(session=other, is_classic=True)
    files = files_for(f"/lake/{tmp_path.name}", beside)
    files.put(f"/lake/{tmp_path.name}/one", b"x")
    assert files_for("viewfs://test/lake", spark).read(f"viewfs://test/lake/{tmp_path.name}/one") == b"x"
    assert isinstance(files_for(f"file:{tmp_path}", beside), LocalFiles)


def test_a_store_without_its_connector_is_told(spark: SharedSpark) -> None:
    advice = "name the store's connector under spark.packages"
    for uri in ("s3a://lake/shop", "nope://lake/shop"):
        with pytest.raises(FilesError, match=f"cannot reach {uri}: .*; {advice}"):
            files_for(uri, spark)


def test_a_put_without_a_rename_takes_no_place_twice(spark: SharedSpark, tmp_path: Path) -> None:
    """As in object stores, where a file appears when its stream is closed."""
    files = HadoopFiles(spark.session, f"file:{tmp_path}")
    files._lands_whole = True
    data = rows([change(offset) for offset in range(100)])["_offset"].to_pylist()
    files.put(f"file:{tmp_path}/one", bytes(data))
    with pytest.raises(FileExistsError):
        files.put(f"file:{tmp_path}/one", b"other")
    assert (tmp_path / "one").read_bytes() == bytes(range(100))
