"""`binlane demo`: a small shop's changes through a real Kafka, the worker and Spark, and compared with
the shop."""
