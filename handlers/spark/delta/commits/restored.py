"""Tables that lost rows of their log: what a RESTORE took back, or another table in their place."""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from typing import NamedTuple

_MAKES = re.compile("(CREATE|REPLACE|CREATE OR REPLACE) TABLE|CLONE")
"""Begin the names of Delta's operations by which a folder gets another table: the log goes on, and with it
the transaction identifiers."""


class LostCommit(RuntimeError):
    """The table does not hold any more what it held."""


class Restore(NamedTuple):
    """A commit of another writer that takes rows of earlier commits away."""

    version: int
    """The commit's own."""
    to: int
    """The rows are those of this version; -1: a RESTORE to a time, or another table."""
    is_other: bool = False
    """Whether it made another table in this one's place."""


def restore(
    version: int, operation: str | None, parameters: Mapping[str, object] | None, *, is_own: bool = False
) -> Restore | None:
    """None: the commit is no such one. `parameters`: as its log has them, numbers as text. `is_own`: it is
    binlane's."""
    if operation == "RESTORE":
        to = (parameters or {}).get("version")
        return Restore(version, -1 if to is None else int(str(to)))
    if not is_own and _MAKES.match(operation or ""):
        return Restore(version, -1, is_other=True)
    return None


def check_restores(table: str, merged: int, restores: Sequence[Restore]) -> None:
    """See to it that the table still has the rows of version `merged`, which brought its newest segments.

    `restores`: those after it, the newest first. Delta's transaction identifiers outlive them: by these
    the table holds what is gone. Raises LostCommit."""
    seen = None  # of the versions before a RESTORE those up to the one that it brought back count
    for each in restores:
        if seen is not None and each.version > seen:
            continue
        seen = each.to
        if seen < merged:
            earlier = f"restored to version {seen}" if seen >= 0 else "restored to an earlier time"
            what = "replaced by another table" if each.is_other else earlier
            raise LostCommit(
                f"{table} was {what} by its version {each.version}, but version {merged} had newer rows of "
                "its log, which would be lost. Restore them (RESTORE TABLE delta.`...` TO VERSION AS OF "
                f"{each.version - 1}); or remove the table with its log, and read the source again"
            )
