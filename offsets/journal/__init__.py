"""Each partition's positions over time: units of one size in files, appended at every checkpoint."""

from offsets.journal.journal import Journal, JournalError
from offsets.journal.unit import Entry, Found, Unit

__all__ = ["Entry", "Found", "Journal", "JournalError", "Unit"]
