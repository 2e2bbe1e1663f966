"""For notebooks and jobs: tables as they are this moment, with what is received but not merged yet."""

from __future__ import annotations

import logging
import sys
from pathlib import Path
from typing import Any

import structlog

import binlane  # noqa: F401 - binlane's own packages come first
from handlers.spark.read.current import create_views, current
from handlers.spark.read.view import NothingToSee
from handlers.spark.runtime.session import SharedSpark
from handlers.spark.section import SparkSection

__all__ = ["NothingToSee", "create_views", "current", "start"]


def start(name: str = "binlane", **section: Any) -> SharedSpark:
    """A Spark with Delta Lake on this machine, or at the server that `remote` names: `.session` to read with,
    and `.stop()` when that is done.

    `section`: the keys of the configuration's `spark:` section. Raises pydantic's ValidationError, JavaError,
    JarsError, and RuntimeError when Spark does not start.
    Warnings go to standard error, unless structlog was configured before: then as that says.
    """
    _tell_warnings_alone()
    return SharedSpark(SparkSection.model_validate(section), Path.cwd(), name)


def _tell_warnings_alone() -> None:
    """What structlog prints of itself, every line that Java says among it, would stand among a notebook's
    results."""
    if not structlog.is_configured():
        structlog.configure(
            wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING),
            logger_factory=structlog.PrintLoggerFactory(sys.stderr),
        )
