"""Handler times of all lanes in one histogram."""

from __future__ import annotations

import threading

import pytest
from prometheus_client.samples import Sample

from worker.observing.metric_definitions import BOUNDS
from worker.observing.metrics import Metrics


def values(metrics: Metrics, name: str, label: str) -> dict[str, float]:
    found: list[Sample] = [each for family in metrics.registry.collect() for each in family.samples]
    return {each.labels[label]: each.value for each in found if each.name == name}


def value(metrics: Metrics, name: str, **labels: str) -> float | None:
    return metrics.registry.get_sample_value(name, labels)


def test_handler_times_fall_into_the_first_bucket_that_holds_them() -> None:
    metrics = Metrics()
    for seconds in (0.0, BOUNDS[0], BOUNDS[0] * 1.0001, 1e6):
        metrics.called("spark", seconds)
    buckets = values(metrics, "binlane_handler_seconds_bucket", "le")
    assert list(map(float, buckets)) == [*BOUNDS, float("inf")]
    cumulative = list(buckets.values())
    assert cumulative[:3] == [2, 3, 3]
    assert cumulative[-2:] == [3, 4]
    assert value(metrics, "binlane_handler_seconds_count", handler="spark") == 4
    assert value(metrics, "binlane_handler_seconds_sum", handler="spark") == pytest.approx(1e6, abs=0.01)


def test_the_times_of_all_lanes_are_added_up_by_handler() -> None:
    metrics = Metrics()
    for _ in range(4):
        metrics.called("spark", 1.0)
    metrics.called("mirror", 2.0)
    assert value(metrics, "binlane_handler_seconds_count", handler="spark") == 4
    assert value(metrics, "binlane_handler_seconds_sum", handler="mirror") == 2.0


def test_lanes_that_observe_during_scrapes_lose_nothing_and_never_count_backwards() -> None:
    metrics = Metrics()
    calls, lanes = 20_000, 4

    def lane(number: int) -> None:
        for call in range(calls):
            metrics.called(f"handler-{call % 7}", 0.001 * (call % 100))
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
