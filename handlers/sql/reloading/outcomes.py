"""How the end of a reload may turn out."""

from __future__ import annotations

from dataclasses import dataclass

__all__ = ["Behind", "Differs", "Hindered", "Refused", "Taken"]


class Refused(Exception):
    """Why the table cannot be loaded again, in one sentence."""


class Differs(Refused):
    """The table that is there has other columns than the new one; a worker may be about to change it."""


class Hindered(Refused):
    """Another transaction was in the way; the same again may do."""


class Behind(Exception):
    """A worker has applied more than the new table has."""


@dataclass(frozen=True, slots=True)
class Taken:
    """Rows that were replaced, and those that took their place."""

    before: int
    after: int
