"""Which offsets of a partition are finished (`tracker`), where that is stored (`stores`), and where a
partition restarts (`restore`). This package does not depend on the worker or on handlers."""

from offsets.types import Checkpoint, OffsetRange, TopicPartition

__all__ = ["Checkpoint", "OffsetRange", "TopicPartition"]
