"""A file that is played without Kafka does what a worker does with the same records in Kafka."""

from __future__ import annotations

import sqlite3
from contextlib import closing
from pathlib import Path

from examples.example_runs import CANAL_SAMPLE, EXAMPLES, RunExample

from binlane.testing import play


def test_a_handler_writes_the_same_lines(run_example: RunExample, tmp_path: Path) -> None:
    run = run_example("targets/own-handler")
    play(EXAMPLES / "targets" / "own-handler.yaml", CANAL_SAMPLE, folder=tmp_path)
    lines = (tmp_path / "large-orders.txt").read_text()
    assert lines.count("\n") == 4
    assert lines == (run.folder / "large-orders.txt").read_text(), "with the same positions"


def test_a_database_has_the_same_rows_and_marks(run_example: RunExample, tmp_path: Path) -> None:
    run = run_example("targets/transform")
    run.stop()
    play(EXAMPLES / "targets" / "transform.yaml", CANAL_SAMPLE, folder=tmp_path)
    found = []
    for folder in (tmp_path, run.folder):
        with closing(sqlite3.connect(folder / "cleaned.db")) as connection:
            rows = connection.execute('SELECT * FROM "shop.orders" ORDER BY id').fetchall()
            places = "source_table, topic, kafka_partition, kafka_offset, change_index"
            found.append(
                (rows, connection.execute(f"SELECT {places} FROM binlane_marks ORDER BY 1").fetchall())
            )
    assert found[0] == found[1]
    assert len(found[0][0]) == 4
