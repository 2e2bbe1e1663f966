"""What is PostgreSQL's own in Debezium's records: types, values, values that the log does not hold
(`unchanged_toast`)."""
