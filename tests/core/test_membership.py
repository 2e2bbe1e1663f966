"""No batch begins unless Kafka's word that the partitions are this worker's is younger than a session."""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator

import pytest
from building import Clock, unit
from lane_building import Source, lanes_of
from structlog.testing import capture_logs

from worker.lanes.lanes import Lanes
from worker.partitions.membership import Membership, session_of
from worker.units.work import Work

SESSION = 30.0


@pytest.fixture
def clock() -> Clock:
    return Clock()


@pytest.fixture
def lanes(clock: Clock) -> Lanes:
    return lanes_of(clock, count=2)


@pytest.fixture
def membership(lanes: Lanes, clock: Clock) -> Membership:
    return Membership(lanes, SESSION, clock)


class Taking(threading.Thread):
    """A processor that takes one batch."""

    def __init__(self, lanes: Lanes, number: int) -> None:
        super().__init__(daemon=True)
        self.lanes, self.number = lanes, number
        self.work: Work | None = None
        self.start()

    def run(self) -> None:
        self.work = self.lanes.take(self.number)

    def waits(self) -> bool:
        """Long enough for it to have taken what it may."""
        self.join(0.2)
        return self.is_alive()

    def has(self) -> Work | None:
        self.join(30)
        assert not self.is_alive()
        return self.work


@pytest.fixture(autouse=True)
def end(lanes: Lanes) -> Iterator[None]:
    yield
    lanes.stop()


def test_nothing_begins_before_the_first_commit_is_taken(
    lanes: Lanes, membership: Membership, clock: Clock
) -> None:
    Source(lanes).offer((unit("a"), 1), (unit("b", lane=1), 1))
    first, second = Taking(lanes, 0), Taking(lanes, 1)
    assert first.waits()
    assert second.waits()
    membership.confirmed(clock.now)
    assert first.has() is not None
    assert second.has() is not None


def test_nothing_begins_a_session_after_the_last_commit_was_sent(
    lanes: Lanes, membership: Membership, clock: Clock
) -> None:
    membership.confirmed(clock.now)
    source = Source(lanes)
    clock.now += SESSION - 1
    source.offer((unit("a"), 1))
    assert Taking(lanes, 0).has() is not None
    assert lanes.trusted
    clock.now += 1
    assert not lanes.trusted
    source.offer((unit("b", lane=1), 1))
    waiting = Taking(lanes, 1)
    assert waiting.waits()
    membership.confirmed(clock.now - SESSION)  # an answer that comes late says nothing of today
    assert waiting.waits()
    membership.confirmed(clock.now - SESSION + 1)
    assert waiting.has() is not None


def test_who_waits_for_it_ends_when_the_lanes_are_stopped(lanes: Lanes, membership: Membership) -> None:
    Source(lanes).offer((unit("a"), 1))
    waiting = Taking(lanes, 0)
    assert waiting.waits()
    lanes.stop()
    assert waiting.has() is None


def test_a_timer_that_is_due_meanwhile_is_not_forgotten(
    lanes: Lanes, membership: Membership, clock: Clock
) -> None:
    membership.confirmed(clock.now)
    Source(lanes).offer((unit("a"), 1))
    work = Taking(lanes, 0).has()
    assert work is not None
    lanes.give_back(0, work, delay=SESSION / 2, error="down")
    clock.now += SESSION
    waiting = Taking(lanes, 0), Taking(lanes, 1)
    assert waiting[0].waits()
    assert waiting[1].waits()
    membership.confirmed(clock.now)
    deadline = time.monotonic() + 30
    while all(each.is_alive() for each in waiting) and time.monotonic() < deadline:
        time.sleep(0.01)
    assert sorted(each.work is work for each in waiting) == [False, True]


def test_it_is_told_once_and_when_it_is_over(lanes: Lanes, membership: Membership, clock: Clock) -> None:
    membership.confirmed(clock.now)
    with capture_logs() as logged:
        clock.now += 10 * SESSION
        membership.between_polls(clock.now)  # nothing waits for it
        assert not logged
        Source(lanes).offer((unit("a"), 1))
        membership.between_polls(clock.now)
        membership.between_polls(clock.now)
        membership.confirmed(clock.now)
        membership.between_polls(clock.now)
    assert [line["event"] for line in logged] == ["membership_unconfirmed", "membership_confirmed_again"]
    assert logged[0]["seconds"] == 10 * SESSION


def test_how_long_batches_wait_for_it_is_known(lanes: Lanes, membership: Membership, clock: Clock) -> None:
    membership.confirmed(clock.now)
    clock.now += 10 * SESSION
    membership.between_polls(clock.now)
    assert membership.held_seconds(clock.now) == 0  # none waits
    Source(lanes).offer((unit("a"), 1))
    membership.between_polls(clock.now)
    clock.now += 7
    membership.between_polls(clock.now)
    assert membership.held_seconds(clock.now) == 7
    membership.confirmed(clock.now - 2 * SESSION)  # was sent too long ago
    assert membership.held_seconds(clock.now) == 7
    membership.confirmed(clock.now)
    assert membership.held_seconds(clock.now) == 0


def test_a_commit_is_wanted_in_time(membership: Membership, clock: Clock) -> None:
    assert membership.due(clock.now)
    membership.confirmed(clock.now)
    assert not membership.due(clock.now)
    clock.now += membership.wait(clock.now)
    assert membership.due(clock.now)
    assert clock.now < 1000 + SESSION / 2
    assert membership.wait(clock.now) > 0


@pytest.mark.parametrize(
    ("settings", "seconds"),
    [
        ({}, 42.0),
        ({"session.timeout.ms": "10000"}, 7.0),
        ({"session.timeout.ms": 8000, "heartbeat.interval.ms": 1000}, 7.0),
        ({"session.timeout.ms": 2000, "heartbeat.interval.ms": 2000}, 1.0),
        ({"group.protocol": "consumer"}, 40.0),
    ],
)
def test_a_commit_counts_for_the_session_less_a_heartbeat(
    settings: dict[str, object], seconds: float
) -> None:
    assert session_of(settings) == seconds
