"""A statement about several tables: a place in each table's queue. None passes it before it finishes.

The fetcher's thread queues all places of a barrier at one moment. So every table has two barriers in the same
order, and tables never wait for each other in a cycle.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Generic, TypeVar

Member = TypeVar("Member")
"""The unit of a table."""


@dataclass(eq=False)
class Barrier(Generic[Member]):
    """A statement about several tables. Guarded by the lock of `Lanes` once it is queued."""

    home: Member
    """The unit where the statement runs."""
    others: tuple[Member, ...]
    over: bool = False
    """The statement is finished, or its partition was revoked."""
