"""Workers that are gone without a trace are told, whatever other deployments do."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from test_alerts import evaluated

CRM = 'namespace="crm",job="crm/binlane",instance="10.0.0.2:8080",pod="binlane-a"'
SHOP = 'namespace="shop",job="shop/binlane",instance="10.0.0.3:8080",pod="binlane-b"'


def firing(series: dict[str, str], at: str, *expected: str) -> dict[str, Any]:
    """`expected`: the labels of each alert, beside its state."""
    return {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": [
            {
                "expr": 'ALERTS{alertstate="firing"}',
                "eval_time": at,
                "exp_samples": [
                    {"labels": f'ALERTS{{alertstate="firing",severity="critical",{labels}}}', "value": 1}
                    for labels in expected
                ],
            }
        ],
    }


def both(shop: str) -> dict[str, str]:
    """`shop`: what is scraped of its only pod."""
    return {
        f"up{{{CRM}}}": "1x3000",
        f'binlane_info{{{CRM},version="1"}}': "1x3000",
        f"up{{{SHOP}}}": shop,
        f'binlane_info{{{SHOP},version="1"}}': shop,
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
        f'binlane_info{{{new},version="1"}}': "_x23 1x3000",
    }
    for at in ("24m", "30m", "60m"):
        assert evaluated(promtool, tmp_path, firing(series, at)) == "", at


def test_that_no_worker_was_ever_seen_is_told(tmp_path: Path, promtool: str) -> None:
    series = {'up{job="node",instance="10.0.0.9:9100"}': "1x120"}
    assert evaluated(promtool, tmp_path, firing(series, "60m", 'alertname="BinlaneNoWorker"')) == ""


def test_pods_that_are_missing_are_told(tmp_path: Path, promtool: str) -> None:
    """Of two, one has no room: nothing else shows it, as the other has all partitions."""
    kube = 'namespace="shop",job="kube-state-metrics",deployment="binlane"'
    series = {
        f"kube_deployment_spec_replicas{{{kube}}}": "2x120",
        f"kube_deployment_status_replicas_available{{{kube}}}": "2x20 1x100",
        f"up{{{SHOP}}}": "1x120",
        f'binlane_info{{{SHOP},version="1"}}': "1x120",
    }
    missing = f'alertname="BinlanePodsMissing",{kube}'
    assert evaluated(promtool, tmp_path, firing(series, "60m", missing)) == ""
    assert evaluated(promtool, tmp_path, firing(series, "30m")) == ""
