"""Copying a group's checkpoints from one store to another."""

from __future__ import annotations

from collections.abc import Sequence

from offsets.stores.file_format import FileEntry
from offsets.stores.interface import CheckpointError, OwnStore
from offsets.stores.kafka import KafkaStore
from offsets.types import TopicPartition


def copied(
    source: KafkaStore | OwnStore,
    to: KafkaStore | OwnStore,
    partitions: Sequence[TopicPartition],
    *,
    replace: bool = False,
) -> str:
    """Save one store's checkpoints of the group into the other. Returns a sentence about what was done.

    `partitions`: those to look up in Kafka; other stores are copied whole. `replace`: also overwrite
    different positions in the other store. Finished ranges are copied too, into Kafka as far as they fit.

    Raises CheckpointError: a store cannot be used, the source is empty, or the other store has different
    positions. Nothing was copied.
    """
    found = _entries(source, partitions)
    if not found:
        raise CheckpointError(f"{_place(source)} has no position of this group; nothing was copied")
    there = _entries(to, list(found))
    other = [place for place in found if place in there and there[place].offset != found[place].offset]
    if other and not replace:
        first = other[0]
        raise CheckpointError(
            f"{_place(to)} has other positions for {len(other)} partitions, such as {first}: "
            f"{there[first].offset}, not {found[first].offset}; nothing was copied. --replace overwrites them"
        )
    checkpoints = {place: entry.checkpoint for place, entry in found.items()}
    if isinstance(to, KafkaStore):
        to.save(checkpoints)
    else:
        marks = {place: e.acknowledged for place, e in found.items() if e.acknowledged is not None}
        to.save(checkpoints, marks)
    replaced = f", {len(other)} of which it had at other positions" if other else ""
    return f"{len(found)} partitions copied from {_place(source)} to {_place(to)}{replaced}"


def _entries(
    store: KafkaStore | OwnStore, partitions: Sequence[TopicPartition]
) -> dict[TopicPartition, FileEntry]:
    if not isinstance(store, KafkaStore):
        return store.entries()
    return {
        place: FileEntry.of(checkpoint, mark)
        for place, (checkpoint, mark) in store.load_committed(partitions).items()
    }


def _place(store: KafkaStore | OwnStore) -> str:
    return "Kafka" if isinstance(store, KafkaStore) else store.place
