"""A table as the worker sees it: its rule, its handlers, its lane, and how long its name may be."""

from __future__ import annotations

import hashlib
from collections.abc import Sequence
from typing import Any

from handlers import Handler
from worker.attempts.circuit import BoundHandler
from worker.configuration import TableRule
from worker.formats.decoding import explained
from worker.formats.interface import Apart, Format, Record, Route, Skip, UndecodableRecord

LONGEST_NAME = 512
"""UTF-8 bytes, for a database and for a table. Most databases allow 64 characters or 63 bytes, some 255."""

_LANES_SALT = b"binlane"
_LONGEST_SHOWN = 256
_BYTES_OF_CHARACTER = 4


class Table:
    def __init__(
        self,
        database: str,
        name: str,
        rule: TableRule,
        handlers: Sequence[BoundHandler],
        *,
        by_row: bool = False,
    ) -> None:
        """`by_row`: each row keeps its order, instead of the whole table."""
        self.by_row = by_row
        self.database = database
        self.name = name
        self.label = f"{database}.{name}"
        self.rule = rule
        self.max_records = rule.batch.max_records
        self.max_bytes = rule.batch.max_bytes
        self.max_wait = rule.batch.max_wait
        self.whole = rule.batch.transactions == "whole"
        """Whether no batch ends within a source transaction."""
        self.row_rules = rule.row_rules
        """What decoding does to its changes; None: nothing."""
        self.statement_rules = rule.statement_rules
        self.expectations = rule.expectations
        """What decoding checks in its changes; None: nothing."""
        self.handlers = tuple(handlers)
        self.sole = len(self.handlers) == 1
        in_processes: Any = handlers[0].elsewhere if handlers else None
        self.elsewhere: Any = None if by_row else in_processes
        """Decodes its records in a child process, where all its handlers are (see `decoded.Elsewhere`).
        None: this process does."""
        self.stays = any(not is_elsewhere(one) for each in handlers for one in each.objects[:1])
        """Whether a handler is in the worker."""
        self.carried: Any = in_processes.carried if by_row and in_processes else None
        """Makes what a child process takes of changes that this process has decoded (see `Elsewhere`)."""
        self.own_rows = in_processes is None and any(":" in entry.type for entry in rule.handlers)
        """Whether each call gets its own copy of the rows: only handlers given by import path may modify
        them."""


def is_elsewhere(handler: Handler) -> bool:
    """Whether it stands for a handler in the child processes."""
    return getattr(handler, "is_elsewhere", False)


def fits(name: str) -> bool:
    """Whether a database or a table may have this name.

    >>> fits("orders"), fits("o" * 513), fits("\N{LATIN SMALL LETTER O WITH STROKE}" * 257)
    (True, False, False)
    """
    if len(name) * _BYTES_OF_CHARACTER <= LONGEST_NAME:
        return True
    return len(name) <= LONGEST_NAME and len(name.encode("utf-8", "surrogatepass")) <= LONGEST_NAME


def shown(name: str) -> str:
    """Shorten a name for logs and errors: cut it after 256 characters.

    >>> shown("shop.orders"), len(shown("o" * 10**6))
    ('shop.orders', 259)
    """
    # The mark shows the redaction that the name is cut, perhaps within a secret.
    return name if len(name) <= _LONGEST_SHOWN else f"{name[:_LONGEST_SHOWN]}..."


def routed(format_: Format, record: Record) -> Route | Skip | Apart:
    """Return the format's route of the record, with checked names.

    Raises only UndecodableRecord, also for a name that is too long."""
    found = explained(format_, record)
    if isinstance(found, Skip):
        return found
    for route in (own for own, _ in found.parts) if isinstance(found, Apart) else (found,):
        for what, name in (("database", route.database), ("table", route.table)):
            if not fits(name):
                raise UndecodableRecord(
                    f"the name of its {what} is longer than {LONGEST_NAME} bytes: {shown(name)!r}"
                )
    return found


def home_lane(table: str, lanes: int) -> int:
    """Return the lane that a table belongs to: the same in every process.

    Salted, because keys that already chose a Kafka partition by a hash are biased within that partition."""
    name = table.encode("utf-8", "surrogatepass")
    digest = hashlib.blake2b(name, digest_size=8, salt=_LANES_SALT).digest()
    return int.from_bytes(digest, "big") % lanes
