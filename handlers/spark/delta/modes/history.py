"""Histories: every version of each row, with its period of validity (slowly changing dimension, type 2)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from handlers.spark.delta.commits.held_segments import exists
from handlers.spark.delta.modes.bringing import NUMBER, Bringing, save
from handlers.spark.options import SparkOptions
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef, equal, listed, literal, quoted

CHANGES = "binlane_changes"
_VERSIONS = "binlane_versions"
_PLACE = ("op", "topic", "partition", "offset", "index")
FROM = "_binlane_from"
UNTIL = "_binlane_until"


@dataclass(frozen=True, slots=True)
class History:
    """Merges changes into a table of versions.

    Every insert, update and snapshot opens a version of its key's row at its source time. This ends the
    previous version. A delete only ends it. A version is valid from `valid_from` (inclusive) to `valid_to`
    (exclusive, null for the `current` version). It has the position of the change that opened it.

    - A snapshot that equals the known row opens no version: reading a source again adds nothing.
    - If a change's source time is before that of its key's last change, it counts as that last change's time.
      A source logs a statement that waited for a lock with its start time. Versions of a row never overlap,
      though one may be empty.
    - A column that an update lacks keeps the previous version's value.
    - A delete of a missing row changes nothing."""

    options: SparkOptions

    def bring(self, session: SparkSession, what: Bringing) -> None:
        """Merge the segments. Creates the table if it does not exist. Raises what Spark raises."""
        ref, shape = what.ref, what.shape
        what.rows(session, "history", self.options.prefix).createOrReplaceTempView(CHANGES)
        is_there = exists(session, ref)
        versions = session.sql(self.versions(ref if is_there else None, shape, partial=what.is_partial))
        if is_there:
            versions.createOrReplaceTempView(_VERSIONS)
            session.sql(self._merge(ref, shape))
        else:
            self._create(versions, ref, shape)

    def versions(self, ref: TableRef | None, shape: Shape, *, partial: bool) -> str:
        """Return SQL with one row for each opened version, and one, with the number 0, for each ended version
        of the table. The table's last version of each key counts as the first change: an update if it is
        current, else a delete."""
        added = self._added
        op, absent = added("op"), added("absent")
        names = listed(shape.schema.names)
        place = ", ".join(map(added, _PLACE))
        order = f"(PARTITION BY {listed(shape.key)} ORDER BY {NUMBER}, {added('row')})"
        known = ""
        if ref is not None:
            current, until = added("current"), added("valid_to")
            nothing = ", NULL" * (len(_PLACE) - 1)
            latest = f"{current} DESC, {until} DESC, {added('valid_from')} DESC"
            known = (
                f"UNION ALL SELECT {names}, IF({current}, 'current', 'delete'){nothing}, "
                f"IF({current}, {added('valid_from')}, {until}), NULL, 0, 0 FROM "
                f"(SELECT t.*, row_number() OVER (PARTITION BY {listed(shape.key)} ORDER BY {latest}) AS "
                f"_binlane_rank FROM {ref.sql} AS t LEFT SEMI JOIN {CHANGES} AS s "
                f"ON {equal(shape.key, 't', 's')}) WHERE _binlane_rank = 1"
            )
        row = f"struct({names})"
        return (
            f"WITH listed AS (SELECT {names}, {place}, {added('source_time')}, {absent}, {NUMBER}, "
            f"{added('row')} FROM {CHANGES} {known}), "
            f"filled AS ({self._filled(shape, order) if partial else 'SELECT * FROM listed'}), "
            f"followed AS (SELECT *, lag({op}, 1, 'delete') OVER {order} AS _binlane_op, "
            f"lag({row}) OVER {order} AS _binlane_row FROM filled), "
            f"judged AS (SELECT *, {NUMBER} > 0 AND (({op} = 'delete' AND _binlane_op = 'delete') "
            f"OR ({op} = 'snapshot' AND _binlane_op <> 'delete' AND _binlane_row <=> {row})) "
            f"AS _binlane_known FROM followed), "
            f"timed AS (SELECT *, max({added('source_time')}) OVER {order} AS {FROM} FROM judged "
            f"WHERE NOT _binlane_known), "
            f"bounded AS (SELECT *, lead({FROM}) OVER {order} AS {UNTIL} FROM timed) "
            f"SELECT {names}, {FROM}, {UNTIL}, {place}, {NUMBER} FROM bounded "
            f"WHERE {op} <> 'delete' AND ({NUMBER} > 0 OR {UNTIL} IS NOT NULL)"
        )

    def _filled(self, shape: Shape, order: str) -> str:
        """Return SQL that fills in the columns that rows lack."""
        op, absent = self._added("op"), self._added("absent")
        columns = [
            f"last_value(IF(array_contains({absent}, {literal(name)}), NULL, "
            f"named_struct('v', IF({op} = 'delete', NULL, {quoted(name)})))) IGNORE NULLS "
            f"OVER {order}.v AS {quoted(name)}"
            for name in shape.schema.names
            if name not in shape.key
        ]
        others = [self._added(name) for name in (*_PLACE, "source_time", "row")]
        return f"SELECT {', '.join([listed(shape.key), *columns, *others])}, {NUMBER} FROM listed"

    def _merge(self, ref: TableRef, shape: Shape) -> str:
        columns, values = self.row_of(shape, "s.")
        return (
            f"MERGE INTO {ref.sql} AS t USING {_VERSIONS} AS s "
            f"ON s.{NUMBER} = 0 AND {equal(shape.key, 't', 's')} AND t.{self._added('current')} "
            f"WHEN MATCHED THEN UPDATE SET t.{self._added('valid_to')} = s.{UNTIL}, "
            f"t.{self._added('current')} = false "
            f"WHEN NOT MATCHED AND s.{NUMBER} > 0 THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(values)})"
        )

    def _create(self, versions: DataFrame, ref: TableRef, shape: Shape) -> None:
        columns, values = self.row_of(shape, "")
        rows = versions.selectExpr(
            *(f"{value} AS {column}" for column, value in zip(columns, values, strict=True))
        )
        save(rows, ref, self.options)

    def row_of(self, shape: Shape, alias: str) -> tuple[list[str], list[str]]:
        """Return the table's columns, and their values for a version."""
        own = list(map(quoted, shape.schema.names))
        place = [self._added(name) for name in _PLACE]
        columns = [*own, *map(self._added, ("valid_from", "valid_to", "current")), *place]
        values = [*own, FROM, UNTIL, f"{UNTIL} IS NULL", *place]
        return columns, [alias + value for value in values]

    def _added(self, name: str) -> str:
        return quoted(self.options.prefix + name)
