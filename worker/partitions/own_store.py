"""The worker's own checkpoint store, beside Kafka (a local file, or a database), and its journal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Mapping
from dataclasses import replace

from handlers.logs import get_logger
from offsets.journal import Journal
from offsets.restore import Start
from offsets.stores.file import FileStore
from offsets.stores.interface import CheckpointError, OwnStore, StoreAway
from offsets.types import TopicPartition
from worker.configuration import Configuration
from worker.kafka.connection import Reached

log = get_logger("checkpoint")

_AGAIN_SECONDS = 1.0


def own_store(configuration: Configuration, *, alone: bool = False) -> OwnStore:
    """Return the configured store, not opened.

    `alone`: only one process with this `group.instance.id` may use it at a time, if the configuration has
    that id. Kafka itself distinguishes members without one."""
    identity = configuration.kafka.properties.get("group.instance.id") if alone else None
    checkpoint = configuration.checkpoint
    group, identity = configuration.kafka.group_id, None if identity is None else str(identity)
    if checkpoint.url is None:
        return FileStore(checkpoint.directory, group, identity=identity)
    # SQLAlchemy and the code of the handler sql: half a second that a worker with a file need not spend.
    from handlers.sql.target.engine import check_url  # noqa: PLC0415 (see above)
    from offsets.stores.sql import SqlStore  # noqa: PLC0415 (see above)

    return SqlStore(check_url(checkpoint.url), group, identity=identity)


def journal_of(configuration: Configuration) -> Journal | None:
    """Return the journal beside the group's checkpoints, or None if none is configured."""
    rule = configuration.checkpoint.journal
    if rule is None:
        return None
    return Journal(
        configuration.checkpoint.directory / "journal",
        configuration.kafka.group_id,
        flush=rule.flush,
        max_age=rule.max_age,
        max_bytes=rule.max_bytes,
    )


def reach_store(configuration: Configuration) -> list[Reached]:
    """Whether the checkpoints' database can be reached and written. No answer if none is configured."""
    if configuration.checkpoint.url is None:
        return []
    from offsets.stores.sql import SqlStore  # noqa: PLC0415 (see own_store)

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
    """Open the store, retrying for `seconds`: its former user may be about to stop, its database to start.

    Raises StoreAway after that time, and CheckpointError for an error that waiting cannot fix."""
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
    """Reword the starts for this store, because the rules mention the file."""
    return {
        place: replace(
            start,
            source="sql" if start.source == "file" and store.name == "sql" else start.source,
            reason=start.reason.replace("local file", store.title),
        )
        for place, start in starts.items()
    }
