"""Packages that a configuration needs, and that are not there: those of extras."""

from __future__ import annotations

from collections.abc import Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from worker.configuration.faults import KeyPath

if TYPE_CHECKING:
    from worker.configuration.model import Configuration

__all__ = ["missing_packages"]


def missing_packages(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """(path of a key, what it needs and what installs it)."""
    if configuration.tracing is not None and not all(
        map(_is_installed, ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http"))
    ):
        yield ("tracing",), "its packages are not installed: pip install '.[otel]' in binlane's folder"


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
