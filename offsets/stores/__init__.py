"""Where checkpoints are stored: a local file, a database, Kafka's group."""
