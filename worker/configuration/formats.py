"""Create the record readers that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable

from handlers import Change
from worker.column_rules.plan import RuleFault, ShownBehind
from worker.configuration.model import Configuration
from worker.formats.gathered import Gathered
from worker.formats.interface import Format, Route
from worker.formats.registry import FormatChoice

COMMAND_SECONDS = 15.0
"""Seconds that a command waits for a schema registry that does not answer."""


def formats_of(
    configuration: Configuration,
    *,
    patience: float | None = COMMAND_SECONDS,
    rebuilt: Callable[[], object] = lambda: None,
    present: Callable[[], Configuration] | None = None,
    wrapped: Callable[[Format], Format] = lambda own: own,
) -> FormatChoice:
    """Create the readers. `patience`: seconds that a record waits for its schema while the registry is down;
    None: without limit. `rebuilt` is called when a dropped schema is compiled again. `present` returns
    the configuration whose `tables` count, if they may change. `wrapped` may put each reader into another."""
    schemas, settings = None, configuration.schema_registry
    if settings is not None:
        # Imported here because only configurations with a registry need its client.
        from worker.formats.schema_registry.format import schemas_of  # noqa: PLC0415

        schemas = schemas_of(settings, configuration.folder, patience=patience, rebuilt=rebuilt)

    def refuse(change: Change, own: Route, table: str) -> None:
        """Refuse a statement if the rows after it may show what rules hide. Raises ShownBehind."""
        rule = (configuration if present is None else present()).rule_for(table)
        if rule is not None and rule.statement_rules is not None:
            try:
                rule.statement_rules.follow(change, own.database, own.table)
            except RuleFault as fault:
                if isinstance(fault, ShownBehind):
                    raise  # all others are about following it

    def gathered(own: Format) -> Format:
        return wrapped(Gathered(own, configuration.databases, refuse) if configuration.databases else own)

    return FormatChoice(
        configuration.format, configuration.json_layout, configuration.debezium, schemas, gathered
    )
