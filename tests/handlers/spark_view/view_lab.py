"""A lake made by hand: Delta tables by Spark, segments by the log itself."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from delta_reading import check_read

from handlers.spark.log.marks import Marks
from handlers.spark.log.segments import SegmentLog
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.read.current import columns_of
from handlers.spark.read.in_duckdb import Source
from handlers.spark.read.view import view_sql
from handlers.spark.rows.shape import Mode, Shape, added_columns, log_schema
from handlers.spark.table_ref import TableRef, quoted

__all__ = ["COLUMNS", "ORDERS", "HandMade", "row", "shape"]


def shape(key: Sequence[str] = ("id",), **types: pa.DataType) -> Shape:
    return Shape(pa.schema(list(types.items())), tuple(key))


ORDERS = shape(id=pa.int64(), name=pa.string(), price=pa.int32())


COLUMNS = "id BIGINT, name STRING, price INT"


def row(
    id: int, name: str | None = None, price: int | None = None, op: str = "upsert", **more: object
) -> dict[str, object]:
    return {"op": op, "id": id, "name": name, "price": price, **more}


class HandMade:
    """One table of a lake: `shop.orders` unless told otherwise."""

    def __init__(
        self, spark: Any, lake: Path, *, table: str = "shop/orders", mode: Mode = "replica", prefix: str = "_"
    ) -> None:
        self.spark = spark
        self.mode: Mode = mode
        self.prefix = prefix
        self.path = str(lake / table)
        self.log_folder = str(lake / "_binlane" / table / "pending")
        database, name = table.split("/")
        self.ref = TableRef(
            f"delta.{quoted(self.path)}", self.path, self.log_folder, f"binlane:{database}.{name}"
        )
        self.log = SegmentLog(LocalFiles(), self.log_folder)
        self.marks = Marks()
        self.owner = {"database": database, "table": name, "mode": mode}

    def table(self, columns: str, *rows: str, properties: str = "") -> None:
        """A Delta table of these columns and rows, as they stand in SQL."""
        if not rows or properties:
            self.spark.sql(f"CREATE TABLE {self.ref.sql} ({columns}) USING delta {properties}")
            return
        # In one commit: it is half of what a test takes.
        named = [column.rpartition(" ") for column in columns.split(", ")]
        casts = ", ".join(f"CAST({name} AS {kind}) AS {name}" for name, _, kind in named)
        names = ", ".join(name for name, _, _ in named)
        self.spark.sql(
            f"CREATE TABLE {self.ref.sql} USING delta AS "
            f"SELECT {casts} FROM VALUES {', '.join(rows)} AS t({names})"
        )

    def put(self, *rows: Mapping[str, Any], of: Shape = ORDERS, partial: bool = False) -> int:
        """A segment; what is not named of a row is null. Returns its number."""
        schema = log_schema(of, mode=self.mode, prefix=self.prefix)
        added = {name.removeprefix(self.prefix) for name in added_columns(self.mode, self.prefix, keyed=True)}
        named = [
            {
                (self.prefix + name if name in added | {"before", "row"} else name): v
                for name, v in row.items()
            }
            for row in rows
        ]
        if not self.log.last:
            self.log.load()
            Path(self.log_folder).parent.mkdir(parents=True, exist_ok=True)
            Path(self.log_folder).parent.joinpath("table.json").write_bytes(msgspec.json.encode(self.owner))
        return self.log.append(
            pa.Table.from_pylist(named, schema=schema), self.marks, key=of.key, partial=partial
        ).number

    def view(self, of: Shape = ORDERS) -> str:
        return view_sql(
            self.ref, of, mode=self.mode, prefix=self.prefix, columns=columns_of(self.spark, self.ref)
        )

    def shown(self, of: Shape = ORDERS, columns: str = "*") -> list[tuple[Any, ...]]:
        """What the view shows, in order: the same as is read without Spark."""
        view = f"({self.view(of)})"
        check_read(self.spark.sql(f"SELECT * FROM {view}"), Source(LocalFiles(), self.ref, self.prefix))
        return self.rows(view, columns)

    def rows(self, source: str, columns: str = "*") -> list[tuple[Any, ...]]:
        return sorted(
            (tuple(row) for row in self.spark.sql(f"SELECT {columns} FROM {source}").collect()), key=str
        )
