"""The statement of a change: parsed or rejected, as logs may show it, and its effect on whole tables."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
from structlog.stdlib import BoundLogger

from handlers.api import Batch, Change, Rejected
from handlers.mysql import ddl

_SECRET = re.compile(
    r"\b(CONNECTION|PASSWORD|BY|AS)(\s*=?\s*)(?:'(?:[^'\\]|\\.|'')*+'|\"(?:[^\"\\]|\\.|\"\")*+\")",
    re.IGNORECASE | re.DOTALL,
)
"""Passwords of federated tables and of users."""
Emptying = ddl.DropTable | ddl.TruncateTable | ddl.RenameTable

# Parsing a statement takes a millisecond, and the first one loads the parser.
_TELLING = re.compile(r"\b(?:DROP|REPLACE|TRUNCATE|RENAME)\b", re.IGNORECASE)


def operations_of(change: Change, own: ddl.TableName) -> list[ddl.Operation]:
    """Return the operations of a `ddl` or `truncate` change. Raises Rejected if it cannot be read."""
    if change.op == "truncate":
        return [ddl.TruncateTable(own)]
    try:
        return list(ddl.parse(change.sql or "", own.database))
    except ddl.StatementError as error:
        raise Rejected(f"cannot parse DDL of {own}: {error}: {shown(change.sql)}") from error


def shown(sql: str | None) -> str:
    """Return the statement without passwords.

    >>> shown("CREATE TABLE t (id int) ENGINE=FEDERATED CONNECTION='mysql://u:secret@host/d/t'")
    "CREATE TABLE t (id int) ENGINE=FEDERATED CONNECTION='***'"
    """
    return _SECRET.sub(r"\1\2'***'", sql or "")


def emptied(change: Change, own: ddl.TableName) -> Sequence[Emptying]:
    """Return the operations of a change on whole tables. Raises Rejected if a statement cannot be read."""
    if change.op != "truncate" and (change.op != "ddl" or not _TELLING.search(change.sql or "")):
        return []
    return [one for one in operations_of(change, own) if isinstance(one, Emptying)]


class WholeTables(msgspec.Struct, frozen=True):
    """Decides which tables a handler without its own DDL empties, and logs the operations it ignores."""

    truncate: bool
    drop_tables: bool
    renamed: str
    """What happens to a renamed table's rows, for the log."""
    handles: Callable[[str], bool]
    """Whether a rule sends a table to the handler."""
    log: BoundLogger

    def to_empty(self, change: Change, batch: Batch) -> Iterator[ddl.TableName]:
        """Yield the tables whose rows the change removes in this target. Raises Rejected."""
        for operation in emptied(change, ddl.TableName(batch.database, batch.name)):
            named = str(operation.table)
            is_truncate = isinstance(operation, ddl.TruncateTable)
            if isinstance(operation, ddl.RenameTable):
                self.log.warning("ddl_refused", table=named, because=self.renamed)
            elif named != batch.table and not self.handles(named):
                because = f"no rule routes {named} to this handler"
                self.log.warning("ddl_refused", table=batch.table, because=because)
            elif not (self.truncate if is_truncate else self.drop_tables):
                option = "truncate: false" if is_truncate else "drop_tables: false"
                self.log.warning("ddl_refused", table=named, because=option)
            else:
                yield operation.table
