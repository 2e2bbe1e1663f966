"""The target database: connections, reflected tables, new tables and the meaning of errors."""
