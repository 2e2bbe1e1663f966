"""The thread that polls Kafka. It finds each record's table (`routing`) and keeps the order between topics,
what the lanes have not accepted yet (`backpressure`), and other threads' requests (`fetcher`)."""
