"""The `sql` handler: rows into PostgreSQL, MySQL, MariaDB and SQLite, each change exactly once."""
