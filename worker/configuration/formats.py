"""Create the record readers that a configuration asks for."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import suppress

from handlers import Change
from worker.column_rules.plan import RuleFault, ShownBehind
from worker.configuration.model import Configuration
from worker.configuration.table_rules import TableRule
from worker.formats.gathered import Gathered, Places
from worker.formats.interface import Format, Route, UndecodableRecord
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

    places = Places(configuration.databases)

    def rule_for(table: str) -> TableRule | None:
        return (configuration if present is None else present()).rule_for(table)

    def refuse(change: Change, own: Route, table: str) -> bool:
        """Refuse a statement if the rows after it may show what rules hide, or if it changes gathered tables
        and others. Returns whether it empties a table. Raises ShownBehind, UndecodableRecord."""
        is_gathered = places.of(own.database, own.table) is not None
        if is_gathered and (rule := rule_for(table)) is not None and rule.statement_rules is not None:
            try:
                rule.statement_rules.follow(change, own.database, own.table)
            except RuleFault as fault:
                if isinstance(fault, ShownBehind):
                    raise  # all others are about following it
        named = list(_named(change.sql or "", own.database))
        for database, name, kind in named:
            # Servers that ignore case log a statement as the user spelled it.
            spelled = ((database, name), (database.lower(), name.lower()))
            if is_gathered:
                is_other = kind == "DropTable" and not any(places.of(*each) for each in spelled)
                is_mixed = is_other and any(rule_for(".".join(each)) for each in spelled)
            else:  # a handler would change the table that has the rows of all databases
                is_mixed = any(each in configuration.databases for each, _ in spelled)
            if is_mixed:
                raise UndecodableRecord(
                    f"its statement changes {database}.{name}, too, but `databases` gathers only some of its "
                    "tables: change the others in the target, and set this record aside"
                )
        return any(kind == "TruncateTable" for *_, kind in named)

    def gathered(own: Format) -> Format:
        rules = configuration.databases
        return wrapped(Gathered(own, rules, refuse, rule_for) if rules else own)

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
