"""What a change does to whole tables: TRUNCATE, DROP TABLE, RENAME TABLE."""

from __future__ import annotations

import re
from collections.abc import Sequence

from handlers.api import Change, Rejected
from handlers.mysql.ddl import DropTable, RenameTable, StatementError, TableName, TruncateTable, parse

__all__ = ["Emptying", "emptied"]

Emptying = DropTable | TruncateTable | RenameTable

# Reading a statement takes a millisecond, and the first one loads the parser.
_TELLING = re.compile(r"\b(?:DROP|REPLACE|TRUNCATE|RENAME)\b", re.IGNORECASE)


def emptied(change: Change, own: TableName) -> Sequence[Emptying]:
    """What the change does to whole tables. Raises Rejected for a statement that cannot be read."""
    if change.op == "truncate":
        return [TruncateTable(own)]
    if change.op != "ddl" or not _TELLING.search(change.sql or ""):
        return []
    try:
        operations = parse(change.sql or "", own.database)
    except StatementError as error:
        raise Rejected(f"DDL of {own} not understood: {error}: {change.sql}") from error
    return [one for one in operations if isinstance(one, Emptying)]
