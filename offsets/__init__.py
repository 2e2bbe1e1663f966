"""Offsets: which are finished, and where they are remembered."""

from offsets.types import Checkpoint, OffsetRange, TopicPartition

__all__ = ["Checkpoint", "OffsetRange", "TopicPartition"]
