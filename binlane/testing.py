"""Batches made from dicts, to test a handler without Kafka."""

from handlers.testing import make_batch, opened

__all__ = ["make_batch", "opened"]
