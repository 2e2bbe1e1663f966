"""A worker's parking without Kafka."""

from __future__ import annotations

from confluent_kafka import TopicPartition

from worker.fetching.parking import Parking
from worker.lanes.lanes import Lanes
from worker.partitions.pausing import Pauses
from worker.units.assigned_partition import Assignments
from worker.units.parking_files import ParkingLot
from worker.units.unit import Unit

__all__ = ["Flags", "parking_of"]


class Flags:
    """In place of the consumer: which partitions it is told to pause."""

    def __init__(self) -> None:
        self.paused: set[int] = set()

    def pause(self, places: list[TopicPartition]) -> None:
        self.paused |= {each.partition for each in places}

    def resume(self, places: list[TopicPartition]) -> None:
        self.paused -= {each.partition for each in places}


def parking_of(
    lot: ParkingLot, lanes: Lanes, *units: Unit, most: int = 1 << 30, pauses: Pauses | None = None
) -> Parking:
    """Park what these units have, in files of at most `most` bytes."""
    pauses = pauses or Pauses(Flags(), Assignments())  # type: ignore[arg-type]  # the part that is used
    return Parking(lot, lanes, lambda: units, pauses, most=most)
