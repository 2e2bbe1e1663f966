"""Where a source table's Spark table is, and where its segments wait."""

from __future__ import annotations

import re
from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class TableRef:
    """One target table."""

    sql: str
    """As it stands in a statement: delta.`/lake/shop/orders`, or `lake`.`shop`.`orders`."""
    path: str | None
    """The folder or URI of a table that is addressed by its place; None for one of a catalog."""
    log_folder: str
    """The folder or URI of its segments. It goes by the source table's name and stays where it is when the
    table is renamed or dropped: what was applied stays known."""
    app_id: str = "binlane"
    """Whose transactions say how many of the log's segments the table holds: of one log, as a renamed table
    takes over another's rows, but not its log."""

    @classmethod
    def at(cls, path: str) -> TableRef:
        """A Delta table addressed by its place, with its segments inside."""
        return cls(f"delta.{quoted(path)}", path, f"{path}/_binlane/pending")

    def __str__(self) -> str:
        return self.path or self.sql


def app_id(database: str, table: str) -> str:
    """Of the log of this source table (`TableRef.app_id`)."""
    return f"binlane:{database}.{table}"


def quoted(name: str) -> str:
    """A name, or a path, as an identifier of Spark's SQL."""
    return "`" + name.replace("`", "``") + "`"


def path_safe(name: str) -> str:
    """A database's or table's name as one path component; different names stay different.

    Letters and digits of any script, `_`, `-` and `.` stay; all else is written as its UTF-8 bytes, each `!`
    and two hexadecimal digits, and so is a leading dot, so that no name leads out of its folder or is hidden
    in it. Not with `%`: some readers of Delta tables decode such a path once more.

    >>> path_safe("sp ace"), path_of("sp!20ace")
    ('sp!20ace', 'sp ace')
    """
    return re.sub(r"[^\w.\-]|^\.", _encoded, name)


def path_of(safe: str) -> str:
    """The name that `path_safe` made this of; what it cannot have made stays."""
    name = re.sub(r"(?:![0-9A-F]{2})+", _decoded, safe)
    return name if path_safe(name) == safe else safe


def _encoded(found: re.Match[str]) -> str:
    return "".join(f"!{byte:02X}" for byte in found[0].encode())


def _decoded(found: re.Match[str]) -> str:
    return bytes.fromhex(found[0].replace("!", "")).decode("utf-8", "replace")
