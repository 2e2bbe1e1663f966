"""Create the record readers that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

from worker.configuration.model import Configuration
from worker.formats.registry import FormatChoice

COMMAND_SECONDS = 15.0
"""Seconds that a command waits for a schema registry that does not answer."""


def formats_of(
    configuration: Configuration,
    *,
    patience: float | None = COMMAND_SECONDS,
    rebuilt: Callable[[], object] = lambda: None,
) -> FormatChoice:
    """Create the readers. `patience`: seconds that a record waits for its schema while the registry is down;
    None: without limit. `rebuilt` is called when a dropped schema is compiled again."""
    schemas, settings = None, configuration.schema_registry
    if settings is not None:
        # Imported here because only configurations with a registry need its client.
        from worker.formats.schema_registry.format import schemas_of  # noqa: PLC0415

        schemas = schemas_of(settings, configuration.folder, patience=patience, rebuilt=rebuilt)
    return FormatChoice(
        configuration.format,
        configuration.json_layout,
        configuration.debezium,
        schemas,
        configuration.databases,
    )
