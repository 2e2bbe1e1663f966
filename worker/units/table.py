"""A table as the worker sees it: its rule and its handlers."""

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
        """`by_row`: each row keeps its order, instead of the whole table."""
        self.by_row = by_row
        self.database = database
        self.name = name
        self.label = f"{database}.{name}"
        self.rule = rule
        self.max_records = rule.batch.max_records
        self.max_bytes = rule.batch.max_bytes
        self.max_wait = rule.batch.max_wait
        self.row_rules = rule.row_rules
        """What decoding does to its changes; None: nothing."""
        self.statement_rules = rule.statement_rules
        self.handlers = tuple(handlers)
        self.sole = len(self.handlers) == 1
        self.own_rows = any(":" in entry.type for entry in rule.handlers)
        """Whether each call gets its own copy of the rows: only handlers given by import path may modify
        them."""
