"""Workers that are gone without a trace are told, whatever other deployments do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_alerts import evaluated

CRM = 'namespace="crm",job="crm/binlane",instance="10.0.0.2:8080",pod="binlane-a"'
SHOP = 'namespace="shop",job="shop/binlane",instance="10.0.0.3:8080",pod="binlane-b"'


def firing(series: dict[str, str], at: str, *expected: str, severity: str = "critical") -> dict[str, Any]:
    """`expected`: the labels of each alert, beside its state and severity."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": at,
                "exp_samples": [
                    {"labels": f'ALERTS{{alertstate="firing",severity="{severity}",{labels}}}', "value": 1}
                    for labels in expected
                ],
            }
        ],
    }


def both(shop: str) -> dict[str, str]:
    """`shop`: what is scraped of its only pod."""
    return {
        f"up{{{CRM}}}": "1x3000",
        f'binlane_info{{{CRM},version="1",group="shop"}}': "1x3000",
        f"up{{{SHOP}}}": shop,
        f'binlane_info{{{SHOP},version="1",group="shop"}}': shop,
        f'binlane_lag_records{{{SHOP},topic="cdc",partition="0"}}': shop,
        f'binlane_committed{{{SHOP},topic="cdc",partition="0"}}': shop,
    }


NO_WORKER = 'alertname="BinlaneNoWorker",namespace="shop",job="shop/binlane"'


def test_a_deployment_whose_only_pod_is_gone_is_told_while_another_goes_on(
    tmp_path: Path, promtool: str
) -> None:
    """Evicted, without room, without an image: its target vanishes with it, so that it is not even down."""
    series = both("1x20 stale")
    for at in ("26m", "60m", "20h"):
        assert evaluated(promtool, tmp_path, firing(series, at, NO_WORKER)) == "", at


def test_a_rollout_with_a_faulty_configuration_is_told(tmp_path: Path, promtool: str) -> None:
    """The new pod has another address, and never comes so far as to tell binlane_info."""
    new = SHOP.replace("10.0.0.3", "10.0.0.4").replace("binlane-b", "binlane-c")
    series = {**both("1x20 stale"), f"up{{{new}}}": "_x20 0x3000"}
    assert evaluated(promtool, tmp_path, firing(series, "40m", NO_WORKER)) == ""


def test_a_pod_that_is_moved_within_minutes_is_not_told(tmp_path: Path, promtool: str) -> None:
    new = SHOP.replace("10.0.0.3", "10.0.0.4").replace("binlane-b", "binlane-c")
    series = {
        **both("1x20 stale"),
        f"up{{{new}}}": "_x23 1x3000",
        f'binlane_info{{{new},version="1",group="shop"}}': "_x23 1x3000",
    }
    for at in ("24m", "30m", "60m"):
        assert evaluated(promtool, tmp_path, firing(series, at)) == "", at


def test_that_no_worker_was_ever_seen_is_told(tmp_path: Path, promtool: str) -> None:
    series = {'up{job="node",instance="10.0.0.9:9100"}': "1x120"}
    assert evaluated(promtool, tmp_path, firing(series, "60m", 'alertname="BinlaneNoWorker"')) == ""


@pytest.mark.parametrize("before", ["_x120", "1x15 stale"], ids=["the first", "a later one"])
@pytest.mark.parametrize(
    ("workload", "figures"),
    [
        ("deployment", ("kube_deployment_spec_replicas", "kube_deployment_status_replicas_available")),
        ("statefulset", ("kube_statefulset_replicas", "kube_statefulset_status_replicas_ready")),
    ],
)
def test_a_rollout_that_never_starts_is_told_once(
    tmp_path: Path, promtool: str, workload: str, figures: tuple[str, str], before: str
) -> None:
    """No image, no room, a faulty configuration: nothing of it is scraped. The other one goes on."""
    wanted, there = figures
    kube = f'namespace="shop",job="kube-state-metrics",{workload}="binlane"'
    series = {
        f'binlane_info{{{CRM},version="1",group="shop"}}': "1x120",
        f'binlane_info{{{SHOP},version="1",group="shop"}}': before,
        f"{wanted}{{{kube}}}": "_x20 1x100",
        f"{there}{{{kube}}}": "_x20 0x100",
    }
    once = {"expr": 'ALERTS{alertname="BinlaneNoWorker",alertstate="firing"}', "eval_time": "60m"}
    labels = f'ALERTS{{alertstate="firing",severity="critical",{NO_WORKER}}}'
    told = firing(series, "60m") | {
        "promql_expr_test": [{**once, "exp_samples": [{"labels": labels, "value": 1}]}]
    }
    assert evaluated(promtool, tmp_path, told) == ""


@pytest.mark.parametrize("replicas", ["1x20 0x100", "0x120"])
def test_one_that_is_scaled_to_none_before_it_ever_ran_is_not_told(
    tmp_path: Path, promtool: str, replicas: str
) -> None:
    kube = 'namespace="shop",job="kube-state-metrics",deployment="binlane"'
    series = {
        f'binlane_info{{{CRM},version="1",group="shop"}}': "1x120",
        f"kube_deployment_spec_replicas{{{kube}}}": replicas,
        f"kube_deployment_status_replicas_available{{{kube}}}": "0x120",
    }
    assert evaluated(promtool, tmp_path, firing(series, "60m")) == ""


def test_pods_that_are_missing_are_told(tmp_path: Path, promtool: str) -> None:
    """Of two, one has no room: nothing else shows it, as the other has all partitions."""
    kube = 'namespace="shop",job="kube-state-metrics",deployment="binlane"'
    series = {
        f"kube_deployment_spec_replicas{{{kube}}}": "2x120",
        f"kube_deployment_status_replicas_available{{{kube}}}": "2x20 1x100",
        f"up{{{SHOP}}}": "1x120",
        f'binlane_info{{{SHOP},version="1",group="shop"}}': "1x120",
    }
    missing = 'alertname="BinlanePodsMissing",namespace="shop",job="shop/binlane",workload="binlane"'
    assert evaluated(promtool, tmp_path, firing(series, "60m", missing, severity="warning")) == ""
    assert evaluated(promtool, tmp_path, firing(series, "30m")) == ""
