"""Write differing rows of a replica as the source has them.

A worker may continue meanwhile. The table's version is noted before the source is read. A row is written only
if the table still has that version's row. Any later row from a worker is newer than the row that was read.
Rows that the worker writes later may be older, but the changes that follow end at the source's state."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import sqlalchemy as sa
from pyspark.sql import SparkSession
from pyspark.sql.types import BooleanType, MapType, StringType, StructType, VariantType
from sqlalchemy.dialects import postgresql

from handlers.spark.delta.commits.exactly_once import is_conflict
from handlers.spark.delta.evolving import look
from handlers.spark.log.store_choice import AnySpark, UnsafeForSeveral, check_store
from handlers.spark.read.current import version_of
from handlers.spark.runtime.errors import SPARK_ERRORS
from handlers.spark.table_ref import TableRef, quoted
from worker.verifying.checking import Check
from worker.verifying.comparing import Column, TooDifferent, can_be_found
from worker.verifying.replica import Replica, for_spark
from worker.verifying.source import Row
from worker.verifying.spark_lakes import Lake
from worker.verifying.written import Unwritable, written

_ROUNDS = 5
_SMALL = 16 * 2**20
"""The largest table, in bytes, into which rows are inserted. In a table above 32 MiB, a worker checks for
keys and then appends rows. A row inserted in between would exist twice (`delta.modes.replica`)."""
_WANTED = "binlane_wanted"
_TEXTS = (sa.String, sa.Uuid, postgresql.INET, postgresql.CIDR, postgresql.MACADDR)
_NO_VALUES = (MapType, VariantType)
"""Types whose values Spark cannot compare."""


def repair(check: Check, replica: Replica, lake: Lake, ref: TableRef, count: Callable[[int], None]) -> None:
    """Write the differing rows into the table, until none differ or nothing more can be done. `count`
    receives the number of rows that each commit wrote.

    Raises TooDifferent for a table that cannot be repaired, Unwritable for a value, and the errors of both
    sides."""
    _refuse(check)
    for _ in range(_ROUNDS):
        keys = list(dict.fromkeys(each.key for each in check.outcome.differences))
        rows: int | None = None
        with replica.session() as session:
            _refuse_place(session, lake, ref)
            try:
                rows = _write(session, check, ref, keys)
            except SPARK_ERRORS as error:
                if "MULTIPLE_SOURCE_ROW_MATCHING" in str(error):
                    raise TooDifferent("a key occurs more than once: rebuild the table") from None
                if not is_conflict(error):
                    raise
                # A worker has committed meanwhile, so the table is read again.
        count(rows or 0)
        check.forget(keys)
        if check.look_again() or not check.outcome.differences:
            return
        if rows == 0:
            raise TooDifferent(
                f"{check.outcome.different_rows:,} rows differ although they were written. Either waiting "
                "changes restore them until a worker has merged those, or their key does not find them. Or "
                "they are missing in a large table, to which a worker may be about to append them: have the "
                "source send these again"
            )
    raise TooDifferent(f"other writers interfered {_ROUNDS} times: try again when there are fewer changes")


def _refuse(check: Check) -> None:
    if not check.key:
        raise TooDifferent("it has no key to find its rows by: rebuild the table")
    if check.outcome.lacking:
        raise TooDifferent("the replica lacks columns: rebuild the table")
    if check.has_other_values:
        raise TooDifferent("its column rules mask, cast or add columns, which the source does not have")


def _refuse_keys(check: Check, target: StructType) -> None:
    """Refuse a text key whose text a worker would write differently: it would be another key."""
    types = {field.name.lower(): field.dataType for field in target.fields}
    for column in check.key_columns:
        is_text = isinstance(types[column.replica.lower()], StringType)
        if is_text and not isinstance(column.type, _TEXTS):
            raise TooDifferent(
                f"its key column {column.source} is text here, but {column.type} in the source: it is "
                "unknown which text a worker writes for it. Rebuild the table"
            )


def _refuse_place(session: SparkSession, lake: Lake, ref: TableRef) -> None:
    try:
        # The worker's promise to be the only writer does not apply here.
        check_store(lake.locations.root, AnySpark(session))
    except UnsafeForSeveral:
        raise TooDifferent(
            f"{lake.locations.root} is only safe for one writer, the worker: rebuild the table"
        ) from None


def _write(session: SparkSession, check: Check, ref: TableRef, keys: Sequence[Row]) -> int:
    version = version_of(session, ref)
    table = look(session, ref)
    if table is None:
        raise TooDifferent("there is no Delta table yet: let a worker merge the waiting changes first")
    target = table.columns
    _refuse_keys(check, target)
    if not all(map(can_be_found, keys)):
        raise TooDifferent("a key is NULL or not a number, or represents one: no row can be found by it")
    rows = check.source_rows(keys)
    # A key that was read before and is not found now was deleted, or this query cannot find it.
    keys = [key for key in keys if key in rows or check.may_be_gone(key)]
    if not keys:
        return 0
    _wanted(session, check, target, keys, rows)
    found = session.sql(_merge(check, ref, target, version, inserts=table.bytes <= _SMALL)).collect()
    return int(found[0]["num_affected_rows"]) if found else 0


def _wanted(
    session: SparkSession, check: Check, target: StructType, keys: Sequence[Row], rows: Mapping[Row, Row]
) -> None:
    """Create a view with each key, whether the source lacks its row, and the row's values."""
    types = {field.name.lower(): field.dataType for field in target.fields}
    schema = StructType()
    for number, column in enumerate(check.key_columns):
        schema.add(f"k{number}", types[column.replica.lower()])
    schema.add("gone", BooleanType())
    for number, column in enumerate(check.matched):
        schema.add(f"n{number}", types[column.replica.lower()])

    def values_of(key: Row) -> list[Any]:
        row = rows.get(key)
        if row is None:
            return [None] * len(check.matched)
        return [_value(column, value, types) for column, value in zip(check.matched, row, strict=True)]

    key_types = [types[column.replica.lower()] for column in check.key_columns]
    wanted = []
    for key in keys:
        found = [for_spark(value, type_) for value, type_ in zip(key, key_types, strict=True)]
        wanted.append((*found, key not in rows, *values_of(key)))
    session.createDataFrame(wanted, schema).createOrReplaceTempView(_WANTED)


def _value(column: Column, value: Any, types: Mapping[str, Any]) -> Any:
    try:
        return written(value, column.type, column.form, types[column.replica.lower()])
    except Unwritable as error:
        raise Unwritable(f"column {column.source}: {error}") from None


def _merge(check: Check, ref: TableRef, target: StructType, version: int, *, inserts: bool) -> str:
    kept = [field.name for field in target.fields if not isinstance(field.dataType, _NO_VALUES)]
    keys = [quoted(column.replica) for column in check.key_columns]
    before = ", ".join(f"o.{quoted(name)} AS o{number}" for number, name in enumerate(kept))
    is_row = " AND ".join(f"o.{key} <=> w.k{number}" for number, key in enumerate(keys))
    is_same = " AND ".join(f"t.{quoted(name)} <=> s.o{number}" for number, name in enumerate(kept))
    matches = " AND ".join(f"t.{key} <=> s.k{number}" for number, key in enumerate(keys))
    columns = [quoted(column.replica) for column in check.matched]
    values = [f"s.n{number}" for number in range(len(columns))]
    sets = ", ".join(f"t.{column} = {value}" for column, value in zip(columns, values, strict=True))
    differs = " OR ".join(
        f"NOT t.{column} <=> {value}" for column, value in zip(columns, values, strict=True)
    )
    inserted = f"THEN INSERT ({', '.join(columns)}) VALUES ({', '.join(values)})"
    return (
        f"MERGE INTO {ref.sql} AS t USING (SELECT w.*, o.binlane_there IS NOT NULL AS there, {before} "
        f"FROM {_WANTED} AS w LEFT JOIN (SELECT true AS binlane_there, * FROM {ref.sql} "
        f"VERSION AS OF {version}) AS o ON {is_row}) AS s ON {matches} "
        f"WHEN MATCHED AND s.there AND s.gone AND {is_same} THEN DELETE "
        f"WHEN MATCHED AND s.there AND {is_same} AND ({differs}) THEN UPDATE SET {sets} "
        + (f"WHEN NOT MATCHED AND NOT s.there AND NOT s.gone {inserted}" if inserts else "")
    )
