"""The benchmarks beside AUTO CDC and of Debezium's records run: small numbers, real Sparks and servers."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from spark_sessions import QUICK_JAVA

pytestmark = pytest.mark.soak  # test_auto_cdc_parts.py shows that the parts work

ROOT = Path(__file__).parents[2]
SECONDS = 900


def measured(folder: Path, name: str) -> dict[str, Any]:
    run = subprocess.run(
        [sys.executable, "-m", "benchmarks", name, "--quick", "--json", str(folder)],
        cwd=ROOT,
        env={**os.environ, "JAVA_TOOL_OPTIONS": QUICK_JAVA},
        capture_output=True,
        text=True,
        timeout=SECONDS,
        check=False,
    )
    assert run.returncode == 0, run.stdout + run.stderr
    report: dict[str, Any] = json.loads((folder / f"{name}.json").read_text(encoding="utf-8"))
    return report


@pytest.mark.timeout(SECONDS)
def test_binlane_is_exact_unless_records_come_late_and_auto_cdc_is_exact_then(tmp_path: Path) -> None:
    rows = measured(tmp_path, "auto_cdc_rows")["rows"]
    assert len(rows) == 6
    for row in rows:
        late = "after a newer one" in row["case"]
        assert row["binlane"] == ("40 wrong, 10 extra" if late else "exact")
        if late or "twice" in row["case"] or "again" in row["case"]:
            assert row["AUTO CDC"] == "exact"


@pytest.mark.timeout(SECONDS)
def test_each_side_has_its_rate_its_freshness_and_its_lines(tmp_path: Path) -> None:
    rows = measured(tmp_path, "auto_cdc")["rows"]
    assert [row["who"] for row in rows] == ["binlane", "Structured Streaming", "AUTO CDC"]
    for row in rows:
        assert row["rate"] > 0
        assert 0 < row["p50"] <= row["p95"]
        assert row["unseen"] == 0
        assert row["lines"] > 10


@pytest.mark.timeout(SECONDS)
@pytest.mark.usefixtures("postgres")  # says what to install where there is none
def test_debeziums_records_reach_delta_and_postgresql(tmp_path: Path) -> None:
    rows = measured(tmp_path, "debezium_rates")["rows"]
    assert [row["target"].partition(":")[0] for row in rows] == ["Delta", "Delta", "PostgreSQL"]
    for row in rows:
        assert row["rate"] > 0
        assert 400 < row["bytes"] < 1_200
