"""The parts of Debezium's records that only PostgreSQL has: types, values, and values that the log does not
contain (`unchanged_toast`)."""
