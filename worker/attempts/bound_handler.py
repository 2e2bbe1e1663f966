"""A configured handler, and the state of its target."""

from __future__ import annotations

from dataclasses import dataclass, field

from handlers import Handler
from worker.attempts.circuit import Circuit


@dataclass(slots=True, eq=False)
class BoundHandler:
    """A configured handler with its object, or with one object per lane (more, if lanes were added)."""

    name: str
    objects: tuple[Handler, ...]
    circuit: Circuit = field(default_factory=Circuit)
    """The target's circuit, shared by all tables of the handler."""

    def of(self, lane: int) -> Handler:
        return self.objects[lane if len(self.objects) > 1 else 0]
