"""When the consumer is polled, for how many records, and what it returned."""
