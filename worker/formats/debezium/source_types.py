"""Type texts that a configuration may give for columns: in the words of the source."""

from __future__ import annotations

from handlers.mysql.types import read_type
from worker.formats.debezium.postgres.types import postgres_type
from worker.formats.own_json.columns import TYPE_NAMES


def is_known(text: str) -> bool:
    """Whether a type of MySQL or PostgreSQL is written so."""
    return read_type(text).name in TYPE_NAMES or postgres_type(text) is not None
