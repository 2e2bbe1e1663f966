"""What goes wrong in a storm, and when: all of it from one seed."""

from __future__ import annotations

from dataclasses import dataclass
from random import Random

__all__ = ["KINDS", "ONE_BROKER", "Event", "schedule"]

KINDS: dict[str, tuple[int, float, float]] = {
    "worker killed": (28, 0.0, 4.0),
    "worker restarted": (18, 0.0, 1.0),
    "worker frozen": (24, 0.5, 3.5),
    "worker frozen beyond its session": (8, 10.0, 14.0),
    "lane process killed": (14, 0.0, 0.0),
    "lane process stopped": (10, 0.5, 2.5),
    "static member killed": (10, 0.0, 12.0),
    "members come and go": (12, 2.0, 5.0),
    "broker killed": (6, 0.0, 4.0),
    "leader moved": (4, 0.0, 2.0),
    "leaders elected": (10, 0.0, 0.0),
    "coordinator killed": (4, 0.0, 4.0),
    "network cut": (14, 0.5, 6.0),
    "network silent": (10, 1.0, 12.0),
    "network slow": (10, 2.0, 6.0),
    "checkpoint disk full": (10, 2.0, 6.0),
    "checkpoint folder read-only": (8, 2.0, 6.0),
    "clock jumps": (4, 3.0, 6.0),
    "offsets expired": (6, 0.0, 2.0),
    "topic made anew": (4, 0.0, 1.0),
    "partition added": (3, 0.0, 0.0),
    "database stopped": (6, 1.0, 5.0),
    "target's folder read-only": (8, 1.0, 5.0),
    "Spark killed": (4, 0.0, 1.0),
}
"""Kind -> how many of it are in 235 faults; how long it lasts: the least and the most seconds."""

ONE_BROKER = tuple(
    kind for kind in KINDS if kind not in ("leader moved", "leaders elected", "coordinator killed")
)
"""What one broker is enough for."""


@dataclass(frozen=True, slots=True)
class Event:
    at: float
    """Seconds from the beginning."""
    kind: str
    number: int
    """Which of those that it may happen to."""
    seconds: float

    def __str__(self) -> str:
        return f"{self.at:7.1f} s  {self.kind}, number {self.number}, for {self.seconds:.1f} s"


def schedule(seed: int, kinds: dict[str, int], seconds: float) -> list[Event]:
    """So many events of each kind, in a seeded order, spread over so many seconds."""
    random = Random(seed)
    deck = [kind for kind, count in kinds.items() for _ in range(count)]
    random.shuffle(deck)
    gap = seconds / max(1, len(deck))
    return [
        Event(
            at=round(gap * (place + random.random()), 1),
            kind=kind,
            number=random.randrange(1000),
            seconds=round(random.uniform(*KINDS[kind][1:]), 1),
        )
        for place, kind in enumerate(deck)
    ]
