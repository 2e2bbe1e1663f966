"""Detects tables that lost rows of their log: a RESTORE undid commits, or another table replaced them."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_MAKES = re.compile("(CREATE|REPLACE|CREATE OR REPLACE) TABLE|CLONE")
"""Prefixes of Delta's operations that put another table into a folder. The log continues, and so do the
transaction identifiers."""


class LostCommit(RuntimeError):
    """The table no longer contains what it contained."""


class Restore(NamedTuple):
    """A commit of another writer that removes rows of earlier commits."""

    version: int
    """The commit's own version."""
    to: int
    """The version whose rows it restores. -1 for a RESTORE to a time, or for another table."""
    is_other: bool = False
    """Whether it put another table in this one's place."""


def restore(
    version: int, operation: str | None, parameters: Mapping[str, object] | None, *, is_own: bool = False
) -> Restore | None:
    """Return the restore that a commit made. None if it made none. `parameters`: as in Delta's log, numbers
    as text. `is_own`: binlane made the commit."""
    if operation == "RESTORE":
        to = (parameters or {}).get("version")
        return Restore(version, -1 if to is None else int(str(to)))
    if not is_own and _MAKES.match(operation or ""):
        return Restore(version, -1, is_other=True)
    return None


def check_restores(table: str, merged: int, restores: Sequence[Restore]) -> None:
    """Check that the table still has the rows of version `merged`, which merged its newest segments.

    `restores`: the restores after it, newest first. Delta's transaction identifiers survive a restore, so
    they still name the lost segments. Raises LostCommit."""
    seen = None  # of the versions before a RESTORE, only those up to the restored one count
    for each in restores:
        if seen is not None and each.version > seen:
            continue
        seen = each.to
        if seen < merged:
            earlier = f"restored to version {seen}" if seen >= 0 else "restored to an earlier time"
            what = "replaced by another table" if each.is_other else earlier
            raise LostCommit(
                f"{table} was {what} by its version {each.version}, but version {merged} had "
                f"newer rows of its log, which would be lost. Bring them back (RESTORE TABLE "
                f"delta.`...` TO VERSION AS OF {each.version - 1}); or remove the table with its log, and "
                f"read the source anew"
            )
