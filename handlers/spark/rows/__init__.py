"""Changes as typed rows: folded by key, as Arrow's columns, with their types in Spark."""
