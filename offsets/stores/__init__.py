"""Where checkpoints are remembered: a local file, a database, Kafka's group, memory."""

from offsets.stores.file import FileEntry, FileStore
from offsets.stores.interface import CheckpointError, CheckpointStore, OwnStore, StoreAway
from offsets.stores.kafka import KafkaStore
from offsets.stores.memory import MemoryStore
from offsets.stores.polled import CommitInterrupted, PolledKafkaStore

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "CommitInterrupted",
    "FileEntry",
    "FileStore",
    "KafkaStore",
    "MemoryStore",
    "OwnStore",
    "PolledKafkaStore",
    "StoreAway",
]
