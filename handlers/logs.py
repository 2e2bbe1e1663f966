"""Loggers of the worker, its handlers and its offset stores. They write events with fields."""

from __future__ import annotations

import structlog


def get_logger(name: str) -> structlog.stdlib.BoundLogger:
    """Return a logger whose events carry `name`: `get_logger(__name__).info("example", count=6)`."""
    logger: structlog.stdlib.BoundLogger = structlog.stdlib.get_logger(name)
    return logger
