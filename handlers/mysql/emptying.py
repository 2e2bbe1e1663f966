"""The effect of changes on whole tables: TRUNCATE, DROP TABLE, RENAME TABLE."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence

import msgspec
from structlog.stdlib import BoundLogger

from handlers.api import Batch, Change
from handlers.mysql.ddl import DropTable, RenameTable, TableName, TruncateTable
from handlers.mysql.statement_of_change import operations_of

Emptying = DropTable | TruncateTable | RenameTable

# Parsing a statement takes a millisecond, and the first one loads the parser.
_TELLING = re.compile(r"\b(?:DROP|REPLACE|TRUNCATE|RENAME)\b", re.IGNORECASE)


def emptied(change: Change, own: TableName) -> Sequence[Emptying]:
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

    def to_empty(self, change: Change, batch: Batch) -> Iterator[TableName]:
        """Yield the tables whose rows the change removes in this target. Raises Rejected."""
        for operation in emptied(change, TableName(batch.database, batch.name)):
            named = str(operation.table)
            is_truncate = isinstance(operation, TruncateTable)
            if isinstance(operation, RenameTable):
                self.log.warning("ddl_refused", table=named, because=self.renamed)
            elif named != batch.table and not self.handles(named):
                because = f"no rule routes {named} to this handler"
                self.log.warning("ddl_refused", table=batch.table, because=because)
            elif not (self.truncate if is_truncate else self.drop_tables):
                option = "truncate: false" if is_truncate else "drop_tables: false"
                self.log.warning("ddl_refused", table=named, because=option)
            else:
                yield operation.table
