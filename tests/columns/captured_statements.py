"""The DDL of the captured MySQL workload."""

from __future__ import annotations

from collections.abc import Iterator
from typing import cast

from captured import records

from handlers import Change
from worker.formats.interface import Record
from worker.formats.registry import get

__all__ = ["statements"]


def statements() -> Iterator[tuple[str, str]]:
    """(database, statement) of each, as Canal tells them."""
    canal = get("canal")
    for captured in records("canal"):
        record = cast(Record, captured)
        changes: list[Change] = []
        if (record.value() or b"").find(b'"isDdl":true') < 0:
            continue
        route = canal.route(record.value() or b"")
        canal.decode(record, changes)
        yield from ((route.database, change.sql) for change in changes if change.sql)
