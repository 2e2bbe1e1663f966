"""Tables in row order: a decoded batch spread over the table's shards, and what each shard gets of it."""
