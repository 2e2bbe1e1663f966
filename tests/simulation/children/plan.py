"""Of a run's plan, what is about child processes of `lanes.processes`. Drawn by itself."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from random import Random

__all__ = ["CHILD_FAULTS", "Children"]

CHILD_FAULTS: Mapping[str, tuple[float, float]] = {
    "child_frozen": (0.5, 15.0),
    "changed": (0.0, 1.0),
    "no_starts": (0.5, 8.0),
    "child_killed": (0.0, 0.0),
    "child_unheard": (0.0, 0.0),
}
"""Each is a method of `faults.ChildFaults`, with the least and the most seconds that it takes."""
_FATAL = ("child_killed", "child_unheard")
"""They fail batches."""


@dataclass(frozen=True, slots=True)
class Children:
    count: int
    """`lanes.processes`."""
    start_seconds: float
    """The most that one takes until its program begins."""
    dying: float
    """How often one ends before, within or after a call of its handler."""
    opening: float
    """How often one ends while it opens a handler, or does not open it; half as often while it closes one."""
    late: float
    """How often it takes long to open a handler."""
    deadly: int
    """Records whose decoding ends the process."""
    faults: tuple[str, ...]

    @classmethod
    def drawn(cls, random: Random, *, may_fail: bool) -> Children:
        """`may_fail`: good records are tried until they are handled, however often that fails."""
        fatal = random.choice((0.0, 0.0, 0.02, 0.1))
        kinds = [each for each in CHILD_FAULTS if may_fail or each not in _FATAL]
        chosen = random.sample(kinds, random.choice((0, 1, 1, 2, 3)))
        return cls(
            count=random.choice((1, 1, 2, 3)),
            start_seconds=random.choice((0.05, 1.0)),
            dying=fatal if may_fail else 0.0,
            opening=random.choice((0.0, 0.0, 0.2)),
            late=random.choice((0.0, 0.0, 0.3)),
            deadly=random.choice((0, 0, 0, 1, 2)),
            faults=tuple(kind for kind in chosen for _ in range(random.choice((1, 1, 2, 4)))),
        )
