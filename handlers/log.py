"""The `log` handler: writes changes to the worker's own log, for a first look and for development."""

from __future__ import annotations

import logging
from collections import Counter
from typing import Any, ClassVar, Literal

import structlog

from handlers.api import Batch, Handler, HandlerContext, PartialFailure, Rejected
from handlers.logs import get_logger
from handlers.options.shared import Options
from handlers.options.templates import place_of
from handlers.values.change_json import json_row


class LogOptions(Options):
    """The keys of a `type: log` entry."""

    each: Literal["change", "batch"] = "change"
    """One line per change with its values, or per batch with its counts."""
    level: Literal["debug", "info", "warning", "error"] = "info"
    """The lines' level. If logging.level is above it, nothing is written."""


class LogHandler(Handler):
    """Writes a line for each change, or for each batch."""

    options_model: ClassVar[type[LogOptions]] = LogOptions

    def __init__(self, **options: Any) -> None:
        self._options = LogOptions.model_validate(options)
        self._level = logging.getLevelNamesMapping()[self._options.level.upper()]
        self._log: structlog.stdlib.BoundLogger = get_logger("handlers.log")

    def open(self, context: HandlerContext) -> None:
        self._log = self._log.bind(handler=context.handler)

    def handle(self, batch: Batch) -> None:
        """Log the batch. Raises Rejected for a value without a JSON form."""
        if not logging.getLogger("handlers.log").isEnabledFor(self._level):
            return
        if self._options.each == "batch":
            self._log.log(
                self._level,
                "batch",
                table=batch.table,
                changes=len(batch.changes),
                operations=dict(Counter(change.op for change in batch.changes)),
                positions={f"{topic}[{at}]": span for (topic, at), span in batch.positions.items()},
                attempt=batch.attempt,
            )
            return
        for at, change in enumerate(batch.changes):
            try:
                key, before, after = json_row(change.key), json_row(change.before), json_row(change.after)
            except TypeError as error:
                raise PartialFailure(at, Rejected(f"{place_of(change, batch.table)}: {error}")) from None
            values = {"before": before, "after": after, "sql": change.sql}
            self._log.log(
                self._level,
                "change",
                table=batch.table,
                op=change.op,
                key=key,
                **{name: value for name, value in values.items() if value is not None},
                source_time_ms=change.source_time_ms,
                position=f"{change.topic}[{change.partition}]@{change.offset}",
                index=change.index,
            )
