"""Where a source table's Spark table is, and where its segments wait."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableRef:
    """One target table."""

    sql: str
    """Its name in a statement: delta.`/lake/shop/orders`, or `lake`.`shop`.`orders`."""
    path: str | None
    """The folder or URI of a table that is addressed by its place. None for a table in a catalog."""
    log_folder: str
    """The folder or URI of its segments. It contains the source table's name and stays when the table is
    renamed or dropped, so applied positions stay known."""
    app_id: str = "binlane"
    """The id of the transactions that record which segments of the log the table contains. It belongs to one
    log: a renamed table takes over another's rows, but not its log."""

    def __str__(self) -> str:
        return self.path or self.sql


def app_id(database: str, table: str) -> str:
    """The id of this source table's log (`TableRef.app_id`)."""
    return f"binlane:{database}.{table}"


def quoted(name: str) -> str:
    """Return a name or path as an identifier of Spark SQL."""
    return "`" + name.replace("`", "``") + "`"


def path_safe(name: str) -> str:
    """Return a database's or table's name as one path component. Different names stay different.

    Letters and digits of any script, `_`, `-` and `.` stay. Each other byte in UTF-8 becomes `!` and two
    hexadecimal digits. So does a leading dot: no name can leave its folder or be hidden in it. `%` is not
    used, because some readers of Delta tables decode such a path again.

    >>> path_safe("sp ace"), path_of("sp!20ace")
    ('sp!20ace', 'sp ace')
    """
    return re.sub(r"[^\w.\-]|^\.", lambda found: "".join(f"!{byte:02X}" for byte in found[0].encode()), name)


def path_of(safe: str) -> str:
    """Return the name from which `path_safe` made this. A text that it cannot have made stays unchanged."""
    escaped = r"(?:![0-9A-F]{2})+"
    name = re.sub(
        escaped, lambda found: bytes.fromhex(found[0].replace("!", "")).decode("utf-8", "replace"), safe
    )
    return name if path_safe(name) == safe else safe
