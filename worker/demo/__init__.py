"""`binlane demo`: send a small shop's changes through a real Kafka, the worker and Spark, then compare."""
