"""The worker: from Kafka through lanes to handlers."""

__version__ = "0.1.0"
