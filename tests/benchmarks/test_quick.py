"""The benchmarks run: small numbers, no peers, one real broker and the real worker."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


@pytest.fixture(scope="module")
def results(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return measured(tmp_path_factory.mktemp("results"), "tracker", "no_work")


def measured(folder: Path, *names: str) -> Path:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", *names, "--quick", "--no-peers", "--json", str(folder)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=240,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    return folder


@pytest.mark.soak
def test_every_benchmark_writes_its_figures_goals_and_machine(results: Path) -> None:
    for name in ("tracker", "no_work"):
        report = json.loads((results / f"{name}.json").read_text(encoding="utf-8"))
        assert report["name"] == name
        assert report["quick"] is True
        assert report["machine"]["cpus"] >= 1
        assert report["rows"]
        for goal in report["goals"]:
            reached = goal["measured"] >= goal["target"]
            if goal["kind"] == "at most":
                reached = goal["measured"] <= goal["target"]
            assert goal["met"] is reached, goal


def test_the_worker_handles_every_record_of_the_no_work_topic_in_both_ways(results: Path) -> None:
    rows = json.loads((results / "no_work.json").read_text(encoding="utf-8"))["rows"]
    assert [row["who"] for row in rows] == [
        "bare loop: consume and route",
        "bare loop: consume and decode",
        "binlane, reading every row",
    ]
    for row in rows:
        assert row["records"] == 20_000
        assert row["rate"] > 0
        assert row["cpu"] >= row["cpu_from_first"] > 0


def test_the_tracker_stays_within_its_bytes_behind_a_stuck_offset(results: Path) -> None:
    goals = json.loads((results / "tracker.json").read_text(encoding="utf-8"))["goals"]
    memory = next(goal for goal in goals if goal["unit"] == "bytes")
    assert memory["met"], memory


def test_missing_peers_are_named_with_the_reason(results: Path) -> None:
    notes = json.loads((results / "no_work.json").read_text(encoding="utf-8"))["notes"]
    assert "Parallel Consumer, Decaton not measured: left out as asked." in notes


@pytest.mark.soak  # handlers/sql shows what is in the table; the tests above that benchmarks run
@pytest.mark.usefixtures("postgres")  # says what to install where there is none
def test_every_writer_of_rows_leaves_the_same_table(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "sql", "--quick", "--json", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((tmp_path / "sql.json").read_text(encoding="utf-8"))
    assert len(report["goals"]) == 4
    for start in range(0, 12, 3):
        rows = report["rows"][start : start + 3]
        assert [row["writer"] for row in rows] == [
            "binlane: the sql handler",
            "SQLAlchemy executemany",
            "COPY, then one upsert",
        ]
        assert all(row["rate"] > 0 for row in rows)
        assert max(row["share"] for row in rows[1:]) == 1


def test_an_unknown_benchmark_is_refused_with_the_known_ones() -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "speed"],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    assert run.returncode == 2
    assert "no benchmark speed" in run.stdout
    assert "tracker" in run.stdout


@pytest.mark.soak  # core/test_row_order_processor.py
def test_one_hot_table_keeps_more_than_one_lane_busy_in_row_order(tmp_path: Path) -> None:
    results = measured(tmp_path, "row_order")
    by_table, by_row = json.loads((results / "row_order.json").read_text(encoding="utf-8"))["rows"]
    assert (by_table["order"], by_row["order"]) == ("table", "row")
    assert by_table["busy"] <= 1.0
    assert by_row["busy"] > 4.0
