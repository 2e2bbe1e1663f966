"""The store of a worker's own, beside Kafka: a local file, or a database."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path

from handlers.logs import get_logger
from offsets.restore import Start
from offsets.stores import CheckpointError, FileStore, OwnStore, StoreAway
from offsets.types import TopicPartition
from worker.configuration import Configuration
from worker.kafka.connection import Reached

log = get_logger("checkpoint")

_AGAIN_SECONDS = 1.0


def own_store(configuration: Configuration, *, alone: bool = False) -> OwnStore:
    """The store that the configuration names; nothing is opened yet.

    `alone`: it is to be of one process with this `group.instance.id` at a time, if the configuration has one:
    members without one are told apart by Kafka.
    """
    identity = configuration.kafka.properties.get("group.instance.id") if alone else None
    checkpoint = configuration.checkpoint
    where = checkpoint.directory if checkpoint.url is None else checkpoint.url
    return store_at(where, configuration.kafka.group_id, None if identity is None else str(identity))


def store_at(where: Path | str, group: str, identity: str | None = None) -> OwnStore:
    """The group's store in a folder (a Path, or a text without ://) or in the database of a URL.

    Raises ValueError for a URL that cannot be used, without saying the URL.
    """
    if isinstance(where, str) and "://" in where:
        # SQLAlchemy, and all that the handler sql is: half a second that a worker with a file need not pay.
        from handlers.sql.target.engine import check_url  # noqa: PLC0415 (see above)
        from offsets.stores.sql import SqlStore  # noqa: PLC0415 (see above)

        return SqlStore(check_url(where), group, identity=identity)
    return FileStore(Path(where), group, identity=identity)


def reach_store(configuration: Configuration) -> list[Reached]:
    """Whether the database of the checkpoints can be reached and written: one answer, or none."""
    if configuration.checkpoint.url is None:
        return []
    from offsets.stores.sql import SqlStore  # noqa: PLC0415 (see store_at)

    store = own_store(configuration)
    assert isinstance(store, SqlStore)
    target = f"checkpoints in {store.place}"
    try:
        store.prove()
    except CheckpointError as error:
        return [Reached(target, error=str(error))]
    finally:
        store.close()
    return [Reached(target)]


def opened(store: OwnStore, *, stopping: threading.Event, seconds: float, clock: Callable[[], float]) -> None:
    """Open it, and wait for it that long: whoever had its identity may be about to end, a database to start.

    Raises StoreAway when that took too long, CheckpointError for what waiting does not mend.
    """
    end = clock() + seconds
    told = False
    while not stopping.is_set():
        try:
            store.open()
        except StoreAway as error:
            if clock() >= end:
                raise
            if not told:
                told = True
                log.error("checkpoint_store_away", store=store.name, error=str(error), hint="trying again")
            stopping.wait(_AGAIN_SECONDS)
        else:
            return


def worded(starts: Mapping[TopicPartition, Start], store: OwnStore) -> dict[TopicPartition, Start]:
    """The starts in words of this store: the rule speaks of the file."""
    return {
        place: replace(
            start,
            source="sql" if start.source == "file" and store.name == "sql" else start.source,
            reason=start.reason.replace("local file", store.title),
        )
        for place, start in starts.items()
    }
