"""A delay that lasts pages, whatever causes it. What ends by itself does not."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
from test_alerts import NEW_POD, OWNER, PLACE, POD, case, evaluated

LASTS = f'{{alertname="BinlaneDelayLasts",{OWNER}}}'
PAGING = 'count by (alertname, namespace, job) (ALERTS{alertstate="firing",severity="critical"})'


def paged(changed: dict[str, str], *labels: str) -> dict[str, Any]:
    return {
        **case(changed, [], PAGING),
        "promql_expr_test": [
            {
                "expr": PAGING,
                "eval_time": "100m",
                "exp_samples": [{"labels": each, "value": 1} for each in labels],
            }
        ],
    }


@pytest.mark.parametrize(
    "changed",
    [
        {f"binlane_delay_seconds{{{PLACE}}}": "3x50 310+60x70"},
        # Records that are not fetched have no delay yet.
        {f"binlane_committed{{{PLACE}}}": "0+100x50 5000x70"},
        {f"binlane_committed{{{PLACE}}}": "_x120"},
        {
            f"binlane_partition_error_seconds{{{PLACE}}}": "0x50 60+60x70",
            f"binlane_committed{{{PLACE}}}": "7x120",
        },
        # Without a broker, nothing is known of delay and lag.
        {f"binlane_kafka_up{{{POD}}}": "1x50 0x70"},
    ],
    ids=["behind", "no commit", "no first commit", "a damaged batch", "no broker"],
)
def test_half_an_hour_of_delay_pages(tmp_path: Path, promtool: str, changed: dict[str, str]) -> None:
    assert evaluated(promtool, tmp_path, paged(changed, LASTS)) == ""


@pytest.mark.parametrize(
    "changed",
    [
        {f"binlane_kafka_up{{{POD}}}": "1x75 0x45"},
        # One of several: the others have its partitions.
        {f"binlane_kafka_up{{{NEW_POD}}}": "1x30 0x90"},
        {f'binlane_target_up{{{POD},handler="spark"}}': "1x75 0x45"},
        {f"binlane_committed{{{PLACE}}}": "0+100x75 7500x40"},
        {f"binlane_delay_seconds{{{PLACE}}}": "3x75 310+60x45"},
        # A backlog that is gone within the hour.
        {f"binlane_delay_seconds{{{PLACE}}}": "3x45 18000-300x58"},
        {f"up{{{POD}}}": "1x95 0x3 1x30", f'binlane_info{{{POD},version="1",group="shop"}}': "1x95 _x3 1x30"},
    ],
    ids=["no broker", "one without a broker", "no target", "no commit", "behind", "catching up", "a restart"],
)
def test_what_ends_by_itself_does_not_page(tmp_path: Path, promtool: str, changed: dict[str, str]) -> None:
    assert evaluated(promtool, tmp_path, paged(changed)) == ""


def test_partitions_that_each_have_a_record_now_and_then_do_not_page(tmp_path: Path, promtool: str) -> None:
    """At every moment one of them has just got its first record for a while."""
    changed = {}
    for number in range(12):
        place = f'{POD},topic="cdc",partition="{number}"'
        lag = [int((minute - number) % 12 == 0) for minute in range(120)]
        committed = [(minute - number + 11) // 12 for minute in range(120)]
        changed[f"binlane_lag_records{{{place}}}"] = " ".join(map(str, lag))
        changed[f"binlane_committed{{{place}}}"] = " ".join(map(str, committed))
    assert evaluated(promtool, tmp_path, paged(changed)) == ""


def silent(days: str) -> dict[str, Any]:
    """`days`: what is consumed every half hour. The last hour has no change."""
    source = f"binlane_last_source_timestamp_seconds{{{PLACE}}}"
    return {
        "interval": "30m",
        "input_series": [
            {"series": source, "values": f"0+1800x{2 * 24 * 7 + 1} {3600 * 24 * 7}x9"},
            {"series": f"binlane_records_consumed_total{{{PLACE}}}", "values": days},
        ],
    }


def test_a_source_that_sleeps_every_night_is_not_told_and_one_that_stops_by_day_is(
    tmp_path: Path, promtool: str
) -> None:
    """Two hours after a week's end."""
    expr = (
        'count by (alertname, namespace, job) (ALERTS{alertstate="firing",alertname="BinlaneSourceSilent"})'
    )
    told = [{"labels": f'{{alertname="BinlaneSourceSilent",{OWNER}}}', "value": 1}]
    week = 2 * 24 * 7
    by_day = silent(f"0+10x{week} {10 * week}x9")
    at_night = silent(f"0x8 0+10x{week - 56} {10 * (week - 56)}x57")
    asked = {"expr": expr, "eval_time": f"{24 * 7 + 2}h"}
    by_day["promql_expr_test"] = [{**asked, "exp_samples": told}]
    at_night["promql_expr_test"] = [{**asked, "exp_samples": []}]
    assert evaluated(promtool, tmp_path, by_day, at_night) == ""
