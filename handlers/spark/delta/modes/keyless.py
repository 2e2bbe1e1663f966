"""Replicas of tables without a primary key: as many equal rows as the source has."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from pyspark.sql import SparkSession

from handlers.logs import get_logger
from handlers.spark.delta.evolving import schema
from handlers.spark.delta.modes.bringing import NUMBER, Bringing, save
from handlers.spark.options import SparkOptions
from handlers.spark.table_ref import TableRef, equal, listed, quoted

_CHANGES = "binlane_changes"
_STAGED = "binlane_staged"
_KIND = "_binlane_kind"
_MISSING = "_binlane_missing"

_log = get_logger("spark")


@dataclass(frozen=True, slots=True)
class KeylessReplica:
    """Applies inserts and deletes of whole rows.

    Two rows are equal if all columns of the source are equal: null equals null, NaN equals NaN, 0.0 equals
    -0.0. A deleted row removes one equal row, either an existing one or one inserted earlier in the same
    segments. If no such row exists, the delete is logged and skipped."""

    options: SparkOptions

    def bring(self, session: SparkSession, what: Bringing) -> None:
        """Merge the segments. Creates the table if it does not exist. Raises what Spark raises."""
        ref, shape = what.ref, what.shape
        what.rows(session, "replica", self.options.prefix).createOrReplaceTempView(_CHANGES)
        table = schema(session, ref)
        own = shape.schema.names
        columns = own if table is None else table.names
        staged = session.sql(self._staged(None if table is None else ref, own, columns)).persist()
        try:
            missing = staged.agg({_MISSING: "sum"}).collect()[0][0]
            if missing:
                _log.warning("delta_rows_not_there", table=str(ref), rows=missing, segment=what.note.segment)
            if table is None:
                added = staged.where(f"{_KIND} = 'add'").select(*map(quoted, own))
                save(added, ref, self.options)
            else:
                staged.createOrReplaceTempView(_STAGED)
                session.sql(_merge(ref, own, columns))
        finally:
            staged.unpersist()

    def _staged(self, ref: TableRef | None, own: Sequence[str], columns: Sequence[str]) -> str:
        """Return SQL with the rows to `add`. If rows become fewer, one row says to `take` all equal ones
        away. Those that stay are put `back`, because MERGE cannot distinguish equal rows.

        `own`: the source's columns. `columns`: the table's."""
        there = {name.casefold() for name in own}
        row_of = ", ".join(
            f"n.{quoted(name)}" if name.casefold() in there else f"NULL AS {quoted(name)}" for name in columns
        )
        first = "n._binlane_step < 0 AND n._binlane_nth = 1"
        chosen = [
            f"SELECT {row_of}, 'add' AS {_KIND}, 0 AS {_MISSING} FROM net AS n "
            f"WHERE n._binlane_step > 0 AND n._binlane_nth <= n._binlane_more",
            f"SELECT {row_of}, IF(n._binlane_more < 0, 'take', 'none') AS {_KIND}, n.{_MISSING} "
            f"FROM net AS n WHERE {first} AND (n._binlane_more < 0 OR n.{_MISSING} > 0)",
        ]
        if ref is not None:
            chosen.append(
                f"SELECT {listed(columns, 'h')}, 'back' AS {_KIND}, 0 AS {_MISSING} FROM held AS h "
                f"JOIN net AS n ON {equal(own, 'h', 'n', null_safe=True)} AND {first} "
                f"WHERE h._binlane_nth <= h._binlane_held + n._binlane_more AND n._binlane_more < 0"
            )
        return f"WITH {', '.join(self._netted(ref, own))} {' UNION ALL '.join(chosen)}"

    def _netted(self, ref: TableRef | None, own: Sequence[str]) -> list[str]:
        """Return SQL with the changes, each with the net number of equal rows that they add or remove.

        Inserts raise the sum of the steps and deletes lower it. A sum below zero would delete missing rows,
        so the result is higher than the sum by their number."""
        op, row = (quoted(self.options.prefix + name) for name in ("op", "row"))
        group = f"PARTITION BY {listed(own)}"
        order = f"ORDER BY {NUMBER}, {row}"
        parts = [
            f"steps AS (SELECT {listed(own)}, {NUMBER}, {row}, IF({op} = 'delete', -1, 1) AS _binlane_step "
            f"FROM {_CHANGES})",
            f"walked AS (SELECT *, sum(_binlane_step) OVER ({group} {order}) AS _binlane_sum FROM steps)",
            f"summed AS (SELECT {listed(own)}, _binlane_step, "
            f"sum(_binlane_step) OVER ({group}) AS _binlane_total, "
            f"least(0, min(_binlane_sum) OVER ({group})) AS _binlane_lowest, "
            f"row_number() OVER ({group}, _binlane_step {order}) AS _binlane_nth FROM walked)",
        ]
        if ref is None:
            parts.append("joined AS (SELECT *, 0 AS _binlane_held FROM summed)")
        else:
            parts += [
                f"held AS (SELECT t.*, row_number() OVER ({group} ORDER BY 1) AS _binlane_nth, "
                f"count(*) OVER ({group}) AS _binlane_held FROM {ref.sql} AS t LEFT SEMI JOIN "
                f"(SELECT * FROM steps WHERE _binlane_step < 0) AS s "
                f"ON {equal(own, 't', 's', null_safe=True)})",
                f"joined AS (SELECT s.*, coalesce(h._binlane_held, 0) AS _binlane_held FROM summed AS s "
                f"LEFT JOIN (SELECT * FROM held WHERE _binlane_nth = 1) AS h "
                f"ON {equal(own, 's', 'h', null_safe=True)})",
            ]
        return [
            *parts,
            f"missed AS (SELECT *, -least(0, _binlane_held + _binlane_lowest) AS {_MISSING} FROM joined)",
            f"net AS (SELECT *, _binlane_total + {_MISSING} AS _binlane_more FROM missed)",
        ]


def _merge(ref: TableRef, own: Sequence[str], columns: Sequence[str]) -> str:
    """Columns that only the table has get their default or generated value in new rows."""
    return (
        f"MERGE INTO {ref.sql} AS t USING {_STAGED} AS s "
        f"ON s.{_KIND} = 'take' AND {equal(own, 't', 's', null_safe=True)} "
        f"WHEN MATCHED THEN DELETE WHEN NOT MATCHED AND s.{_KIND} = 'add' "
        f"THEN INSERT ({listed(own)}) VALUES ({listed(own, 's')}) WHEN NOT MATCHED AND s.{_KIND} = 'back' "
        f"THEN INSERT ({listed(columns)}) VALUES ({listed(columns, 's')})"
    )
