"""Commits with Spark and without it: whichever rows come, both make the same table of them."""

from __future__ import annotations

import itertools
import json
import string
from collections.abc import Sequence
from datetime import UTC, date, datetime
from decimal import Decimal
from pathlib import Path
from typing import Any

import deltalake
import pyarrow as pa
import pytest
from delta_lab import Table
from hypothesis import HealthCheck, Phase, given, settings
from hypothesis import strategies as st

from handlers.spark.delta.commits.commit_notes import note_of_version
from handlers.spark.log.stores.local import LocalFiles
from handlers.spark.options import MergeOptions
from handlers.spark.rows.shape import Mode, Shape

Row = dict[str, Any]

_TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=6)
_CLOCKS = st.datetimes(datetime(1, 1, 1), datetime(9999, 12, 31))
_VALUES: dict[pa.DataType, st.SearchStrategy[Any]] = {
    pa.bool_(): st.booleans(),
    pa.int8(): st.integers(-128, 127),
    pa.int16(): st.integers(-(2**15), 2**15 - 1),
    pa.int32(): st.integers(-(2**31), 2**31 - 1),
    pa.int64(): st.integers(-(2**63), 2**63 - 1),
    pa.decimal128(20, 0): st.integers(0, 2**64 - 1).map(Decimal),
    pa.decimal128(12, 3): st.integers(-(10**12) + 1, 10**12 - 1).map(lambda n: Decimal(n).scaleb(-3)),
    pa.float32(): st.floats(width=32),
    pa.float64(): st.floats(),
    pa.string(): _TEXT,
    pa.binary(): st.binary(max_size=6),
    pa.date32(): st.dates(date(1, 1, 1), date(9999, 12, 31)),
    pa.timestamp("us"): _CLOCKS,
    pa.timestamp("us", tz="UTC"): _CLOCKS.map(lambda each: each.replace(tzinfo=UTC)),
    pa.list_(pa.string()): st.lists(_TEXT, max_size=2),
}
_KEYS = [each for each in _VALUES if not pa.types.is_list(each)]
_PLACE = {"topic": "cdc", "partition": 0, "index": 0}


@st.composite
def shapes(draw: st.DrawFn) -> Shape:
    keys = draw(st.lists(st.sampled_from(_KEYS), min_size=1, max_size=2))
    others = draw(st.lists(st.sampled_from(list(_VALUES)), min_size=1, max_size=4))
    names = [f"{name}é" if number == 2 else name for number, name in enumerate(string.ascii_lowercase)]
    fields = list(zip(names, [*keys, *others], strict=False))
    return Shape(pa.schema(fields), tuple(name for name, _ in fields[: len(keys)]))


def rows_of(draw: st.DrawFn, shape: Shape, keys: Sequence[tuple[Any, ...]]) -> list[Row]:
    """Of a segment: each key once."""
    rows: list[Row] = []
    for key in draw(st.lists(st.sampled_from(keys), unique_by=repr, min_size=1, max_size=4)):
        row = dict(zip(shape.key, key, strict=True))
        is_gone = draw(st.integers(0, 3)) == 0
        if not is_gone:
            others = [field for field in shape.schema if field.name not in shape.key]
            row |= {field.name: draw(st.none() | _VALUES[field.type]) for field in others}
        rows.append({**row, "op": "delete" if is_gone else draw(st.sampled_from(["insert", "upsert"]))})
    return rows


@st.composite
def histories(draw: st.DrawFn) -> tuple[Shape, list[list[Row]]]:
    """A shape, and segments of it."""
    shape = draw(shapes())
    types = [_VALUES[shape.schema.field(name).type] for name in shape.key]
    keys = draw(st.lists(st.tuples(*types), min_size=2, max_size=5, unique_by=repr))
    return shape, [rows_of(draw, shape, keys) for _ in range(2)]


def seen(table: Table) -> dict[str, Any]:
    there = deltalake.DeltaTable(table.path)
    protocol, notes = there.protocol(), note_of_version(LocalFiles(), table.path, there.version())
    assert notes is not None
    return {
        "rows": list(map(repr, table.rows())),
        "columns": json.loads(there.schema().to_json()),
        "note": {name: value for name, value in notes.items() if name != "commit"},
        "properties": there.metadata().configuration,
        "partitions": there.metadata().partition_columns,
        "versions": (protocol.min_reader_version, protocol.min_writer_version),
        "features": (set(protocol.reader_features or ()), set(protocol.writer_features or ())),
        "transaction": there.transaction_version(table.ref.app_id),
    }


@pytest.mark.parametrize(
    ("mode", "examples"),
    [
        ("replica", 2),
        pytest.param("changelog", 2, marks=pytest.mark.soak),
        pytest.param("replica", 40, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
        pytest.param("changelog", 20, marks=[pytest.mark.soak, pytest.mark.timeout(900)]),
    ],
)
def test_both_make_the_same_table(spark: Any, tmp_path: Path, mode: Mode, examples: int) -> None:
    numbers = itertools.count()

    @settings(
        max_examples=examples,
        deadline=None,
        database=None,
        derandomize=True,
        phases=[Phase.generate],
        suppress_health_check=list(HealthCheck),
    )
    @given(histories())
    def compare(history: tuple[Shape, list[list[Row]]]) -> None:
        shape, segments = history
        offsets = itertools.count()
        given_rows = [[{**row, **_PLACE, "offset": next(offsets)} for row in rows] for rows in segments]
        if mode == "replica":
            given_rows = segments
        tables = [
            Table(
                spark,
                tmp_path / f"t{next(numbers)}",
                mode=mode,
                merge=MergeOptions(engine="auto" if small else "spark"),
            )
            for small in (True, False)
        ]
        for rows in given_rows:
            for table in tables:
                table.put(shape, *rows)
                table.merge()
        found, wanted = map(seen, tables)
        assert found == wanted

    compare()
