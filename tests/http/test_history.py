"""The last hour that a worker keeps in memory, and what happened in it."""

from __future__ import annotations

from itertools import pairwise

import msgspec
import pytest
from example_worker import pulse_of, status_at

from worker.configuration.secrets import Secrets
from worker.observing import logs
from worker.observing.overview.timeline import ENTRIES, POINTS, SECONDS, History, Timeline
from worker.observing.status import WorkerStatus


class Ticking:
    """A worker whose clock is turned by hand."""

    def __init__(self) -> None:
        self.now = 0.0
        self.commits = (0, 0)
        self.healed = False
        self.timeline = Timeline(Secrets(["hunter22"]).redact, clock=lambda: self.now)
        self.history = History(
            lambda: pulse_of(self.status()),
            lambda: self.commits,
            self.timeline,
            clock=lambda: self.now,
            wall_clock=lambda: 1_000_000 + self.now,
        )

    def status(self) -> WorkerStatus:
        status = status_at(self.now, shards=1, partitions=2)
        if self.healed:
            tables = [msgspec.structs.replace(each, state="idle", error=None) for each in status.tables]
            status = msgspec.structs.replace(status, tables=tables)
        return msgspec.structs.replace(status, finished_records=int(self.now * 250))

    def run(self, seconds: float, step: float = 0.5) -> None:
        end = self.now + seconds
        while self.now < end:
            self.history.look()
            self.now += step


def test_a_point_every_five_seconds_says_what_happened_since_the_one_before() -> None:
    worker = Ticking()
    worker.run(3)
    worker.commits = (2, 1)
    worker.run(9)
    first, second, third = worker.history.points()
    assert [each.time for each in (first, second, third)] == [1_000_000, 1_000_005, 1_000_010]
    assert first.rate is None  # nothing to compare with
    assert (second.rate, third.rate) == (250, 250)
    assert (second.commits, second.failed_commits, third.commits) == (2, 1, 0)
    assert first.lag == sum(each.lag or 0 for each in worker.status().partitions)
    assert first.blocked == 1


def test_the_history_is_an_hour_long_and_no_longer() -> None:
    worker = Ticking()
    worker.run(2 * POINTS * SECONDS, step=SECONDS)
    points = worker.history.points()
    assert len(points) == POINTS
    assert all(after.time - before.time == SECONDS for before, after in pairwise(points))
    assert points[-1].time == 1_000_000 + (2 * POINTS - 1) * SECONDS
    assert worker.history.points(3) == points[-3:]


def test_a_pause_is_a_gap_and_is_not_caught_up() -> None:
    worker = Ticking()
    worker.run(6)
    worker.now += 100
    worker.run(6)
    times = [each.time - 1_000_000 for each in worker.history.points()]
    assert times == [0, 5, 106, 111]  # it had run to 6


def test_what_is_not_known_is_none_and_not_nothing() -> None:
    worker = Ticking()
    status = worker.status()
    unknown = msgspec.structs.replace(status.partitions[0], lag=None)
    worker.status = lambda: msgspec.structs.replace(status, partitions=[unknown])  # type: ignore[method-assign]
    worker.history._status = worker.status
    worker.run(1)
    (point,) = worker.history.points()
    assert point.lag is None
    assert msgspec.json.encode(point).count(b"null") == 2  # and the rate


def test_tables_that_go_on_are_in_the_timeline() -> None:
    worker = Ticking()
    worker.run(6)
    worker.healed = True
    worker.run(6)
    (entry,) = worker.timeline.entries()
    assert (entry.kind, entry.level, entry.event, entry.text) == (
        "trouble",
        "good",
        "tables continue",
        "shop_00.payments",
    )


@pytest.mark.parametrize("level", ["info", "error"])
def test_the_timeline_hears_the_log_whatever_its_level(
    level: str, capsys: pytest.CaptureFixture[str]
) -> None:
    timeline = Timeline(Secrets(["hunter22"]).redact, clock=lambda: 7.0)
    logs.configure(level)
    end = logs.listen(timeline.note)
    log = logs.get_logger("any")
    try:
        log.info("partition_assigned", partition="cdc.shop[0]", start="17")
        log.warning("ddl_refused", table="shop.a", reason="login with hunter22 failed")
        log.exception("checkpoint_failed", store="kafka", stack_of_it="File x", held_by=None)
        log.info("nothing_of_note", much="text")
    finally:
        end()
    log.info("reloaded", changed=["batch"])
    found = [(each.kind, each.level, each.event, each.text) for each in timeline.entries()]
    assert found == [
        ("rebalance", "info", "partition assigned", "partition cdc.shop[0] · start 17"),
        ("ddl", "warn", "ddl refused", "table shop.a · reason login with *** failed"),
        ("commit", "bad", "checkpoint failed", "store kafka"),
    ]
    capsys.readouterr()


def test_the_timeline_is_bounded_whatever_is_told() -> None:
    timeline = Timeline(str, clock=lambda: 0.0)
    for number in range(3 * ENTRIES):
        timeline.note("info", {"event": f"ddl_{number}", "sql": "ä" * 10_000})
    entries = timeline.entries()
    assert len(entries) == ENTRIES
    assert entries[-1].event == f"ddl {3 * ENTRIES - 1}"
    assert sum(2 * len(each.text) for each in entries) <= 500_000
    assert entries[0].text.endswith("…")


def test_events_of_one_name_that_come_together_are_one_entry_with_their_number() -> None:
    now = 0.0
    timeline = Timeline(str, clock=lambda: now)
    for partition in range(100):
        timeline.note("info", {"event": "partition_assigned", "partition": partition})
    timeline.note("info", {"event": "reloaded", "changed": ["lanes.count", "batch"]})
    now = 60.0
    timeline.note("info", {"event": "partition_assigned", "partition": 7})
    assert [(each.event, each.count, each.text) for each in timeline.entries()] == [
        ("partition assigned", 100, "partition 99"),
        ("reloaded", 1, "changed lanes.count, batch"),
        ("partition assigned", 1, "partition 7"),
    ]
    assert [each.event for each in timeline.entries(1)] == ["partition assigned"]
    versions = [each.version for each in timeline.entries()]
    assert versions == [100, 101, 102]


def test_a_secret_is_taken_out_before_a_text_is_cut() -> None:
    timeline = Timeline(Secrets(["hunter22"]).redact, clock=lambda: 0.0)
    timeline.note("error", {"event": "target_down", "error": "x" * 290 + "hunter22"})
    assert "hunt" not in timeline.entries()[0].text
