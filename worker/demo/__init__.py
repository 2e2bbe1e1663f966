"""`binlane demo`: a small shop's changes through a real Kafka, the worker and Spark, and back to its rows."""
