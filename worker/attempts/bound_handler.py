"""A configured handler, and the state of its target."""

from __future__ import annotations

from dataclasses import dataclass, field

from handlers import Handler
from worker.attempts.circuit import Circuit


@dataclass(slots=True, eq=False)
class BoundHandler:
    """A configured handler with its object, or one object for each lane (more, when lanes are added)."""

    name: str
    objects: tuple[Handler, ...]
    circuit: Circuit = field(default_factory=Circuit)
    """Of its target: all tables of the handler share it."""

    def of(self, lane: int) -> Handler:
        return self.objects[lane if len(self.objects) > 1 else 0]
