"""What stands in files of Parquet, and where."""

from __future__ import annotations

from datetime import UTC, datetime
from decimal import Decimal
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from parquet_lab import HOUR_MS, NOON_MS, Lake, orders
from pydantic import ValidationError

from handlers import HandlerContext, Rejected
from handlers.files.handler import FilesHandler
from handlers.testing import make_batch

TYPES = {"id": "bigint", "total": "decimal(5,2)", "at": "datetime(6)", "note": "varchar(20)"}


def row(number: int, total: str = "1.50") -> dict[str, object]:
    return {"id": number, "total": Decimal(total), "at": datetime(2025, 11, 13, 12), "note": "é"}


def test_each_change_is_a_row_with_the_types_of_its_source(lake: Lake) -> None:
    changes = [
        {"after": row(1), "source_time_ms": NOON_MS},
        {"before": row(1), "after": row(1, "2.50"), "source_time_ms": NOON_MS},
        {"before": row(1, "2.50"), "op": "delete", "source_time_ms": NOON_MS},
    ]
    with lake.handler() as handler:
        handler.handle(make_batch("shop.orders", changes, key="id", types=TYPES, topic="cdc", offset=7))
    [file] = lake.files()
    schema = pq.read_schema(file)
    assert [schema.field(name).type for name in TYPES] == [
        pa.int64(),
        pa.decimal128(5, 2),
        pa.timestamp("us"),
        pa.string(),
    ]
    inserted, updated, deleted = lake.rows()
    assert {name: inserted[name] for name in TYPES} == row(1)
    assert [(one["_op"], one["_offset"], one["total"]) for one in (inserted, updated, deleted)] == [
        ("insert", 7, Decimal("1.50")),
        ("update", 8, Decimal("2.50")),
        ("delete", 9, Decimal("2.50")),
    ]
    assert (inserted["_before"], updated["_before"]["total"]) == (None, Decimal("1.50"))
    assert inserted["_source_time"] == datetime(2025, 11, 13, 12, tzinfo=UTC)
    assert (inserted["_topic"], inserted["_partition"], inserted["_index"]) == ("cdc", 0, 0)


def test_a_file_is_in_the_hour_of_its_first_change(lake: Lake) -> None:
    with lake.handler() as handler:
        handler.handle(orders(5, 3, every_ms=HOUR_MS // 2))
        handler.handle(orders(8, time_ms=NOON_MS + HOUR_MS))
        handler.handle(orders(9, time_ms=NOON_MS))  # never an earlier one than before
    assert lake.names() == [
        "source=cdc-0/hour=2025-11-13-12/0000-00000000000000000000-000000.parquet",
        "source=cdc-0/hour=2025-11-13-13/0000-00000000000000000007-000001.parquet",
        "source=cdc-0/hour=2025-11-13-13/0000-00000000000000000008-000001.parquet",
    ]


def test_statements_are_rows_too(lake: Lake) -> None:
    with lake.handler() as handler:
        handler.handle(orders(1))
        handler.handle(make_batch("shop.orders", [{"sql": "TRUNCATE orders"}], topic="cdc", offset=2))
        added = [{"after": {"id": 3, "n": 0, "note": "x"}, "source_time_ms": NOON_MS}]
        types = {"id": "int", "n": "int", "note": "text"}
        handler.handle(make_batch("shop.orders", added, key="id", types=types, topic="cdc", offset=3))
    assert [(one["_op"], one["_sql"], one["id"]) for one in lake.rows()] == [
        ("insert", None, 1),
        ("ddl", "TRUNCATE orders", None),
        ("insert", None, 3),
    ]
    assert "note" in pq.read_schema(lake.files()[-1]).names


def test_names_of_tables_and_topics_make_no_folders_of_their_own(lake: Lake) -> None:
    with lake.handler() as handler:
        batch = make_batch("a/b.../../etc/passwd", [{"id": 1}], key="id", topic="a=b/../c")
        handler.handle(batch)
    [file] = lake.folder.rglob("*.parquet")
    below = file.relative_to(lake.folder / "lake")
    assert len(below.parts) == 5
    assert ".." not in below.parts
    assert below.parts[2] == "source=a%3Db%2F..%2Fc-0"


def test_a_value_that_does_not_fit_rejects_its_change_and_writes_nothing(lake: Lake) -> None:
    changes = [{"after": row(number, "99999.99" if number == 2 else "1.50")} for number in range(4)]
    batch = make_batch("shop.orders", changes, key="id", types=TYPES, topic="cdc")
    with lake.handler() as handler:
        with pytest.raises(Rejected, match=r"total.*99999\.99.*cdc\[0\] offset 2") as told:
            handler.handle(batch)
        assert told.value.at == 2
        assert lake.files() == []


def test_the_prefix_of_added_columns_can_be_set(lake: Lake) -> None:
    with lake.handler(prefix="cdc_") as handler:
        handler.handle(make_batch("shop.t", [{"id": 1, "_op": "mine"}], key="id", topic="cdc"))
        handler.handle(make_batch("shop.t", [{"id": 2, "_op": "mine"}], key="id", topic="cdc", offset=1))
    rows = [one for file in lake.files("shop/t") for one in pq.ParquetFile(file).read().to_pylist()]
    assert [(one["cdc_op"], one["_op"]) for one in rows] == [("insert", "mine")] * 2


@pytest.mark.parametrize(
    ("options", "told"),
    [
        ({"format": "parquet", "rotate_every": "1m"}, "rotate_every is not for format: parquet"),
        ({"prefix": "x"}, "prefix is not for format: jsonl"),
        ({"directory": "s3://lake/x"}, "an object store needs format: parquet"),
        ({"directory": "ftp://lake", "format": "parquet"}, "ftp:// is not a store"),
    ],
)
def test_options_that_do_not_go_together_are_faults(options: dict[str, str], told: str) -> None:
    with pytest.raises(ValidationError, match=told):
        FilesHandler(**{"directory": "lake", **options})


def test_check_leaves_nothing_behind(lake: Lake, tmp_path: Path) -> None:
    with lake.handler():
        pass
    assert list(tmp_path.iterdir()) == []


def test_check_finds_a_directory_that_could_be_made_and_refuses_one_that_is_a_file(tmp_path: Path) -> None:
    context = HandlerContext(worker="w", handler="files", folder=tmp_path)
    FilesHandler(directory="raw/deep", format="parquet").check(context)
    assert list(tmp_path.iterdir()) == []
    (tmp_path / "raw").write_text("")
    with pytest.raises(OSError, match="raw"):
        FilesHandler(directory="raw", format="parquet").check(context)
