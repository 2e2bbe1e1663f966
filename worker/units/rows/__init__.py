"""Tables in row order: a decoded batch is distributed over the table's shards."""
