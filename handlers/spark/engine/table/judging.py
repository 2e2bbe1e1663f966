"""Checks rows against what their table declares, before the log accepts them."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from contextlib import suppress
from dataclasses import dataclass

import pyarrow as pa
from pyspark.errors import AnalysisException, PySparkException
from pyspark.sql import DataFrame
from pyspark.sql.types import StructField

from handlers.api import Rejected
from handlers.spark.delta.evolving import TableState, look, spark_schema, sql_type
from handlers.spark.delta.modes.replica import key_range
from handlers.spark.engine.table.world import World
from handlers.spark.rows.declared import Declared
from handlers.spark.rows.pieces import RowPiece
from handlers.spark.rows.shape import Shape
from handlers.spark.rows.spark_types import holds
from handlers.spark.table_ref import TableRef, equal, literal, quoted


@dataclass(frozen=True, slots=True)
class Judging:
    """For the rows of one table."""

    ref: TableRef
    world: World

    def check(
        self, piece: RowPiece, where: Callable[[int], str], declared: Declared, catch_up: Callable[[], None]
    ) -> None:
        """Check a piece. `where`: describes a change of the batch's pieces. Calls `catch_up`, which merges
        everything before it, if the table decides: by its own columns, or by its values for rows that lack
        some. Raises Rejected, and what `catch_up` and Spark raise."""
        self._check_keyless(piece, where)
        if self.world.iceberg is not None:
            return
        conditions, prefix, shape = dict(declared.conditions), self.world.options.prefix, piece.shape
        is_replica, keeps_all = (self.world.options.mode == each for each in ("replica", "changelog"))
        is_there = is_replica and (piece.partial or declared.has_checks_beyond(shape))
        ops = piece.rows[f"{prefix}op"].unique().to_pylist() if keeps_all and declared.not_null else ()
        tells_less = not _LESS.isdisjoint(ops)
        if tells_less or (is_replica and piece.partial):
            conditions |= {f"{each} NOT NULL": f"{quoted(each)} IS NOT NULL" for each in declared.not_null}
        if not conditions:
            return
        if is_there:
            catch_up()
        with self.world.spark.slots, self.world.session() as session:
            numbered = piece.rows.append_column(_PLACE, pa.array(range(piece.rows.num_rows), pa.int64()))
            frame = session.createDataFrame(numbered, spark_schema(numbered.schema))
            if keeps_all:
                shape = Shape(piece.rows.schema, ())
            else:
                frame = frame.where(f"{quoted(prefix + 'op')} <> 'delete'")
            table = look(session, self.ref) if is_there or keeps_all else None
            if table is None:
                absent = prefix + "absent"
                if absent in frame.columns:
                    frame = frame.where(f"{quoted(absent)} IS NULL")
                frame = in_kinds(frame, declared.kinds)
            else:
                frame = as_in_table(frame, self.ref, table, shape, prefix)
            found = first_refused(frame, piece.rows.num_rows, conditions)
        if found is not None:
            row, what = found
            at = piece.start + piece.places[row]
            raise Rejected(f"{where(at)}: the row violates what the table declares: {what}", at=at)

    def _check_keyless(self, piece: RowPiece, where: Callable[[int], str]) -> None:
        mode, allowed = self.world.options.mode, self.world.options.without_key
        must = mode == "history" or self.world.iceberg is not None
        if not piece.shape.key and mode != "changelog" and (must or allowed == "refuse"):
            advice = "keep its changelog" if must else "set without_key: match, or keep its changelog"
            raise Rejected(
                f"{where(piece.start)}: the table has no primary key, which mode {mode} "
                f"needs: give it one, or {advice}",
                at=piece.start,
            )


_LESS = frozenset(("delete", "ddl", "truncate"))
"""Operations whose changelog rows may be null where those of others may not."""
_PLACE = "_binlane_place"
_JUDGED = "binlane_judged"
_DATA = "22"
"""Prefix of the SQLSTATEs of Spark's errors about a value."""


def in_kinds(frame: DataFrame, kinds: Mapping[str, str]) -> DataFrame:
    """Cast numbers and dates to the table's types (lower-case column -> type). These may be wider: a product
    too large for the source's types fits there."""
    columns = [_in_kind(quoted(each.name), each, kinds.get(each.name.lower(), "")) for each in frame.schema]
    return frame.selectExpr(*columns)


def _in_kind(value: str, own: StructField, there: str) -> str:
    held = f"CAST({value} AS {there})" if holds(there, own.dataType.simpleString()) else value
    return f"{held} AS {quoted(own.name)}"


def as_in_table(frame: DataFrame, ref: TableRef, table: TableState, shape: Shape, prefix: str) -> DataFrame:
    """Fill in the columns that rows lack: the table's values for their key (all earlier rows are merged), or
    its defaults. Columns that the table numbers itself are left out."""
    told = {name.lower(): name for name in shape.schema.names}
    absent = f"s.{quoted(prefix + 'absent')}"
    kinds = {each.name.lower(): each.dataType.simpleString() for each in table.columns.fields}
    # If the table lacks a key column, it has none of the rows. The first of them adds the column.
    is_kept = bool(shape.key) and all(name.lower() in kinds for name in shape.key)
    columns, generated = [f"s.{_PLACE}"], {}
    for field in table.columns.fields:
        metadata, name = field.metadata or {}, told.get(field.name.lower())
        there, here = f"t.{quoted(field.name)}", f"s.{quoted(name or '')}"
        if name in shape.key:
            columns.append(f"{here} AS {quoted(field.name)}")
        elif name is not None and is_kept:
            value = f"CASE WHEN array_contains({absent}, {literal(name)}) THEN {there} ELSE {here} END"
            columns.append(f"{value} AS {quoted(field.name)}")
        elif name is not None:
            columns.append(f"{here} AS {quoted(field.name)}")
        elif (how := metadata.get("delta.generationExpression")) is not None:
            generated[field.name] = how
        elif not any(key.startswith("delta.identity.") for key in metadata):
            default = metadata.get("CURRENT_DEFAULT")
            new = "NULL" if default is None else f"CAST({default} AS {sql_type(field.dataType)})"
            value = f"IF(t.{quoted(shape.key[0])} IS NULL, {new}, {there})" if is_kept else new
            columns.append(f"{value} AS {quoted(field.name)}")
    frame.createOrReplaceTempView(_JUDGED)
    session, join = frame.sparkSession, ""
    if is_kept:
        bounds, _ = key_range(session, _JUDGED, shape, quoted(prefix + "op"))
        join = f" LEFT JOIN {ref.sql} AS t ON {' AND '.join([equal(shape.key, 's', 't'), *bounds])}"
    whole = in_kinds(session.sql(f"SELECT {', '.join(columns)} FROM {_JUDGED} AS s{join}"), kinds)
    return whole.selectExpr("*", *(f"{how} AS {quoted(name)}" for name, how in generated.items()))


def first_refused(frame: DataFrame, rows: int, conditions: Mapping[str, str]) -> tuple[int, str] | None:
    """Return the place of the first row (of `rows`) that does not meet a condition, and the condition. None
    if all rows meet all.

    Delta requires that a condition is true, not null. A condition about a column that no row has is skipped.
    Raises what Spark raises."""
    met = " AND ".join(f"({each})" for each in conditions.values())
    # One query for good rows: the table may be large. With `isEmpty`, PySpark would keep Connect's rows.
    with suppress(PySparkException):  # each condition is checked by itself below
        if not frame.where(f"NOT coalesce({met}, false)").select(_PLACE).take(1):
            return None
    refused = [
        (place, what)
        for what, condition in conditions.items()
        if (place := _first(frame, condition, range(rows))) is not None
    ]
    return min(refused, default=None)


def _first(frame: DataFrame, condition: str, places: range) -> int | None:
    within = f"{_PLACE} BETWEEN {places.start} AND {places.stop - 1}"
    try:
        refused = frame.where(within).where(f"NOT coalesce({condition}, false)")
        found: int | None = refused.agg({_PLACE: "min"}).collect()[0][0]
    except AnalysisException:
        return None
    except PySparkException as error:
        if not (error.getSqlState() or "").startswith(_DATA):
            raise
        if len(places) == 1:
            return places.start  # the condition fails for this value, also when the row is merged
        half = len(places) // 2
        first = _first(frame, condition, places[:half])
        return _first(frame, condition, places[half:]) if first is None else first
    return found
