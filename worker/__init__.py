"""The worker: from Kafka through lanes to handlers. docs/architecture.md has its picture."""

__version__ = "0.1.0"
