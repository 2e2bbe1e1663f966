"""The source's transactions of a record, as its format names them for `batch.transactions: whole`."""

Named = tuple[str | None, str | None]
"""The names of the transactions in which the record begins and ends. None: no transaction continues before it
(after it). An empty name: the previous record's."""
UNKNOWN: Named = ("", "")
ALONE: Named = (None, None)
SOME = "?"
"""A transaction without a name."""
