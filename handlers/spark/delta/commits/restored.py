"""Tables that lost rows of their log: what Delta's RESTORE took back."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import NamedTuple


class LostCommit(RuntimeError):
    """The table does not hold any more what it held."""


class Restore(NamedTuple):
    """A commit of RESTORE."""

    version: int
    """The commit's own."""
    to: int
    """Which version it brought back; -1: it was named by its time, and may be any."""


def restore(version: int, operation: str | None, parameters: Mapping[str, object] | None) -> Restore | None:
    """None: the commit is another one. `parameters`: as its log has them, numbers as text."""
    if operation != "RESTORE":
        return None
    to = (parameters or {}).get("version")
    return Restore(version, -1 if to is None else int(str(to)))


def check_restores(table: str, merged: int, restores: Sequence[Restore]) -> None:
    """See to it that the table still has the rows of version `merged`, which brought its newest segments.

    `restores`: those after it, the newest first. Delta's transaction identifiers outlive a RESTORE: by them
    the table holds what is gone. Raises LostCommit.
    """
    seen = None  # of the versions before a RESTORE those up to the one that it brought back count
    for each in restores:
        if seen is not None and each.version > seen:
            continue
        seen = each.to
        if seen < merged:
            earlier = f"version {seen}" if seen >= 0 else "an earlier time"
            raise LostCommit(
                f"{table} was restored to {earlier} by its version {each.version}, but version {merged} had "
                f"newer rows of its log, which would be lost. Bring them back (RESTORE TABLE "
                f"delta.`...` TO VERSION AS OF {each.version - 1}); or remove the table with its log, and "
                f"read the source anew"
            )
