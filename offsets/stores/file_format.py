"""The checkpoint file as bytes.

Line one: `{"binlane_checkpoint": VERSION, "bytes": N, "sha256": "..."}` about the rest. The rest is one JSON
object: group -> topic -> partition -> [offset, [[first, end], ...], acknowledged or null].
"""

from __future__ import annotations

import hashlib

import msgspec

from offsets.types import Checkpoint, OffsetRange, TopicPartition

__all__ = ["VERSION", "DamagedFile", "Document", "FileEntry", "NewerFile", "decode", "encode"]

VERSION = 1


class FileEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """What the file holds of one partition."""

    offset: int
    ahead: tuple[OffsetRange, ...] = ()
    acknowledged: int | None = None
    """The offset that Kafka last acknowledged of those this file wrote; None: none yet."""

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.offset, self.ahead)


Group = dict[TopicPartition, FileEntry]


class Document(msgspec.Struct):
    """A file's content: one group's entries, the other groups as they were found."""

    entries: Group
    others: dict[str, msgspec.Raw]


class DamagedFile(ValueError):
    """The bytes are not what was written."""


class NewerFile(ValueError):
    """Written by a later version of binlane."""


class _Header(msgspec.Struct):
    version: int = msgspec.field(name="binlane_checkpoint")
    size: int = msgspec.field(name="bytes")
    sha256: str


class _Version(msgspec.Struct):
    binlane_checkpoint: int


_Topics = dict[str, dict[int, FileEntry]]
_header = msgspec.json.Decoder(_Header)
_version = msgspec.json.Decoder(_Version)
_groups = msgspec.json.Decoder(dict[str, msgspec.Raw])
_topics = msgspec.json.Decoder(_Topics)
_encoder = msgspec.json.Encoder()


def encode(document: Document, group: str) -> bytes:
    """The file that holds `document`, whose entries are those of `group`."""
    topics: _Topics = {}
    for partition, entry in document.entries.items():
        topics.setdefault(partition.topic, {})[partition.partition] = entry
    groups = {**document.others, group: msgspec.Raw(_encoder.encode(topics))}
    body = _encoder.encode(groups) + b"\n"
    header = _Header(version=VERSION, size=len(body), sha256=hashlib.sha256(body).hexdigest())
    return _encoder.encode(header) + b"\n" + body


def decode(data: bytes, group: str) -> Document:
    """The content of a file, with the entries of `group`.

    Raises:
        DamagedFile: torn, changed, or no checkpoint file at all.
        NewerFile: this version of binlane must not touch it.
    """
    line, _, body = data.partition(b"\n")
    try:
        version = _version.decode(line).binlane_checkpoint
        if version > VERSION:
            raise NewerFile(f"format {version}; this binlane knows up to {VERSION}")
        if version < VERSION:
            raise DamagedFile(f"there never was a format {version}")
        header = _header.decode(line)
        if len(body) != header.size:
            raise DamagedFile(f"{len(body)} bytes after the first line, {header.size} were written")
        if hashlib.sha256(body).hexdigest() != header.sha256:
            raise DamagedFile("its content does not match its checksum")
        others = _groups.decode(body)
        found = others.pop(group, None)
        topics = {} if found is None else _topics.decode(found)
    except (msgspec.DecodeError, UnicodeDecodeError) as error:
        raise DamagedFile(f"{error}" if data else "it is empty") from None
    entries = {
        TopicPartition(topic, number): entry
        for topic, partitions in topics.items()
        for number, entry in partitions.items()
    }
    return Document(entries, others)
