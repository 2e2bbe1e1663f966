"""Replicas of tables without a primary key: as many equal rows as the source has."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator
from math import isnan
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from handlers.logs import get_logger
from handlers.spark.delta.commits.commit_notes import CommitNote
from handlers.spark.iceberg.columns import arrow_schema, fitted_to
from handlers.spark.iceberg.commits import TableCommit
from handlers.spark.iceberg.matching import among, key_tuples, names_in
from handlers.spark.rows.shape import Shape

_log = get_logger("spark")


def bring(commit: TableCommit, changes: pa.Table, shape: Shape, note: CommitNote, *, prefix: str) -> None:
    """Write inserts and deletes of whole rows into the commit.

    Two rows are equal as for Delta: null equals null, NaN equals NaN, 0.0 equals -0.0. A delete removes one
    equal row of the same segments, or else of the table. If no such row exists, it is logged and skipped."""
    schema = arrow_schema(commit.schema)
    own = list(names_in(schema, shape.schema.names))
    fitted = fitted_to(changes, schema)
    added: dict[Any, list[int]] = {}
    gone: Counter[Any] = Counter()
    gone_at: list[int] = []
    for place, (op, row) in enumerate(
        zip(changes.column(f"{prefix}op").to_pylist(), _comparable(fitted, own), strict=True)
    ):
        if op != "delete":
            added.setdefault(row, []).append(place)
        elif added.get(row):
            added[row].pop()
        else:
            gone[row] += 1
            gone_at.append(place)
    wanted = fitted.take(pa.array(gone_at, pa.int64())).select(own)
    touched, kept = [], []
    for file in commit.files(among(wanted)) if gone_at else ():
        there = commit.rows(file, commit.schema).cast(schema)
        if (left := _without(there, wanted, gone, own)) is not None:
            touched.append(file)
            kept.append(left)
    if missing := gone.total():
        _log.warning("iceberg_rows_not_there", table=str(commit.ref), rows=missing, segment=note.segment)

    def rows() -> Iterator[pa.Table]:
        yield from kept
        yield fitted.take(pa.array(sorted(place for each in added.values() for place in each), pa.int64()))

    commit.replace(touched, rows(), note)


def _without(there: pa.Table, wanted: pa.Table, gone: Counter[Any], own: list[str]) -> pa.Table | None:
    """Remove as many equal rows as `gone` still counts, and count them down. None if it has none of them."""
    candidates = _candidates(there, wanted)
    removed = []
    for place, row in zip(
        candidates, _comparable(there.take(pa.array(candidates, pa.int64())), own), strict=True
    ):
        if gone[row] > 0:
            gone[row] -= 1
            removed.append(place)
    if not removed:
        return None
    is_left = pc.invert(pc.is_in(pa.array(range(len(there))), value_set=pa.array(removed)))
    return there.filter(is_left)


def _candidates(there: pa.Table, wanted: pa.Table) -> list[int]:
    """Return the places of rows that may be wanted, judged column by column."""
    mask = pa.array([True] * len(there))
    for name, column in zip(wanted.column_names, wanted.columns, strict=True):
        if not (pa.types.is_floating(column.type) or pa.types.is_nested(column.type)):
            values = column.combine_chunks()
            mask = pc.and_(mask, pc.is_in(there.column(name), value_set=values).combine_chunks())
    return [place for place, may_be in enumerate(mask.to_pylist()) if may_be]


def _comparable(rows: pa.Table, names: list[str]) -> list[Any]:
    return [tuple(map(_one, row)) for row in key_tuples(rows, names)]


def _one(value: Any) -> Any:
    if isinstance(value, list):
        return tuple(value)
    return "NaN" if isinstance(value, float) and isnan(value) else value
