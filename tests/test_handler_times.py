"""Handler times: each lane measures for itself, a scrape adds up."""

from __future__ import annotations

import sys
import threading
from types import FrameType
from typing import Any

import pytest
from prometheus_client.samples import Sample

from worker.observing.meters import BOUNDS, HandlerTimes, merge
from worker.observing.metrics import Metrics


def values(metrics: Metrics, name: str, label: str) -> dict[str, float]:
    found: list[Sample] = [each for family in metrics.registry.collect() for each in family.samples]
    return {each.labels[label]: each.value for each in found if each.name == name}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_handler_times_fall_into_the_first_bucket_that_holds_them() -> None:
    metrics = Metrics()
    times = metrics.handler_times(0)
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.0001, 1e6):
        times.observe("spark", seconds)
    buckets = values(metrics, "binlane_handler_seconds_bucket", "le")
    assert list(map(float, buckets)) == [*BOUNDS, float("inf")]
    cumulative = list(buckets.values())
    assert cumulative[:3] == [2, 3, 3]
    assert cumulative[-2:] == [3, 4]
    assert value(metrics, "binlane_handler_seconds_count", handler="spark") == 4
    assert value(metrics, "binlane_handler_seconds_sum", handler="spark") == pytest.approx(1e6, abs=0.01)


def test_the_times_of_all_lanes_are_added_up_by_handler() -> None:
    metrics = Metrics()
    for lane in range(4):
        metrics.handler_times(lane).observe("spark", 1.0)
    metrics.handler_times(0).observe("mirror", 2.0)
    assert metrics.handler_times(2) is metrics.handler_times(2)
    assert value(metrics, "binlane_handler_seconds_count", handler="spark") == 4
    assert value(metrics, "binlane_handler_seconds_sum", handler="mirror") == 2.0


def test_lanes_that_observe_during_scrapes_lose_nothing_and_never_count_backwards() -> None:
    metrics = Metrics()
    calls, lanes = 20_000, 4

    def lane(number: int) -> None:
        times = metrics.handler_times(number)
        for call in range(calls):
            times.observe(f"handler-{call % 7}", 0.001 * (call % 100))
            if call % 100 == 0:
                metrics.count("binlane_retries_total", f"shop.t{call}")

    threads = [threading.Thread(target=lane, args=(number,)) for number in range(lanes)]
    for thread in threads:
        thread.start()
    seen = 0.0
    while any(thread.is_alive() for thread in threads):
        count = sum(values(metrics, "binlane_handler_seconds_count", "handler").values())
        assert count >= seen
        seen = count
    for thread in threads:
        thread.join()
    assert sum(values(metrics, "binlane_handler_seconds_count", "handler").values()) == calls * lanes
    assert sum(values(metrics, "binlane_retries_total", "table").values()) == calls / 100 * lanes


def test_a_copy_that_was_read_does_not_change_with_later_calls() -> None:
    times = HandlerTimes()
    times.observe("spark", 0.5)
    rows, merged = times.read(), merge([times])
    times.observe("spark", 0.5)
    assert rows["spark"][-1] == 0.5
    assert merged["spark"][0][-1] == ("+Inf", 1)


def test_observing_takes_no_lock_and_hardly_calls_anything() -> None:
    times = HandlerTimes()
    times.observe("spark", 0.02)
    called: list[str] = []

    def profile(_frame: FrameType, event: str, what: Any) -> None:
        if event == "c_call":
            called.append(what.__name__)
        elif event == "call":
            called.append(_frame.f_code.co_name)

    sys.setprofile(profile)
    try:
        times.observe("spark", 0.02)
    finally:
        sys.setprofile(None)
    assert len(called) <= 5, called
    assert not {"acquire", "__enter__"} & set(called)
