"""The readers of a configuration's formats."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from worker.formats.choice import FormatChoice

if TYPE_CHECKING:
    from worker.configuration.model import Configuration

COMMAND_SECONDS = 15.0
"""How long a command waits for a schema registry that does not answer."""


def formats_of(
    configuration: Configuration,
    *,
    patience: float | None = COMMAND_SECONDS,
    rebuilt: Callable[[], object] = lambda: None,
) -> FormatChoice:
    """`patience`: how many seconds a record waits for its schema when the registry is down; None: as long as
    that takes. `rebuilt`: called when a schema is made ready again that had been let go."""
    schemas, settings = None, configuration.schema_registry
    if settings is not None:
        # Not above: only who has a registry needs its client.
        from worker.formats.schema_registry.format import schemas_of  # noqa: PLC0415

        schemas = schemas_of(settings, configuration.folder, patience=patience, rebuilt=rebuilt)
    return FormatChoice(configuration.format, configuration.json_layout, configuration.debezium, schemas)
