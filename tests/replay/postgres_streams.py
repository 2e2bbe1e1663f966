"""The captured streams of PostgreSQL, read as docs/formats.md recommends."""

from __future__ import annotations

from collections.abc import Iterator

from captured import postgres_truth, records
from decoding import batches_of, in_source_order
from postgres_rows import POSTGRESQL

from handlers import Batch
from worker.formats.debezium.format import Debezium
from worker.formats.debezium.settings import DebeziumSettings, is_known

__all__ = ["batches_of_postgres", "settings_of"]

_CHANGED = "public.evolving"
"""A table whose columns changed their types, which no record tells."""


def settings_of(stream: str, *, in_calendar: bool = False) -> DebeziumSettings:
    """The section `debezium` for one of POSTGRES_STREAMS. `in_calendar`: with NULL for other times."""
    return DebeziumSettings(
        source="postgresql",
        columns={} if stream == "postgres-schemas" else _columns(),
        keep_if_null={"public.toasted_types": ["smalls", "nums", "doubles", "tstzs", "bools", "vb", "num"]},
        zero_keys=["public.toasted", "public.toasted_full"],
        null_beyond_calendar=["/.*/"] if in_calendar else [],
        binary="bytes",
        decimals="precise",
        ordered=stream != "postgres-plain",  # which has three partitions a topic
    )


def _columns() -> dict[str, dict[str, str]]:
    """Without schemas: the types of all columns, in PostgreSQL's words; those of its own are texts."""
    own = {"price": "numeric(10,2)", "posint": "integer"}
    found = {}
    for table, truth in postgres_truth().items():
        if table != _CHANGED:
            known = {name: own.get(text, text) for name, text in truth.columns.items()}
            found[table] = {name: text for name, text in known.items() if is_known(text)}
    return found


def batches_of_postgres(stream: str, refused: list[str], *, in_calendar: bool = False) -> Iterator[Batch]:
    """The stream's changes in the order of the source's log; `refused` takes what is told of records that
    cannot be read. `in_calendar`: see `settings_of`."""
    format_ = Debezium(settings_of(stream, in_calendar=in_calendar))
    return batches_of(format_, in_source_order(format_, records(stream)), POSTGRESQL.databases, refused)
