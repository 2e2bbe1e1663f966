"""The Spark benchmarks run: small numbers, a real broker, the real worker with Spark, no peer."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_sessions import QUICK_JAVA

pytestmark = pytest.mark.soak  # that benchmarks run is shown by test_quick.py

ROOT = Path(__file__).parents[2]
NAMES = ("spark_freshness",)


@pytest.fixture(scope="module")
def reports(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    folder = tmp_path_factory.mktemp("results")
    run = subprocess.run(
        [
            *(sys.executable, "-m", "benchmarks", *NAMES, "--quick", "--no-peers"),
            *("--json", str(folder), "--plots", str(folder)),
        ],
        cwd=ROOT,
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    assert (folder / "spark-freshness.png").stat().st_size > 10_000
    return {name: json.loads((folder / f"{name}.json").read_text(encoding="utf-8")) for name in NAMES}


def test_every_change_is_seen_by_the_view_and_in_the_table(
    reports: dict[str, dict[str, Any]],
) -> None:
    rows = reports["spark_freshness"]["rows"]
    assert [(row["who"], row["where"]) for row in rows] == [
        (who, where) for who in ("binlane", "binlane, commits by Spark") for where in ("view", "merged table")
    ]
    for row in rows:
        assert row["unseen"] == 0
        assert 0 < row["p50"] <= row["p95"] <= row["max"]
        assert row["cpu"] > 0
        for name in ("p50", "p95"):
            tables = [row[f"t{table} {name}"] for table in range(2)]
            assert row[f"tables_{name}"] == f"{min(tables):.2f} to {max(tables):.2f}"
    for view, merged in (rows[:2], rows[2:]):
        assert view["p95"] < merged["p95"]
    assert rows[1]["commits"].startswith("delta-rs ")
    assert rows[3]["commits"].startswith("Spark ")


def test_records_are_durable_before_spark_is_up_with_the_archive_and_without(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "spark_start", "--quick", "--json", str(tmp_path)],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((tmp_path / "spark_start.json").read_text(encoding="utf-8"))
    default, *by_spark = report["rows"]
    assert default["kind"] == "binlane"
    assert default["spark"] is None
    assert [row["kind"] for row in by_spark] == ["Spark", "Spark, without the archive of classes"]
    for row in report["rows"]:
        assert row["ready"] > 0
        assert 0 < row["durable"] < row["merged"]
    for row in by_spark:
        assert default["merged"] < row["spark"] < row["merged"]
    assert len(report["goals"]) == 5


def test_many_tables_are_all_read_in_and_their_requests_counted(tmp_path: Path) -> None:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", "tables_10k", "--quick", "--json", str(tmp_path)],
        cwd=ROOT,
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=290,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report = json.loads((tmp_path / "tables_10k.json").read_text(encoding="utf-8"))
    assert [row["tables"] for row in report["rows"]] == ["4", "12"]
    for row in report["rows"]:
        assert row["start"] > 0
        assert row["peak_mib"] > 0
        assert row["change_us"] > 0
        assert row["batch"] >= 1
    requests = report["goals"][-1]
    assert requests["unit"] == "a second"
    assert requests["measured"] > 0
