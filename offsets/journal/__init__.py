"""Each partition's positions over time: units of one size in files, appended at every checkpoint."""

from offsets.journal.files import Entry, Unit
from offsets.journal.journal import Found, Journal, JournalError

__all__ = ["Entry", "Found", "Journal", "JournalError", "Unit"]
