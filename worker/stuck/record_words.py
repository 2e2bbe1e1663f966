"""How records are told of."""

from __future__ import annotations

from worker.units.assigned_partition import Assignment


class Refused(Exception):
    """What is the matter with what was asked for, and what to do."""


def record_at(assignment: Assignment, offset: int) -> str:
    """`topic[partition] offset n`."""
    return f"{assignment.partition} offset {offset}"
