"""Each alert fires for what it is there for, and none while all is well: by Prometheus' own evaluation."""

from __future__ import annotations

import itertools
import json
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from named_tests import missing, named

from worker.observing.metric_definitions import DEFINITIONS

ROOT = Path(__file__).parents[2]
RULES = ROOT / "deploy" / "alerts.yml"
ALERTS = {
    rule["alert"]: rule
    for group in yaml.safe_load(RULES.read_text())["groups"]
    for rule in group["rules"]
    if "alert" in rule
}

RUNBOOKS = ALERTS["BinlaneNoWorker"]["annotations"]["runbook_url"].partition("#")[0]
PAGES = {
    "BinlaneNoWorker",
    "BinlaneRestarts",
    "BinlaneTableBlocked",
    "BinlaneDelayLasts",
    "BinlaneRecordsSkipped",
    "BinlaneDeadLetters",
}
"""Symptoms: no worker, changes that stay late, changes that are set aside or wait for a person."""

# A pod as Kubernetes' scrape by annotations labels it: the job is not called binlane.
NAMESPACE = "shop"
OWNER = f'namespace="{NAMESPACE}",job="kubernetes-pods"'
KUBE = f'namespace="{NAMESPACE}",job="kube-state-metrics"'
POD = f'{OWNER},instance="10.0.0.7:8080"'
NEW_POD = f'{OWNER},instance="10.0.0.8:8080"'
PLACE = f'{POD},topic="cdc",partition="0"'
WELL = {
    f"up{{{POD}}}": "1x120",
    'up{job="node",instance="10.0.0.9:9100"}': "0x120",  # another's, which is down
    f'binlane_info{{{POD},version="1",group="shop"}}': "1x120",
    f"process_start_time_seconds{{{POD}}}": "1000x120",
    f"binlane_kafka_up{{{POD}}}": "1x120",
    f"binlane_membership_unconfirmed_seconds{{{POD}}}": "0x98 20x22",
    f"binlane_tables_halted{{{POD}}}": "0x120",
    f"binlane_tables_target_down{{{POD}}}": "0x90 1x2 0x30",
    f'binlane_target_up{{{POD},handler="spark"}}': "1x120",
    f'binlane_spark_up{{{POD},handler="spark"}}': "1x120",
    f"binlane_standstill_seconds{{{PLACE}}}": "0x120",
    f"binlane_partition_error_seconds{{{PLACE}}}": "0x98 50x22",
    f"binlane_first_commit_missing_seconds{{{PLACE}}}": "0x98 50x22",
    f'kube_deployment_spec_replicas{{{KUBE},deployment="binlane"}}': "2x120",
    f'kube_deployment_status_replicas_available{{{KUBE},deployment="binlane"}}': "2x90 0x5 2x30",
    f'kube_statefulset_replicas{{{KUBE},statefulset="shop-binlane"}}': "2x120",
    f'kube_statefulset_status_replicas_ready{{{KUBE},statefulset="shop-binlane"}}': "2x120",
    f"binlane_head_stuck_seconds{{{PLACE}}}": "0x120",
    f"binlane_head_paused_seconds{{{PLACE}}}": "0x120",
    f'binlane_table_paused_seconds{{{POD},pattern="shop.*",handler="",by="ann"}}': "0+60x60 _x60",
    f"binlane_max_ahead_reached{{{PLACE}}}": "0x120",
    f"binlane_parked_full{{{PLACE}}}": "0x120",
    f'binlane_lane_running_seconds{{{POD},lane="0"}}': "2x120",
    f'binlane_handler_failures_total{{{POD},handler="spark"}}': "3x120",
    f"binlane_committed{{{PLACE}}}": "0+100x120",
    f"binlane_lag_records{{{PLACE}}}": "50x120",
    f'binlane_commits_total{{{POD},store="kafka",result="failure"}}': "2x120",
    f'binlane_records_skipped_total{{{POD},reason="unmatched"}}': "0+500x120",
    f'binlane_records_finished_total{{{POD},table="shop.orders"}}': "0+100x120",
    f'binlane_records_skipped_total{{{POD},reason="failed"}}': "0x120",
    f'binlane_records_skipped_total{{{POD},reason="undecodable"}}': "0x120",
    f'binlane_dead_letters_total{{{POD},table="shop.orders"}}': "0x120",
    f"binlane_delay_seconds{{{PLACE}}}": "3x120",
    f"binlane_last_source_timestamp_seconds{{{PLACE}}}": "0+60x120",
    f"binlane_lanes_fill_ratio{{{POD}}}": "0.9x120",  # as handlers that keep up may well have them
    f"binlane_backpressure_seconds_total{{{POD}}}": "0+20x120",
    f"binlane_last_reload_successful{{{POD}}}": "1x120",
    f'binlane_spark_waiting_seconds{{{POD},table="shop.orders"}}': "9x120",
    f'binlane_spark_merges_total{{{POD},result="failure"}}': "4x120",
}
"""Two hours, a value a minute. Evaluated at 100 minutes."""

WRONG: dict[str, dict[str, str]] = {
    "BinlaneNoWorker": {
        f'binlane_info{{{POD},version="1",group="shop"}}': "1x85 _x30",
        f"up{{{POD}}}": "1x85 _x30",
    },
    "BinlaneWorkerDown": {
        f'binlane_info{{{POD},version="1",group="shop"}}': "1x97 _x30",
        f"up{{{POD}}}": "1x97 0x30",
    },
    "BinlanePodsMissing": {
        f'kube_statefulset_status_replicas_ready{{{KUBE},statefulset="shop-binlane"}}': "2x80 1x40",
    },
    "BinlaneRestarts": {f"process_start_time_seconds{{{POD}}}": "1000x90 2000x2 3000x2 4000x30"},
    "BinlaneKafkaDown": {f"binlane_kafka_up{{{POD}}}": "1x95 0x30"},
    "BinlaneMembershipUnconfirmed": {f"binlane_membership_unconfirmed_seconds{{{POD}}}": "0x97 61+60x30"},
    "BinlaneFirstCommitMissing": {f"binlane_first_commit_missing_seconds{{{PLACE}}}": "0x97 61+60x30"},
    "BinlaneTableBlocked": {f"binlane_tables_halted{{{POD}}}": "0x97 2x30"},
    "BinlaneTargetDown": {
        f'binlane_target_up{{{POD},handler="spark"}}': "1x92 0x30",
        f"binlane_tables_target_down{{{POD}}}": "0x92 3x30",
    },
    "BinlaneTableWaits": {f"binlane_tables_target_down{{{POD}}}": "0x92 1x30"},
    "BinlaneSparkDown": {f'binlane_spark_up{{{POD},handler="spark"}}': "1x95 0x30"},
    "BinlanePartitionError": {
        f"binlane_partition_error_seconds{{{PLACE}}}": "0x98 61x30",
        f"binlane_standstill_seconds{{{PLACE}}}": "0x98 61x30",
    },
    "BinlaneStandstill": {f"binlane_standstill_seconds{{{PLACE}}}": "0x98 61x30"},
    "BinlaneHeadStuck": {f"binlane_head_stuck_seconds{{{PLACE}}}": "0x97 300+60x30"},
    "BinlaneTablePaused": {
        f'binlane_table_paused_seconds{{{POD},pattern="shop.*",handler="",by="ann"}}': "82000+60x120"
    },
    "BinlaneTooFarAhead": {f"binlane_max_ahead_reached{{{PLACE}}}": "0x90 1x30"},
    "BinlaneParkingFull": {f"binlane_parked_full{{{PLACE}}}": "0x90 1x30"},
    "BinlaneCallHangs": {f'binlane_lane_running_seconds{{{POD},lane="0"}}': "2x80 0+60x30"},
    "BinlaneHandlerFails": {f'binlane_handler_failures_total{{{POD},handler="spark"}}': "3x70 4+1x50"},
    "BinlaneNotCommitting": {f"binlane_committed{{{PLACE}}}": "0+100x80 8000x40"},
    "BinlaneCommitsFail": {
        f'binlane_commits_total{{{POD},store="kafka",result="failure"}}': "2x90 3+1x30",
    },
    "BinlaneRecordsSkipped": {f'binlane_records_skipped_total{{{POD},reason="failed"}}': "0x97 1x30"},
    "BinlaneNothingMatches": {f'binlane_records_finished_total{{{POD},table="shop.orders"}}': "_x120"},
    "BinlaneDeadLetters": {f'binlane_dead_letters_total{{{POD},table="shop.orders"}}': "0x97 1x30"},
    "BinlaneLag": {f"binlane_lag_records{{{PLACE}}}": "50x85 200000x40"},
    "BinlaneDelay": {f"binlane_delay_seconds{{{PLACE}}}": "3x85 400x40"},
    "BinlaneDelayLasts": {f"binlane_delay_seconds{{{PLACE}}}": "3x50 400x80"},
    "BinlaneSourceSilent": {f"binlane_last_source_timestamp_seconds{{{PLACE}}}": "0+60x30 -90000x100"},
    # Deliveries are taken whole: a blocked table leaves the next one no room at three quarters of the bound.
    "BinlaneAlwaysFull": {
        f"binlane_backpressure_seconds_total{{{POD}}}": "0+20x66 1320+59x60",
        f"binlane_lanes_fill_ratio{{{POD}}}": "0.2x60 0.75x60",
    },
    "BinlaneReloadRefused": {f"binlane_last_reload_successful{{{POD}}}": "1x95 0x30"},
    "BinlaneSparkTableWaits": {
        f'binlane_spark_waiting_seconds{{{POD},table="shop.orders"}}': "9x90 400x30",
    },
    "BinlaneSparkMergesFail": {f'binlane_spark_merges_total{{{POD},result="failure"}}': "4x70 5+1x50"},
}

RESTARTS = f'kube_pod_container_status_restarts_total{{{KUBE},pod="shop-binlane-0",container="worker"}}'

WRONG_TOO: list[tuple[str, dict[str, str]]] = [
    (
        "BinlanePodsMissing",
        {f'kube_deployment_status_replicas_available{{{KUBE},deployment="binlane"}}': "2x80 1x40"},
    ),
    # Before the first commit there is no committed offset.
    (
        "BinlaneNotCommitting",
        {f"binlane_committed{{{PLACE}}}": "_x120", f"binlane_lag_records{{{PLACE}}}": "0x80 50x40"},
    ),
    # Within half an hour, and no scrape shows anything of it.
    ("BinlaneRestarts", {RESTARTS: "0x74 1x8 2x8 3x30"}),
    # Late, but on time again within the hour.
    ("BinlaneDelay", {f"binlane_delay_seconds{{{PLACE}}}": "3x50 9000-150x55"}),
    ("BinlaneNothingMatches", {f'binlane_records_finished_total{{{POD},table="shop.orders"}}': "0x120"}),
    (
        "BinlaneRecordsSkipped",
        {f'binlane_records_skipped_total{{{POD},reason="undecodable"}}': "0x97 1x30"},
    ),
    # A counter that Prometheus meets at 1: of a table whose first record fails, or of a worker that has begun
    # just now.
    ("BinlaneDeadLetters", {f'binlane_dead_letters_total{{{POD},table="shop.new"}}': "_x97 1x30"}),
    ("BinlaneRecordsSkipped", {f'binlane_records_skipped_total{{{NEW_POD},reason="failed"}}': "_x97 1x30"}),
    (
        "BinlaneCommitsFail",
        {f'binlane_commits_total{{{NEW_POD},store="kafka",result="failure"}}': "_x93 1x30"},
    ),
    # More of them, before and after.
    ("BinlaneDeadLetters", {f'binlane_dead_letters_total{{{POD},table="shop.new"}}': "_x80 1x10 2x30"}),
]

STILL_WELL: list[dict[str, str]] = [
    # What was counted longer ago than the alert looks back, also by a worker that has gone.
    {f'binlane_dead_letters_total{{{POD},table="shop.new"}}': "_x80 3x40"},
    {f'binlane_dead_letters_total{{{NEW_POD},table="shop.new"}}': "1x70 _x50"},
    {f'binlane_records_skipped_total{{{NEW_POD},reason="failed"}}': "_x80 3x40"},
    {f'binlane_commits_total{{{NEW_POD},store="kafka",result="failure"}}': "_x80 1x40"},
    # Two groups of one job, each a little behind.
    {
        f'binlane_info{{{NEW_POD},version="1",group="mirror"}}': "1x120",
        f"binlane_lag_records{{{PLACE}}}": "50x50 60000x70",
        f'binlane_lag_records{{{NEW_POD},topic="cdc",partition="0"}}': "60000x120",
        f'binlane_committed{{{NEW_POD},topic="cdc",partition="0"}}': "0+100x120",
    },
    # One of another restarts, and a worker that was away for long is back.
    {'kube_pod_container_status_restarts_total{pod="shop-0",container="worker"}': "0x60 0+1x60"},
    {f"binlane_kafka_up{{{POD}}}": "1x97 0x1 1x60"},
    {
        f"up{{{POD}}}": "1x60 0x30 1x30",
        f"process_start_time_seconds{{{POD}}}": "1000x60 _x30 7000x30",
        f'binlane_info{{{POD},version="1",group="shop"}}': "1x60 _x30 1x30",
    },
    # Counted long ago, and the worker did not answer one scrape.
    {f'binlane_dead_letters_total{{{POD},table="shop.new"}}': "3x89 stale 3x30"},
    {f'binlane_records_skipped_total{{{POD},reason="failed"}}': "3x89 stale 3x30"},
    {  # a table is paused
        f"binlane_head_paused_seconds{{{PLACE}}}": "0x40 300+60x80",
        f"binlane_committed{{{PLACE}}}": "0+100x35 3500x85",
        f"binlane_lag_records{{{PLACE}}}": "50x50 200000x70",
        f"binlane_delay_seconds{{{PLACE}}}": "3x40 60+60x80",
    },
]


EVERY_ALERT = 'count by (alertname, namespace, job) (ALERTS{alertstate="firing"})'
WITH_IT = {"BinlaneDelayLasts": ["BinlaneDelay"]}
"""What fires before it."""


def owner(alert: str, wrong: dict[str, str]) -> str:
    """Its labels. kube-state-metrics knows the workload, not the job that scrapes its pods."""
    if RESTARTS in wrong:
        return f'namespace="{NAMESPACE}",job="{NAMESPACE}/shop-binlane"'
    if alert != "BinlanePodsMissing":
        return OWNER
    [workload] = [found[1] for name in wrong if (found := re.search(r'(?:deployment|set)="(.*?)"', name))]
    return f'namespace="{NAMESPACE}",job="{NAMESPACE}/{workload}"'


def case(changed: dict[str, str], firing: list[str], expr: str = EVERY_ALERT) -> dict[str, Any]:
    """Each alert has to say whose it is."""
    named = [each for name in firing for each in (name, *WITH_IT.get(name, []))]
    expected = [{"labels": f'{{alertname="{name}",{owner(name, changed)}}}', "value": 1} for name in named]
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in {**WELL, **changed}.items()],
        "promql_expr_test": [{"expr": expr, "eval_time": "100m", "exp_samples": expected}],
    }


@pytest.mark.parametrize(
    ("alert", "wrong"),
    [(None, {}), *WRONG.items(), *WRONG_TOO, *((None, changed) for changed in STILL_WELL)],
)
def test_an_alert_fires_for_its_own_trouble_alone_and_none_while_all_is_well(
    tmp_path: Path, promtool: str, alert: str | None, wrong: dict[str, str]
) -> None:
    assert evaluated(promtool, tmp_path, case(wrong, [] if alert is None else [alert])) == ""


def evaluated(promtool: str, folder: Path, *cases: dict[str, Any]) -> str:
    """What promtool has against them: nothing when all is as expected."""
    path = folder / "case.yaml"
    [interval] = {each["interval"] for each in cases}
    tested = {"rule_files": [str(RULES)], "evaluation_interval": interval, "tests": cases}
    path.write_text(json.dumps(tested))  # JSON is YAML, and is written in no time
    done = subprocess.run([promtool, "test", "rules", str(path)], capture_output=True, text=True, check=False)
    return "" if done.returncode == 0 else done.stdout + done.stderr


def lives(ends: float, *, lasts: float, waits: Iterator[float]) -> list[tuple[float, float]]:
    """When a worker ran, in seconds: an hour, then for `lasts` at a time, and it `waits` before each."""
    found = [(0.0, 3_600.0)]
    while found[-1][1] < ends:
        start = found[-1][1] + next(waits)
        found.append((start, start + lasts))
    return found


def crash_loop() -> Iterator[float]:
    """What Kubernetes waits before each restart of a container."""
    return itertools.chain([10.0, 20.0, 40.0, 80.0, 160.0], itertools.repeat(300.0))


def scraped(runs: list[tuple[float, float]], *, every: int, first: int, ends: int) -> dict[str, str]:
    """What Prometheus has of them; it scrapes `first` at that second."""
    up, began, info = [], [], []
    for now in range(first, ends, every):
        start = next(
            (start for start, end in runs if start + 1 <= now < end), None
        )  # it listens after a second
        up.append("0" if start is None else "1")
        began.append("_" if start is None else f"{start:g}")
        info.append("_" if start is None else "1")
    return {
        f"up{{{POD}}}": " ".join(up),
        f"process_start_time_seconds{{{POD}}}": " ".join(began),
        f'binlane_info{{{POD},version="1",group="shop"}}': " ".join(info),
    }


@pytest.mark.parametrize(
    ("every", "kube_state"),
    [
        (30, False),
        (15, True),
        *(pytest.param(*each, marks=pytest.mark.soak) for each in ((15, False), (30, True))),
    ],
)
def test_a_worker_that_ends_seconds_after_each_start_is_told_of(
    tmp_path: Path, promtool: str, every: int, kube_state: bool
) -> None:
    """As with a backlog behind a halted table that the lanes cannot hold, in Kubernetes' back-off."""
    ends = 2 * 3_600
    runs = lives(ends, lasts=5, waits=crash_loop())
    series = scraped(runs, every=every, first=7, ends=ends)
    began = f"process_start_time_seconds{{{POD}}}"
    assert len(set(series[began].split()) - {"_", "0"}) >= 3, "some scrapes hit one of the lives"
    alerts = ["BinlaneRestarts", "BinlaneWorkerDown"]
    if kube_state:  # a new pod, and no scrape hits any
        counts = [sum(start <= now for start, _ in runs[1:]) for now in range(7, ends, every)]
        pod = f'{KUBE},pod="binlane-5c9f7d8b64-x2xkq",container="worker",instance="kube-state-metrics:8080"'
        series = {
            f"up{{{POD}}}": " ".join("0" for _ in counts),
            f"kube_pod_container_status_restarts_total{{{pod}}}": " ".join(map(str, counts)),
        }
        alerts = ["BinlaneRestarts"]
    expected = [{"labels": f'{{alertname="{name}"}}', "value": 1} for name in alerts]
    expr = 'count by (alertname) (ALERTS{alertstate="firing", alertname!="BinlaneNoWorker"})'
    one = {
        "interval": f"{every}s",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": [
            {"expr": expr, "eval_time": f"{minute}m", "exp_samples": expected}
            for minute in (80, 90, 100, 110)
        ],
    }
    assert evaluated(promtool, tmp_path, one) == ""


def test_every_alert_has_a_case_and_the_series_are_of_metrics_that_exist() -> None:
    assert WRONG.keys() == ALERTS.keys()
    labels = {entry.name: set(entry.labels) for entry in DEFINITIONS}
    for series in {**WELL, **{name: "" for each in WRONG.values() for name in each}}:
        name, _, rest = series.partition("{")
        if name.startswith("binlane_"):
            assert set(re.findall(r"(\w+)=", rest)) - {"namespace", "job", "instance"} == labels[name], name


def test_each_alert_has_its_runbook_and_each_runbook_its_alert() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    sections = dict(re.findall(r"^## (\w+)\n(.*?)(?=^## |\Z)", text, re.MULTILINE | re.DOTALL))
    assert list(sections) == list(ALERTS)
    for name, section in sections.items():
        parts = re.findall(r"^\*\*([\w ]+):\*\*", section, re.MULTILINE)
        assert parts == ["Means", "Look at", "Do"], name
        assert ALERTS[name]["annotations"]["runbook_url"] == f"{RUNBOOKS}#{name.lower()}"


def test_the_runbook_of_restarts_has_the_windows_of_its_rule() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    section = text.partition("## BinlaneRestarts\n")[2].partition("\n## ")[0].partition("**Look at:**")[0]
    expr = ALERTS["BinlaneRestarts"]["expr"]
    for figure, window in (("process_start_time_seconds", "15"), ("restarts_total", "30")):
        assert re.search(figure + r"(?:\{[^}]*\})?\[(\w+)m\]\)? > 2", expr)[1] == window  # type: ignore[index]
        assert re.search(rf"(?:more than twice|above two restarts) within {window}\s+minutes", section)
    assert "process_start_time_seconds[1h]" in expr
    assert re.search(r"restarted within\s+the hour", section)


def test_symptoms_page_and_causes_warn() -> None:
    assert {name for name, rule in ALERTS.items() if rule["labels"]["severity"] == "critical"} == PAGES
    text = (ROOT / "docs" / "runbooks.md").read_text()
    told = re.search(r"^These alerts page: (.*?)\.$", text, re.MULTILINE | re.DOTALL)
    assert told is not None
    assert set(re.findall(r"Binlane\w+", told[1])) == PAGES


def test_runbooks_name_the_tests_that_cause_the_trouble() -> None:
    text = (ROOT / "docs" / "runbooks.md").read_text()
    assert len(named(text)) >= 9
    assert not missing(text)


def test_no_page_names_an_alert_that_is_none_or_has_a_set_of_rules_of_its_own() -> None:
    for page in [*(ROOT / "docs").rglob("*.md"), ROOT / "README.md"]:
        assert set(re.findall(r"\bBinlane[A-Z]\w+", page.read_text())) <= ALERTS.keys(), page.name
        assert "expr:" not in page.read_text(), page.name
