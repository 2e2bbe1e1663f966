"""Packages that a configuration needs, and that are not there: those of extras."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from importlib.util import find_spec
from typing import TYPE_CHECKING

from worker.configuration.faults import KeyPath

if TYPE_CHECKING:
    from worker.configuration.model import Configuration

_TRACING = ("opentelemetry.sdk", "opentelemetry.exporter.otlp.proto.http")
_SPARK = ("pyspark", "pyarrow", "obstore")


def missing_packages(configuration: Configuration) -> Iterator[tuple[KeyPath, str]]:
    """(path of a key, what it needs and what installs it)."""
    if configuration.tracing is not None and not _are_installed(_TRACING):
        yield ("tracing",), _advice("otel")
    if not _are_installed(_SPARK):
        for number, rule in enumerate(configuration.tables):
            for place, entry in enumerate(rule.handlers):
                if entry.type == "spark" or (entry.type, entry.options.get("format")) == ("files", "parquet"):
                    yield ("tables", number, "handlers", place), _advice("spark")


def _advice(extra: str) -> str:
    return f"its packages are not installed: pip install '.[{extra}]' in binlane's folder"


def _are_installed(names: Iterable[str]) -> bool:
    return all(map(_is_installed, names))


def _is_installed(name: str) -> bool:
    try:
        return find_spec(name) is not None
    except ModuleNotFoundError:  # not even the package around it
        return False
