"""The `sql` handler: applies each change exactly once to PostgreSQL, MySQL, MariaDB, SQLite or DuckDB."""

from handlers.sql.handler import SqlHandler

__all__ = ["SqlHandler"]
