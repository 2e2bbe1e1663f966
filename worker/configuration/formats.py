"""Create the record readers that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from handlers import Change
from handlers.mysql.online_changes import replaced_by
from handlers.options.matching import lowered
from worker.column_rules.applying import Guarded
from worker.configuration.model import Configuration
from worker.configuration.table_rules import TableRule
from worker.formats.gathered import Gathered, Places
from worker.formats.interface import Format, Route, ValuelessFault
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

    places, latest = Places(configuration.databases), present or (lambda: configuration)

    def rule_for(table: str) -> TableRule | None:
        return latest().rule_for(table)

    def is_gathered_name(table: str) -> bool:
        """Whether the table, or one that it may replace, is gathered, perhaps in lower case."""
        every = (one for name in (table, lowered(table)) for one in (name, *replaced_by(name)))
        return any(places.of(*one.rpartition(".")[::2]) for one in every)

    def refuse(change: Change, own: Route, table: str) -> bool:
        """Refuse a statement if it changes gathered tables and others. Returns whether it empties a table.
        Raises UndecodableRecord."""
        is_gathered = places.of(own.database, own.table) is not None
        named = list(_named(change.sql or "", own.database))
        for database, name, kind in named:
            of_gathered = is_gathered_name(label := f"{database}.{name}")
            if not is_gathered:  # a handler would change the table of all databases, or get no rows
                is_mixed = kind == "RenameTable" and of_gathered and not is_gathered_name(table)
                is_mixed |= not {database, lowered(database)}.isdisjoint(configuration.databases)
            elif is_mixed := kind in ("DropTable", "RenameTable") and not of_gathered:
                is_mixed = any(map(rule_for, (label, lowered(label))))
            if is_mixed:
                raise ValuelessFault(
                    f"its statement changes {label}, too, but `databases` gathers only some of its tables: "
                    "change the others in the target, and set this record aside"
                )
        return any(kind == "TruncateTable" for *_, kind in named)

    def gathered(own: Format) -> Format:
        rules, guarded = configuration.databases, Guarded(own, lambda: latest().tables[0].statement_rules)
        return wrapped(Gathered(guarded, rules, refuse, rule_for) if rules else guarded)

    return FormatChoice(
        configuration.format, configuration.json_layout, configuration.debezium, schemas, gathered
    )


def _named(sql: str, database: str) -> Iterator[tuple[str, str, str]]:
    """Yield each table that a statement names, and the kind of change. Nothing if it cannot be read."""
    # Imported here because few workers gather databases.
    from handlers.mysql import ddl  # noqa: PLC0415
    from handlers.mysql.ddl.rules import names_of  # noqa: PLC0415

    with suppress(ddl.StatementError):
        for one in ddl.parse(sql, database):
            yield from ((name.database or database, name.table, type(one).__name__) for name in names_of(one))
