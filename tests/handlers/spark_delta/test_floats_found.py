"""What Spark is asked about floating-point numbers finds NaN and -0.0, whoever has written the file."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from delta_lab import MakeTable, Table, shape

from handlers.files.parquet_chain import Chain, encoded
from handlers.spark.options import MergeOptions
from handlers.spark.rows.shape import Mode

_ROWS = list(enumerate([float("nan"), -0.0, 0.0, 1.0], start=1))
_QUESTIONS = {
    "{d} = double('NaN')": [1],
    "{d} > 1": [1],
    "{d} = 0.0": [2, 3],
    "{d} = -0.0": [2, 3],
    "{d} < 1": [2, 3],
}
_SHAPE = shape(id=pa.int32(), d=pa.float64(), name=pa.string())
_PLACE = {"topic": "cdc", "partition": 0, "index": 0}


def found(spark: Any, source: str, column: str) -> dict[str, list[int]]:
    """The ids that each question finds. Spark asks the file for each, in one query."""
    asked = " UNION ALL ".join(
        f"SELECT {number} AS question, id FROM {source} WHERE {question.format(d=column)}"
        for number, question in enumerate(_QUESTIONS)
    )
    rows = {(row.question, row.id) for row in spark.sql(asked).collect()}
    return {
        question: sorted(id_ for asks, id_ in rows if asks == number)
        for number, question in enumerate(_QUESTIONS)
    }


def row(mode: Mode, number: int, value: float) -> dict[str, Any]:
    told = {"id": number, "d": value, "name": "x"}
    return told if mode == "replica" else {**told, **_PLACE, "offset": number, "before": told}


@pytest.mark.parametrize("without_spark", [True, pytest.param(False, marks=pytest.mark.soak)])
@pytest.mark.parametrize("mode", [pytest.param("replica", marks=pytest.mark.soak), "changelog"])
def test_a_number_is_found_in_a_table_and_in_what_waits_for_it(
    make_table: MakeTable, mode: Mode, without_spark: bool
) -> None:
    table: Table = make_table(mode=mode, merge=MergeOptions(engine="auto" if without_spark else "spark"))
    for _ in range(2):  # the first commit makes the table
        segment = table.put(_SHAPE, *(row(mode, *each) for each in _ROWS))
        table.merge()
        for column in ["d"] if mode == "replica" else ["d", "_before.d"]:
            assert found(table.spark, f"parquet.`{segment.path}`", column) == _QUESTIONS
            assert found(table.spark, table.ref.sql, column) == _QUESTIONS
    assert set(table.makers) == ({"d"} if without_spark else {"s"})


def test_a_number_is_found_in_a_file_of_the_files_handler(spark: Any, tmp_path: Path) -> None:
    rows = pa.Table.from_pylist([{"id": number, "d": value} for number, value in _ROWS])
    path = tmp_path / "rows.parquet"
    path.write_bytes(encoded(rows, Chain(str(tmp_path))))
    assert found(spark, f"parquet.`{path}`", "d") == _QUESTIONS
