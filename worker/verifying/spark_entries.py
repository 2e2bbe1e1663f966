"""The Spark handlers of a configuration."""

from __future__ import annotations

from dataclasses import dataclass

from handlers.spark.options import SparkOptions
from worker.configuration import Configuration


@dataclass(frozen=True, slots=True)
class SparkEntry:
    """One Spark handler that keeps tables. Entries with equal options are merged."""

    name: str
    options: SparkOptions


def spark_entries(configuration: Configuration) -> list[SparkEntry]:
    """Return the handlers that keep tables, in order. (Tables of a function belong to the function.)"""
    found: list[SparkEntry] = []
    for rule in configuration.tables:
        for handler in rule.handlers:
            if handler.type == "spark":
                options = SparkOptions.model_validate(handler.options)
                is_new = all(place_of(options) != place_of(each.options) for each in found)
                if options.mode != "function" and is_new:
                    found.append(SparkEntry(handler.name, options))
    return found


def place_of(options: SparkOptions) -> tuple[str, str, str | None, str | None]:
    """Return what handlers of the same tables have in common."""
    return options.mode, options.format, options.path, options.table


def leads_to(configuration: Configuration, table: str, entry: SparkEntry) -> bool:
    """Whether the changes of a table go to this handler."""
    rule = configuration.rule_for(table)
    if rule is None:
        return False
    found = (handler for handler in rule.handlers if handler.type == "spark")
    return any(
        place_of(SparkOptions.model_validate(each.options)) == place_of(entry.options) for each in found
    )
