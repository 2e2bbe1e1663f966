"""How many workers KEDA asks for: its query on the figures of workers, by Prometheus' own evaluation."""

from __future__ import annotations

import math
import re
import subprocess
from pathlib import Path
from typing import Any

import pytest
import yaml

from worker.observing.metric_definitions import DEFINITIONS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "alerts.yml"
SCALED = yaml.safe_load((ROOT / "k8s" / "components" / "keda" / "scaled-object.yaml").read_text())["spec"]
TRIGGER = SCALED["triggers"][0]["metadata"]
THRESHOLD = int(TRIGGER["threshold"])

POD = 'namespace="binlane",job="binlane/binlane",instance="10.0.0.{}:8080"'


def worker(number: int, partitions: dict[int, tuple[int, int]], **figures: float) -> dict[str, float]:
    """The figures of a worker; partitions: {number: (fetched and unfinished, not fetched yet)}."""
    pod = POD.format(number)
    found = {
        f"binlane_blocked_records{{{pod}}}": figures.get("blocked_records", 0),
        f"binlane_tables_blocked{{{pod}}}": figures.get("tables_blocked", 0),
        f"binlane_lanes_fill_ratio{{{pod}}}": figures.get("fill", 0.2),
        f"binlane_backpressure_seconds_total{{{pod}}}": 77,
    }
    for partition, (unfinished, unread) in partitions.items():
        place = f'{pod},topic="cdc",partition="{partition}"'
        found[f"binlane_unfinished_records{{{place}}}"] = unfinished
        found[f"binlane_unread_records{{{place}}}"] = unread
        found[f"binlane_partition_paused{{{place}}}"] = figures.get("paused", 0)
        found[f"binlane_partition_blocked{{{place}}}"] = figures.get(f"held_{partition}", 0)
        found[f"binlane_lag_records{{{place}}}"] = 900_000
    return found


ELSEWHERE = {
    f'binlane_unfinished_records{{namespace="{space}",job="{job}",topic="cdc",partition="0"}}': 9_000_000
    for space, job in (("other", "other/binlane"), ("binlane", "binlane/crm-binlane"))
}
"""Of another namespace, and of another deployment in this one."""
CASES: dict[str, tuple[dict[str, float], float]] = {
    "no work": (worker(1, {0: (0, 0), 1: (0, 0)}), 0),
    "fetched and not": (worker(1, {0: (2_000, 8_000), 1: (0, 9_000)}), 19_000),
    "of two workers": (worker(1, {0: (1, 20)}) | worker(2, {1: (300, 4_000)}), 4_321),
    "of one binlane": (worker(1, {0: (100, 0)}) | ELSEWHERE, 100),
    "more than the partitions can share": (worker(1, {0: (0, 10**7), 1: (0, 10**7)}), 2 * THRESHOLD),
    "held by a blocked table": (
        worker(1, {0: (40_000, 0), 1: (10, 0)}, tables_blocked=1, blocked_records=40_000),
        10,
    ),
    "held by a blocked table, its partition at max_ahead": (
        worker(1, {0: (9_000, 500_000), 1: (0, 70)}, tables_blocked=1, blocked_records=9_000, held_0=1),
        70,
    ),
    "held by a blocked table that fills the lanes": (
        worker(
            1, {0: (9_000, 500_000)}, tables_blocked=1, blocked_records=8_999, fill=1.0, paused=1, held_0=1
        ),
        1,
    ),
    # As a worker told them: 60,000 records of a table whose target is down, polled in pieces of 5,000.
    "held by a blocked table that leaves no room for the next delivery": (
        worker(
            1, {0: (12_500, 47_500)}, tables_blocked=1, blocked_records=12_500, fill=0.75, paused=1, held_0=1
        ),
        0,
    ),
    "held by a table that is tried again for ever": (
        worker(1, {0: (12_500, 47_500)}, blocked_records=12_500, fill=0.75, paused=1, held_0=1),
        0,
    ),
    "lanes that are full beside a blocked table, and move": (
        worker(1, {0: (9_000, 500)}, tables_blocked=1, blocked_records=1_000, fill=1.0, paused=1),
        8_500,
    ),
    "beside a blocked table, with room in the lanes": (
        worker(1, {0: (50, 1_500), 1: (1, 0)}, tables_blocked=1, blocked_records=50),
        1_501,
    ),
    "all partitions held": (
        worker(1, {0: (5, 9)}, tables_blocked=1, blocked_records=5, held_0=1),
        0,
    ),
    "full lanes and nothing blocked": (worker(1, {0: (9_000, 500), 1: (1, 0)}, fill=1.0), 9_501),
}


def evaluated(promtool: str, folder: Path, figures: dict[str, float], expected: list[dict[str, Any]]) -> str:
    """What promtool has against it: nothing when the query gives what is expected."""
    case = {
        "interval": "15s",
        "input_series": [{"series": name, "values": f"{value}x40"} for name, value in figures.items()],
        "promql_expr_test": [{"expr": TRIGGER["query"], "eval_time": "5m", "exp_samples": expected}],
    }
    path = folder / "case.yaml"
    path.write_text(
        yaml.safe_dump({"rule_files": [str(RULES)], "evaluation_interval": "15s", "tests": [case]})
    )
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


@pytest.mark.parametrize("name", CASES)
def test_the_query_gives_the_work_that_another_worker_could_help_with(
    tmp_path: Path, promtool: str, name: str
) -> None:
    figures, work = CASES[name]
    assert evaluated(promtool, tmp_path, figures, [{"labels": "{}", "value": work}]) == ""


def test_without_figures_there_is_no_answer_and_no_scaling(tmp_path: Path, promtool: str) -> None:
    assert evaluated(promtool, tmp_path, ELSEWHERE, []) == ""
    assert TRIGGER["ignoreNullValues"] == "false"
    assert SCALED["fallback"]["behavior"] == "currentReplicasIfHigher"


def test_the_cases_have_metrics_that_exist_and_never_ask_for_more_than_the_partitions() -> None:
    labels = {entry.name: set(entry.labels) for entry in DEFINITIONS}
    for figures, work in CASES.values():
        places = set()
        for series in figures.keys() - ELSEWHERE.keys():
            name, _, rest = series.partition("{")
            assert set(re.findall(r"(\w+)=", rest)) - {"namespace", "job", "instance"} == labels[name]
            places |= set(re.findall(r'partition="\d+"', rest))
        assert math.ceil(work / THRESHOLD) <= len(places)
