"""A partition whose commits Kafka refuses does not keep the others from confirming the membership."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

import pytest
from core.building import Clock, assignment
from lane_building import lanes_of
from memory_store import MemoryStore

from offsets.stores.file import FileStore
from offsets.stores.interface import CheckpointError
from offsets.types import Checkpoint, Mark, TopicPartition
from worker.observing.metrics import Metrics
from worker.partitions.committer import Committer
from worker.partitions.membership import Membership
from worker.units.assigned_partition import Assignments

SESSION = 30.0


class Group(MemoryStore):
    """Stands for Kafka and its answers: an accepted position confirms, a refused one fails the commit."""

    name = "kafka"

    def __init__(self, membership: Membership, clock: Clock) -> None:
        super().__init__()
        self.membership, self.clock = membership, clock
        self.refused: set[TopicPartition] = set()

    def save(self, checkpoints: Mapping[TopicPartition, Checkpoint]) -> dict[TopicPartition, Mark]:
        taken = {place: each for place, each in checkpoints.items() if place not in self.refused}
        if taken:
            super().save(taken)
            self.membership.confirmed(self.clock.now)
        if len(taken) < len(checkpoints):
            raise CheckpointError("not authorized")
        return {place: Mark(each.offset, 1) for place, each in taken.items()}


@pytest.mark.parametrize("known", [False, True], ids=["never-taken", "taken-before"])
def test_the_others_go_on(tmp_path: Path, known: bool) -> None:
    clock = Clock()
    lanes = lanes_of(clock)
    membership = Membership(lanes, SESSION, clock)
    kafka = Group(membership, clock)
    refused, other = assignment(0), assignment(1)
    assignments = Assignments()
    assignments.add([refused, other])
    for each in (refused, other):
        each.tracker.register(range(3)).finish(range(3))
    committer = Committer(
        assignments,
        FileStore(tmp_path / "state", "replica"),
        kafka,
        interval=5,
        metrics=Metrics(),
        clock=clock,
        fail=pytest.fail,
        membership=membership,
    )
    if known:
        assert committer.commit()
    kafka.refused.add(refused.partition)
    committer.commit()
    for _ in range(10):  # nothing comes meanwhile
        clock.now += SESSION / 2
        committer.commit(again=membership.due(clock.now))
        assert lanes.trusted
    assert committer.status().last_error == "not authorized"
