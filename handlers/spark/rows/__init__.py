"""Changes as typed rows: folded by key, as Arrow columns, with their types in Spark."""
