"""Merges segments into an Iceberg table: files with a changed row are written again without it, and the new
rows are added. DuckDB runs the queries that Spark runs for Delta tables."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from functools import reduce
from typing import Any, cast

import duckdb
import pyarrow as pa
import pyarrow.compute as pc
import sqlglot
from pyiceberg import expressions

from handlers.spark.delta.arrow_rows import newest_of
from handlers.spark.delta.modes.bringing import NUMBER, Bringing
from handlers.spark.delta.modes.history import CHANGES, UNTIL, History
from handlers.spark.iceberg.columns import arrow_schema, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import equal, find, listed, literal, quoted

_is: Any = expressions  # its classes have other signatures than their types say
_KNOWN, _THERE, _WANTED, _MADE = "binlane_known", "binlane_there", "binlane_wanted", "binlane_made"
_PLACE = "_binlane_place"
_FEW = 200  # values up to which PyIceberg compares each of them with a file's bounds


def bring(commit: TableCommit, changes: pa.Table, what: Bringing, options: SparkOptions) -> None:
    """Write the segments' rows (`changes`, in order) into the commit. Columns that only the table has keep
    their values. Raises what Arrow, DuckDB and PyIceberg raise."""
    if options.mode == "changelog":
        commit.replace([], [fitted_to(changes, arrow_schema(commit.schema))], what.note)
        return
    with duckdb.connect(config={"python_enable_replacements": "false"}) as engine:
        engine.execute("SET TimeZone = 'UTC'; SET disabled_optimizers = 'top_n_window_elimination'")  # -0.0
        _Merging(engine, commit, what, options).bring(changes)


@dataclass(frozen=True, slots=True)
class _Merging:
    engine: duckdb.DuckDBPyConnection
    commit: TableCommit
    what: Bringing
    options: SparkOptions

    def bring(self, changes: pa.Table) -> None:
        is_history, key = self.options.mode == "history", self.what.shape.key
        if not is_history:
            changes = cast(pa.Table, newest_of(changes, key))  # segments have no null in a key
        schema = arrow_schema(self.commit.schema)
        own = [schema.field(find(schema.names, name) or name) for name in key]  # `lacking` has found them
        wanted = changes.select(key).rename_columns([each.name for each in own]).cast(pa.schema(own))
        numbers = pa.array(range(1, len(changes) + 1), pa.int64())
        self.engine.register(CHANGES, changes.append_column(NUMBER, numbers))
        self.engine.register(_WANTED, wanted)
        known, touched = [schema.empty_table()], list[tuple[Any, pa.Array]]()
        for file in self.commit.files(_among(wanted)) if len(wanted) else ():
            rows = self.commit.rows(file)
            places = self._places(rows, wanted.column_names)
            known.append(rows.take(places))
            if is_history:  # past versions stay where they are
                places = places.filter(known[-1].column(self._added("current")).combine_chunks())
            if len(places):
                touched.append((file, places))
        self.engine.register(_KNOWN, pa.concat_tables(known))
        query = self._versions if is_history else self._replica
        made = fitted_to(self._run(query(schema.names)), schema)

        def written() -> Iterator[pa.Table]:
            for file, places in touched:
                rows = self.commit.rows(file)
                every = pa.array(range(len(rows)), pa.int64())
                yield rows.filter(pc.invert(pc.is_in(every, value_set=places)))
            yield made

        self.commit.replace([file for file, _ in touched], written(), self.what.note)

    def _places(self, rows: pa.Table, names: Sequence[str]) -> pa.Array:
        """Return the places of those rows that are wanted."""
        self.engine.register(_THERE, rows.append_column(_PLACE, pa.array(range(len(rows)), pa.int64())))
        same = equal(names, "t", "w")
        found = self._run(
            f"SELECT t.{_PLACE} FROM {_THERE} AS t LEFT SEMI JOIN {_WANTED} AS w ON {same} ORDER BY 1"
        )
        return found.column(0).combine_chunks()

    def _run(self, sql: str) -> pa.Table:
        """Run a query of Spark."""
        return self.engine.sql(sqlglot.transpile(sql, read="spark", write="duckdb")[0]).to_arrow_table()

    # ---- queries of the new rows, from the changes and the known rows that they concern

    def _replica(self, names: Sequence[str]) -> str:
        """A column is the change's, or the table's if the change lacks it."""
        told = {name.casefold(): name for name in self.what.shape.schema.names}
        key, absent = self.what.shape.key, f"s.{quoted(self._added('absent'))}"
        values = {name: f"t.{quoted(name)}" for name in names}
        for name in names:
            if (own := told.get(name.casefold())) is not None:
                is_absent = f"array_contains({absent}, {literal(own)})"
                values[name] = f"CASE WHEN {is_absent} THEN {values[name]} ELSE s.{quoted(own)} END"
        columns = ", ".join(f"{value} AS {quoted(name)}" for name, value in values.items())
        one = f"QUALIFY row_number() OVER (PARTITION BY {listed(key)} ORDER BY 1) = 1"
        return (
            f"SELECT {columns} FROM {CHANGES} AS s LEFT JOIN (SELECT * FROM {_KNOWN} {one}) AS t "
            f"ON {equal(key, 's', 't')} WHERE s.{quoted(self._added('op'))} <> 'delete'"
        )

    def _versions(self, names: Sequence[str]) -> str:
        """Current versions that end or stay, and versions that the changes open."""
        shape, history, ref = self.what.shape, History(self.options), replace(self.what.ref, sql=_KNOWN)
        self.engine.register(_MADE, self._run(history.versions(ref, shape, partial=self.what.is_partial)))
        opened = {name.casefold(): value for name, value in zip(*history.row_of(shape, ""), strict=True)}
        ended = {self._added("valid_to"): f"s.{UNTIL}", self._added("current"): f"s.{UNTIL} IS NULL"}
        before = (f"{ended.get(name, f't.{quoted(name)}')} AS {quoted(name)}" for name in names)
        after = (f"{opened.get(quoted(name).casefold(), 'NULL')} AS {quoted(name)}" for name in names)
        return (
            f"SELECT {', '.join(before)} FROM {_KNOWN} AS t LEFT JOIN {_MADE} AS s ON s.{NUMBER} = 0 AND "
            f"{equal(shape.key, 't', 's')} WHERE t.{quoted(self._added('current'))} "
            f"UNION ALL SELECT {', '.join(after)} FROM {_MADE} WHERE {NUMBER} > 0"
        )

    def _added(self, name: str) -> str:
        return f"{self.options.prefix}{name}"


def _among(keys: pa.Table) -> Any:
    """Return an expression that is true of each row with one of these keys. It is true of others, too: files
    are skipped by it, and never rows."""
    conditions: list[Any] = []
    types = pa.types
    ordered = (types.is_integer, types.is_decimal, types.is_string, types.is_date, types.is_timestamp)
    for name, column in zip(keys.column_names, keys.columns, strict=True):
        if column.null_count or not any(each(column.type) for each in ordered):
            continue
        least, most = pc.min_max(column).as_py().values()
        if types.is_integer(column.type) and least < -(2 ** (column.type.bit_width - 2)):
            continue  # truncate() of the least integers overflows
        if len(distinct := pc.unique(column)) <= _FEW:
            conditions.append(_is.In(name, tuple(distinct.to_pylist())))
        elif 1 < getattr(least, "year", 2) <= getattr(most, "year", 2) < 9999:  # PyIceberg looks a day beyond
            conditions += [_is.GreaterThanOrEqual(name, least), _is.LessThanOrEqual(name, most)]
    return reduce(_is.And, conditions) if conditions else _is.AlwaysTrue()
