"""A real Kafka on this machine, for development, demos and tests."""
