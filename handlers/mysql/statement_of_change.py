"""The statement of a change: read, or rejected, and as logs and errors may show it."""

from __future__ import annotations

import re

from handlers.api import Change, Rejected
from handlers.mysql.ddl import Operation, StatementError, TableName, TruncateTable, parse

_SECRET = re.compile(
    r"\b(CONNECTION|PASSWORD|BY|AS)(\s*=?\s*)(?:'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.|\"\")*+\")",
    re.IGNORECASE | re.DOTALL,
)
"""Of a federated table, or of a user."""


def operations_of(change: Change, own: TableName) -> list[Operation]:
    """What a `ddl` or `truncate` change does. Raises Rejected for a statement that cannot be read."""
    if change.op == "truncate":
        return [TruncateTable(own)]
    try:
        return list(parse(change.sql or "", own.database))
    except StatementError as error:
        raise Rejected(f"DDL of {own} not understood: {error}: {shown(change.sql)}") from error


def shown(sql: str | None) -> str:
    """The statement without passwords.

    >>> shown("CREATE TABLE t (id int) ENGINE=FEDERATED CONNECTION='mysql://u:secret@host/d/t'")
    "CREATE TABLE t (id int) ENGINE=FEDERATED CONNECTION='***'"
    """
    return _SECRET.sub(r"\1\2'***'", sql or "")
