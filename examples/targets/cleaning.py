"""Transforms: functions that row changes pass before a built-in handler gets them."""

from __future__ import annotations

import json

from binlane import Change


def clean(change: Change) -> Change:
    """Take the channel of an order out of its JSON, and trim its note."""
    for row in (change.before, change.after):  # both, so that they remain the same row
        if row and "meta" in row:  # else the source did not send it, and the target keeps its channel
            row["channel"] = None if row["meta"] is None else json.loads(row["meta"])["src"]
        if row and row.get("note"):
            row["note"] = row["note"].strip()
    return change  # a list of changes is allowed too; an empty one leaves the change out
