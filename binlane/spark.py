"""Spark tables for notebooks and jobs, including rows that are received but not merged yet."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import structlog

import binlane  # noqa: F401 - puts binlane's own packages first
from handlers.spark.options import SparkSection
from handlers.spark.read.current import create_views, current
from handlers.spark.read.view import NothingToSee
from handlers.spark.runtime.session import SharedSpark

__all__ = ["NothingToSee", "create_views", "current", "start"]


def start(name: str = "binlane", **section: Any) -> SharedSpark:
    """Start a Spark with Delta Lake, on this machine or on the server that `remote` names.

    Read with `.session`, and call `.stop()` at the end. `section`: the keys of the configuration's `spark:`
    section. Raises pydantic's ValidationError, JavaError and JarsError. Raises RuntimeError if Spark does not
    start. Warnings go to standard error, unless structlog is already configured.
    """
    _tell_warnings_alone()
    return SharedSpark(SparkSection.model_validate(section), Path.cwd(), name)


def _tell_warnings_alone() -> None:
    """Limit structlog to warnings. By default it also prints every line of Java's log among a notebook's
    results."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
