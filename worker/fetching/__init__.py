"""The one thread that polls Kafka: each record's table (`routing`), the order between topics, what the
lanes did not take yet (`backlog`), what other threads ask of it (`requests`)."""
