"""The `sql` handler: rows into PostgreSQL, MySQL, MariaDB and SQLite, each change exactly once."""

from handlers.sql.handler import SqlHandler

__all__ = ["SqlHandler"]
