"""The worker's journal: a unit for each partition that moved, with its source time; nothing waits."""

from __future__ import annotations

import shutil
from pathlib import Path

import pytest
from core.building import Clock, assignment, record
from core.test_committer import Group
from memory_store import loaded
from structlog.testing import capture_logs

from offsets.journal import Journal
from offsets.stores.file import FileStore
from offsets.tracker import OffsetTracker
from offsets.types import OffsetRange
from worker.formats.source_times import SourceTimes
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.partitions.journaling import Journaling
from worker.units.assigned_partition import Assignment, Assignments

SECOND = 1_763_000_000_000
"""The source time of a test's record 0; each later one happened a millisecond later."""


class Site:
    """Two partitions, and a committer with a journal."""

    def __init__(self, folder: Path) -> None:
        self.first, self.second = assignment(0), assignment(1)
        assignments = Assignments()
        assignments.add([self.first, self.second])
        self.folder = folder / "state" / "journal"
        self.metrics = Metrics()
        self.kafka = Group()
        self.committer = Committer(
            assignments,
            FileStore(folder / "state", "replica"),
            self.kafka,
            interval=60,
            metrics=self.metrics,
            clock=Clock(),
            fail=lambda error: None,
            journal=Journaling(Journal(self.folder, "replica"), self.metrics),
        )

    def finish(self, of: Assignment, count: int, unfinished: int = 0) -> None:
        """So many more records of the partition came and were finished, and some came that were not."""
        begin = of.tracker.next_offset or 0
        came = range(begin, begin + count + unfinished)
        of.came([record(offset) for offset in came])
        of.tracker.register(came).finish(came[:count])

    def journaled(self, of: Assignment) -> list[tuple[int, int | None]]:
        found = Journal(self.folder, "replica").history([of.partition], 100)[of.partition]
        return [(unit.offset, unit.source_ms) for unit in reversed(found)]

    def count(self, result: str) -> float | None:
        labels = {"store": "journal", "result": result}
        return self.metrics.registry.get_sample_value("binlane_commits_total", labels)


@pytest.fixture
def site(tmp_path: Path) -> Site:
    return Site(tmp_path)


def test_each_checkpoint_of_a_partition_that_moved_becomes_a_unit_with_its_source_time(site: Site) -> None:
    site.finish(site.first, 5)
    site.committer.commit()
    site.committer.commit()
    site.finish(site.first, 3)
    site.finish(site.second, 2)
    site.committer.commit()
    assert site.journaled(site.first) == [(5, SECOND + 4), (8, SECOND + 7)]
    assert site.journaled(site.second) == [(0, None), (2, SECOND + 1)], "where it began, too"


def test_a_position_behind_what_an_earlier_worker_finished_tells_no_time_of_what_came_before(
    site: Site,
) -> None:
    site.first.tracker = OffsetTracker(0, [OffsetRange(1, 5)])
    site.finish(site.first, 1)
    site.committer.commit()
    assert site.journaled(site.first) == [(5, None)], "those before 5 happened later than the one that came"
    site.first.came([record(offset) for offset in range(1, 8)])
    site.first.tracker.register([5, 6, 7]).finish([5, 6, 7])
    site.committer.commit()
    assert site.journaled(site.first) == [(5, None), (8, SECOND + 7)]


def test_a_position_that_waits_has_the_time_of_its_place_not_of_what_came_since(site: Site) -> None:
    site.finish(site.first, 5, unfinished=5)
    site.committer.commit()
    for _ in range(3):
        came = range(site.first.tracker.next_offset or 0, (site.first.tracker.next_offset or 0) + 10)
        site.first.came([record(offset) for offset in came])
        site.first.tracker.register(came)
        site.committer.commit()
    site.first.tracker.finish(range(5, 12))
    site.committer.commit()
    assert site.journaled(site.first) == [(5, SECOND + 9), (12, SECOND + 19)]


def test_what_no_store_took_is_not_in_the_journal(site: Site) -> None:
    (site.folder.parent).touch()
    site.kafka.fault = RuntimeError("away")
    site.finish(site.first, 5)
    assert not site.committer.commit()
    site.folder.parent.unlink()
    assert site.journaled(site.first) == []
    site.kafka.fault = None
    assert site.committer.commit()
    assert site.journaled(site.first) == [(5, SECOND + 4)]


def test_a_journal_that_cannot_be_written_is_told_once_and_counted_and_holds_nothing_up(site: Site) -> None:
    site.finish(site.first, 5)
    site.folder.parent.mkdir()
    with capture_logs() as logs:
        site.committer.commit()
        shutil.rmtree(site.folder)
        site.folder.touch()
        for _ in range(3):
            site.finish(site.first, 1)
            assert site.committer.commit()
            assert loaded(site.kafka, [site.first.partition])[site.first.partition].offset > 5
        assert site.committer.status().last_error is None
        told = [line for line in logs if line["event"] == "journal_failed"]
        assert len(told) == 1
        assert "journal" in told[0]["error"]
        assert (site.count("success"), site.count("failure")) == (1, 3)
        site.folder.unlink()
        assert site.committer.commit()
    assert [line["event"] for line in logs if line["event"].startswith("journal_")] == [
        "journal_failed",
        "journal_works_again",
    ]
    assert site.journaled(site.first) == [(8, SECOND + 7)], "what is missing comes with the next one"


def test_no_time_is_told_that_a_later_record_below_the_position_might_exceed() -> None:
    place = assignment(0)
    times = SourceTimes(place.format, clock=lambda: SECOND / 1000)
    assert times.below(5) is None
    times.came(record(4))
    assert times.below(5) == SECOND + 4
    times.came(record(9, value=b"{}"))
    assert times.below(10) is None, "those before the last one are not known"
    assert times.below(11) is None
    times.came(record(12))
    assert times.below(10) == SECOND + 12
    assert times.below(13) == SECOND + 12
    assert times.below(15) == SECOND + 12, "behind it only what is no record: transaction markers"


def test_a_source_whose_times_go_back_tells_the_latest_so_far() -> None:
    times = SourceTimes(assignment(0).format, clock=lambda: SECOND / 1000)
    times.came(record(4, es=SECOND + 100))
    times.latest()
    times.came(record(9, es=SECOND + 50))
    assert times.below(10) == SECOND + 100


def test_a_time_to_come_is_none() -> None:
    times = SourceTimes(assignment(0).format, clock=lambda: SECOND / 1000)
    times.came(record(4, es=SECOND + 3 * 86_400_000))
    assert times.below(5) is None
    times.came(record(9))
    assert times.below(10) == SECOND + 9


def test_many_samples_are_thinned_and_stay_true() -> None:
    times = SourceTimes(assignment(0).format, clock=lambda: SECOND / 1000)
    for offset in range(0, 50_000, 10):
        times.came(record(offset))
        times.latest()
    for offset in range(1, 50_000, 977):
        told = times.below(offset)
        assert told is not None
        assert SECOND + offset - 1 <= told <= SECOND + offset + 100


def test_a_tracker_that_begins_anew_forgets_the_times(site: Site) -> None:
    site.finish(site.first, 5)
    site.first.last_source_ms()
    site.first.restart_at(0)
    assert site.first.times.below(2) is None
    assert site.first.last_source_ms() == SECOND + 4, "the metric goes on"
