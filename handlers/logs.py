"""Loggers of the worker, its handlers and its offset stores: events with fields, where the worker logs to."""

from __future__ import annotations

import structlog


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """A logger whose events carry `name`: `get_logger(__name__).info("partitions_assigned", count=6)`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
