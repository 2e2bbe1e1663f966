"""A table as the worker meets it: its rule, its handlers."""

from __future__ import annotations

from collections.abc import Sequence

from worker.attempts.bound_handler import BoundHandler
from worker.configuration import TableRule


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
        """`by_row`: its rows are in order, each for itself, instead of the whole table."""
        self.by_row = by_row
        self.database = database
        self.name = name
        self.label = f"{database}.{name}"
        self.rule = rule
        self.max_records = rule.batch.max_records
        self.max_bytes = rule.batch.max_bytes
        self.max_wait = rule.batch.max_wait
        self.row_rules = rule.row_rules
        """What is done to its changes when they are decoded; None: nothing."""
        self.statement_rules = rule.statement_rules
        self.handlers = tuple(handlers)
        self.sole = len(self.handlers) == 1
        self.own_rows = any(":" in entry.type for entry in rule.handlers)
        """Whether each call is given rows of its own: only those who write a handler by import path may
        change them."""
