"""A statement about several tables: a place in the queue of each, that none passes before it is done.

All places of a barrier are queued at one moment, by the one thread that fetches: of two barriers, every table
has the same one first, so tables never wait for each other in a ring.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Member = TypeVar("Member")
"""The unit of a table."""


@dataclass(eq=False)
class Barrier(Generic[Member]):
    """Guarded by the lock of `Lanes` once it is queued."""

    home: Member
    """Where its statement runs."""
    others: tuple[Member, ...]
    over: bool = False
    """Its statement is done, or left with its partition."""
