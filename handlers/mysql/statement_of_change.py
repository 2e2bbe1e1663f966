"""The statement of a change: parsed or rejected, and in the form that logs and errors may show."""

from __future__ import annotations

import re

from handlers.api import Change, Rejected
from handlers.mysql.ddl import Operation, StatementError, TableName, TruncateTable, parse

_SECRET = re.compile(
    r"\b(CONNECTION|PASSWORD|BY|AS)(\s*=?\s*)(?:'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.|\"\")*+\")",
    re.IGNORECASE | re.DOTALL,
)
"""Passwords of federated tables and of users."""


def operations_of(change: Change, own: TableName) -> list[Operation]:
    """Return the operations of a `ddl` or `truncate` change. Raises Rejected if it cannot be read."""
    if change.op == "truncate":
        return [TruncateTable(own)]
    try:
        return list(parse(change.sql or "", own.database))
    except StatementError as error:
        raise Rejected(f"cannot parse DDL of {own}: {error}: {shown(change.sql)}") from error


def shown(sql: str | None) -> str:
    """Return the statement without passwords.

    >>> shown("CREATE TABLE t (id int) ENGINE=FEDERATED CONNECTION='mysql://u:secret@host/d/t'")
    "CREATE TABLE t (id int) ENGINE=FEDERATED CONNECTION='***'"
    """
    return _SECRET.sub(r"\1\2'***'", sql or "")
