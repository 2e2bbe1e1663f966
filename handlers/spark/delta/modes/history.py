"""Histories: every version of each row, with the time from which and to which it was valid (SCD type 2)."""

from __future__ import annotations

from dataclasses import dataclass

from pyspark.sql import DataFrame, SparkSession

from handlers.spark.delta.commits.held_segments import exists
from handlers.spark.delta.modes.bringing import NUMBER, Bringing
from handlers.spark.delta.saving import save
from handlers.spark.delta.statements import equal, listed, literal
from handlers.spark.options import SparkOptions
from handlers.spark.rows.shape import Shape
from handlers.spark.table_ref import TableRef, quoted

_CHANGES = "binlane_changes"
_VERSIONS = "binlane_versions"
_PLACE = ("op", "topic", "partition", "offset", "index")
_FROM = "_binlane_from"
_UNTIL = "_binlane_until"


@dataclass(frozen=True, slots=True)
class History:
    """Brings changes into a table of versions.

    Every insert, update and snapshot opens a version of its key's row, at its source time, and so ends the
    one before it; a delete ends it. A version is valid from `valid_from` (inclusive) to `valid_to`
    (exclusive; null: it is the `current` one), and has the place of the change that opened it.

    - A snapshot that equals the row as it is known opens no version: a source that is read anew tells
      nothing new.
    - A change of a source time before that of its key's last change (a statement that waited for a lock is
      logged with the time of its beginning) counts as of that last change's time: versions of a row never
      overlap, though one may be empty.
    - A column that an update does not carry has the value of the version before.
    - A delete of a row that is not there changes nothing."""

    options: SparkOptions

    def bring(self, session: SparkSession, what: Bringing) -> None:
        """The table is made if there is none. Raises what Spark raises."""
        ref, shape = what.ref, what.shape
        what.rows(session, "history", self.options.prefix).createOrReplaceTempView(_CHANGES)
        is_there = exists(session, ref)
        versions = session.sql(self._versions(ref if is_there else None, shape, partial=what.is_partial))
        if is_there:
            versions.createOrReplaceTempView(_VERSIONS)
            session.sql(self._merge(ref, shape))
        else:
            self._create(versions, ref, shape)

    def _versions(self, ref: TableRef | None, shape: Shape, *, partial: bool) -> str:
        """One row for each version that is opened, and (with the number 0) each that the table has and that
        ends. The table's last version of each key takes part as if it were a change before all others: of
        what it is now if it is current, else its delete."""
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
                f"_binlane_rank FROM {ref.sql} AS t LEFT SEMI JOIN {_CHANGES} AS s "
                f"ON {equal(shape.key, 't', 's')}) WHERE _binlane_rank = 1"
            )
        row = f"struct({names})"
        return (
            f"WITH listed AS (SELECT {names}, {place}, {added('source_time')}, {absent}, {NUMBER}, "
            f"{added('row')} FROM {_CHANGES} {known}), "
            f"filled AS ({self._filled(shape, order) if partial else 'SELECT * FROM listed'}), "
            f"followed AS (SELECT *, lag({op}, 1, 'delete') OVER {order} AS _binlane_op, "
            f"lag({row}) OVER {order} AS _binlane_row FROM filled), "
            f"judged AS (SELECT *, {NUMBER} > 0 AND (({op} = 'delete' AND _binlane_op = 'delete') "
            f"OR ({op} = 'snapshot' AND _binlane_op <> 'delete' AND _binlane_row <=> {row})) "
            f"AS _binlane_known FROM followed), "
            f"timed AS (SELECT *, max({added('source_time')}) OVER {order} AS {_FROM} FROM judged "
            f"WHERE NOT _binlane_known), "
            f"bounded AS (SELECT *, lead({_FROM}) OVER {order} AS {_UNTIL} FROM timed) "
            f"SELECT {names}, {_FROM}, {_UNTIL}, {place}, {NUMBER} FROM bounded "
            f"WHERE {op} <> 'delete' AND ({NUMBER} > 0 OR {_UNTIL} IS NOT NULL)"
        )

    def _filled(self, shape: Shape, order: str) -> str:
        """The rows with the columns that they do not carry."""
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
        columns, values = self._row(shape, "s.")
        return (
            f"MERGE INTO {ref.sql} AS t USING {_VERSIONS} AS s "
            f"ON s.{NUMBER} = 0 AND {equal(shape.key, 't', 's')} AND t.{self._added('current')} "
            f"WHEN MATCHED THEN UPDATE SET t.{self._added('valid_to')} = s.{_UNTIL}, "
            f"t.{self._added('current')} = false "
            f"WHEN NOT MATCHED AND s.{NUMBER} > 0 THEN INSERT ({', '.join(columns)}) "
            f"VALUES ({', '.join(values)})"
        )

    def _create(self, versions: DataFrame, ref: TableRef, shape: Shape) -> None:
        columns, values = self._row(shape, "")
        rows = versions.selectExpr(
            *(f"{value} AS {column}" for column, value in zip(columns, values, strict=True))
        )
        save(rows, ref, self.options)

    def _row(self, shape: Shape, alias: str) -> tuple[list[str], list[str]]:
        """The table's columns, and what they get of a version."""
        own = list(map(quoted, shape.schema.names))
        place = [self._added(name) for name in _PLACE]
        columns = [*own, *map(self._added, ("valid_from", "valid_to", "current")), *place]
        values = [*own, _FROM, _UNTIL, f"{_UNTIL} IS NULL", *place]
        return columns, [alias + value for value in values]

    def _added(self, name: str) -> str:
        return quoted(self.options.prefix + name)
