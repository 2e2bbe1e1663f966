"""Which offsets of a partition are finished (`tracker`), where that is remembered (`stores`), and where a
partition begins again (`restore`). Nothing here knows of the worker or of handlers."""

from offsets.types import Checkpoint, OffsetRange, TopicPartition

__all__ = ["Checkpoint", "OffsetRange", "TopicPartition"]
