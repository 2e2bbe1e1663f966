"""Checkpoints in a local file, shared by the groups and processes that use the folder."""

from __future__ import annotations

import contextlib
import errno
import os
import threading
from collections.abc import Callable, Iterable, Mapping
from pathlib import Path

import msgspec
import structlog

from offsets.file_lock import LockHeld, locked
from offsets.stores import file_format
from offsets.stores.file_format import DamagedFile, Document, FileEntry, NewerFile
from offsets.stores.interface import CheckpointError, held_by_another, identity_lock
from offsets.types import Checkpoint, Mark, TopicPartition

_log = structlog.get_logger(__name__)

_ADVICE = {
    errno.ENOSPC: "make room on its disk",
    errno.EDQUOT: "raise the disk quota or make room",
    errno.EROFS: "mount it writable or set checkpoint.directory to a folder that is",
    errno.EACCES: "let this user write there or set checkpoint.directory to a folder it may write",
    errno.EPERM: "let this user write there or set checkpoint.directory to a folder it may write",
    errno.ENOTDIR: "set checkpoint.directory to a folder",
}


class FileStore:
    """One group's part of `directory/checkpoint.json`.

    A write goes to a temporary file, which is flushed to the disk and then renamed. The previous file remains
    as `checkpoint.json.previous`. Writers take turns with a lock on `checkpoint.lock`. If the file is
    damaged, the previous one is used. Without a valid one, the file counts as absent, and Kafka's own commits
    decide. Both are logged as errors and listed in `warnings`."""

    name = "file"
    title = "local file"

    def __init__(
        self, directory: Path, group_id: str, *, identity: str | None = None, lock_wait: float = 5.0
    ) -> None:
        """Touches no file. The first `save` or `open` makes the folder.

        `identity`: no other process with this group and folder may have it at the same time. `lock_wait`:
        seconds to wait for another process that is writing."""
        self._identity = identity
        self._identity_lock = None if identity is None else identity_lock(directory, group_id, identity)
        self.path = directory / "checkpoint.json"
        self.previous = directory / "checkpoint.json.previous"
        self.directory = directory
        self._group = group_id
        self._lock_wait = lock_wait
        self._lock = threading.Lock()  # guards _cached, and orders the writes of this process
        self._cached: tuple[bytes, Document] | None = None  # the first line of the file, and its content
        self._warnings: list[str] = []

    @property
    def place(self) -> str:
        return str(self.path)

    def open(self) -> None:
        """The same as `OwnStore.open`. A folder that cannot contain a lock cannot contain checkpoints either:
        the first `save` reports that."""
        if self._identity_lock is None:
            return
        try:
            taken = self._identity_lock.take()
        except OSError:
            return
        if not taken:
            raise held_by_another(self.place, str(self._identity), self._group)

    @property
    def warnings(self) -> tuple[str, ...]:
        """Damage that was found since the store was made, each once."""
        return tuple(self._warnings)

    def load_entries(self, partitions: Iterable[TopicPartition]) -> dict[TopicPartition, FileEntry]:
        """As `OwnStore.load_entries`.

        Raises CheckpointError: the file cannot be read, or a newer version of binlane wrote it."""
        with self._lock:
            entries = self._read()[0].entries
            return {partition: entries[partition] for partition in partitions if partition in entries}

    def entries(self) -> dict[TopicPartition, FileEntry]:
        with self._lock:
            return dict(self._read()[0].entries)

    def save(
        self,
        checkpoints: Mapping[TopicPartition, Checkpoint],
        acknowledged: Mapping[TopicPartition, Mark] | None = None,
        windows: Mapping[TopicPartition, str] | None = None,
    ) -> None:
        """The same as `OwnStore.save`: all or nothing, on the disk when it returns.

        `windows`: the windows of the map of finished offsets that continue from these checkpoints.
        `acknowledged`: Kafka's commits, as far as this writer knows. Each save replaces them, because another
        writer's knowledge proves nothing about this one's checkpoint: partitions move, and a worker that lost
        one may still write.

        Costs about 20 ms for 100 partitions with 1,000 ranges each, plus the disk's own time. A save without
        changes writes nothing."""
        marks, windows = acknowledged or {}, windows or {}

        def apply(entries: dict[TopicPartition, FileEntry]) -> bool:
            changed = False
            for partition, checkpoint in checkpoints.items():
                entry = FileEntry.of(checkpoint, marks.get(partition), windows.get(partition))
                if entries.get(partition) != entry:
                    entries[partition] = entry
                    changed = True
            return changed

        self._update(apply)

    def close(self) -> None:
        """Release the identity for other processes."""
        if self._identity_lock is not None:
            self._identity_lock.release()

    def _update(self, apply: Callable[[dict[TopicPartition, FileEntry]], bool]) -> None:
        with self._lock:
            try:
                with locked(self.directory / "checkpoint.lock", self._lock_wait):
                    found, sound = self._read()
                    document = Document(dict(found.entries), found.others)
                    if apply(document.entries):
                        self._write(document, sound=sound)
            except LockHeld as held:
                raise CheckpointError(f"{held}; end it, or give each worker its own folder") from None
            except OSError as error:
                raise self._failure("write", error) from error

    def _read(self) -> tuple[Document, bool]:
        """Return the content, and whether the file itself is valid (False: absent or damaged)."""
        try:
            with self.path.open("rb") as file:
                # It contains the checksum of the rest, so the same line means the same content.
                first_line = file.readline()
                if self._cached is not None and self._cached[0] == first_line:
                    return self._cached[1], True
                data = first_line + file.read()
        except FileNotFoundError:
            return Document({}, {}), False
        except OSError as error:
            raise self._failure("read", error) from error
        try:
            document = file_format.decode(data, self._group)
        except DamagedFile as damage:
            return self._read_previous(damage), False
        except NewerFile as newer:
            raise CheckpointError(
                f"{self.path} was written by a newer binlane ({newer}): run that version, or move the file "
                "away to start at Kafka's committed offsets"
            ) from None
        self._cached = (first_line, document)
        return document, True

    def _read_previous(self, damage: DamagedFile) -> Document:
        try:
            document = file_format.decode(self.previous.read_bytes(), self._group)
        except (OSError, DamagedFile, NewerFile):
            self._warn(damage, "there is no intact previous copy: Kafka's committed offsets decide")
            return Document({}, {})
        self._warn(damage, "used the previous copy")
        # Windows of the map of finished offsets that continue from there may no longer be complete.
        entries = {
            each: msgspec.structs.replace(entry, window=None) for each, entry in document.entries.items()
        }
        return Document(entries, document.others)

    def _warn(self, damage: DamagedFile, remedy: str) -> None:
        warning = f"{self.path} is damaged ({damage}); {remedy}"
        if warning not in self._warnings:
            self._warnings.append(warning)
            _log.error("checkpoint_file_damaged", path=str(self.path), problem=str(damage), remedy=remedy)

    def _write(self, document: Document, *, sound: bool) -> None:
        data = file_format.encode(document, self._group)
        temporary = self.path.with_name("checkpoint.json.temporary")
        try:
            write_durably(temporary, data)
            if self.path.exists():
                self._keep(self.previous if sound else self.path.with_name("checkpoint.json.damaged"))
            temporary.replace(self.path)
        except OSError:
            with contextlib.suppress(OSError):
                temporary.unlink(missing_ok=True)
            raise
        flush_directory(self.directory)
        self._cached = (data[: data.find(b"\n") + 1], document)

    def _keep(self, copy: Path) -> None:
        """Give the present file a second name. It keeps its own until the new file takes that."""
        spare = self.path.with_name("checkpoint.json.spare")
        spare.unlink(missing_ok=True)
        try:
            os.link(self.path, spare)
        except OSError as error:
            if error.errno in {errno.ENOSPC, errno.EDQUOT, errno.EROFS}:
                raise
            # A file system without hard links.
            write_durably(spare, self.path.read_bytes())
        spare.replace(copy)

    def _failure(self, verb: str, error: OSError) -> CheckpointError:
        return CheckpointError(f"cannot {verb} {self.path}: {reason_of(error)}")


def reason_of(error: OSError) -> str:
    """Return what went wrong with the folder, and what to do about it."""
    return f"{error.strerror or error}; {_ADVICE.get(error.errno or 0, 'check the folder and its disk')}"


def write_durably(path: Path, data: bytes) -> None:
    """Write a file that only its user can read."""
    with path.open("wb") as file:
        os.fchmod(file.fileno(), 0o600)
        file.write(data)
        file.flush()
        os.fsync(file.fileno())


def flush_directory(directory: Path) -> None:
    """Flush the names of its files to the disk."""
    descriptor = os.open(directory, os.O_RDONLY | os.O_DIRECTORY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
