"""Where checkpoints are remembered."""

from offsets.stores.file import FileEntry, FileStore
from offsets.stores.interface import CheckpointError, CheckpointStore
from offsets.stores.kafka import KafkaStore
from offsets.stores.memory import MemoryStore

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "FileEntry",
    "FileStore",
    "KafkaStore",
    "MemoryStore",
]
