"""Where checkpoints are stored: a local file, a database, Kafka's group."""

from offsets.stores.file import FileStore
from offsets.stores.file_format import FileEntry
from offsets.stores.interface import CheckpointError, CheckpointStore, OwnStore, StoreAway
from offsets.stores.kafka import KafkaStore
from offsets.stores.polled import CommitInterrupted, PolledKafkaStore

__all__ = [
    "CheckpointError",
    "CheckpointStore",
    "CommitInterrupted",
    "FileEntry",
    "FileStore",
    "KafkaStore",
    "OwnStore",
    "PolledKafkaStore",
    "StoreAway",
]
