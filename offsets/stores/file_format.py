"""The checkpoint file as bytes.

Line one: `{"binlane_checkpoint": VERSION, "bytes": N, "sha256": "..."}` about the rest. The rest is one JSON
object: group -> topic -> partition -> a list of six. Offset. [[first, end], ...]. [offset, checksum] of the
commit that Kafka acknowledged, or null. The topic's id, or null. The partitions that the group began with, or
null. The window of the map of finished offsets that continues here, or null."""

from __future__ import annotations

import hashlib

import msgspec

from offsets.types import Checkpoint, Mark, OffsetRange, TopicPartition

VERSION = 2


class FileEntry(msgspec.Struct, frozen=True, array_like=True, gc=False):
    """The file's content about one partition."""

    offset: int
    ahead: tuple[OffsetRange, ...] = ()
    acknowledged: Mark | None = None
    """Kafka's commit, as the writer of this entry knew it; None: none yet."""
    topic_id: str | None = None
    began_with: int | None = None
    window: str | None = None
    """The window of the map of finished offsets that continues from here."""

    @classmethod
    def of(cls, checkpoint: Checkpoint, acknowledged: Mark | None, window: str | None = None) -> FileEntry:
        """Make the entry of a partition for this checkpoint."""
        offset, ahead, topic_id, began_with = checkpoint
        return cls(offset, ahead, acknowledged, topic_id, began_with, window)

    @property
    def checkpoint(self) -> Checkpoint:
        return Checkpoint(self.offset, self.ahead, self.topic_id, self.began_with)


Group = dict[TopicPartition, FileEntry]


class Document(msgspec.Struct):
    """A file's content: one group's entries, the other groups as they were found."""

    entries: Group
    others: dict[str, msgspec.Raw]


class DamagedFile(ValueError):
    """The bytes differ from what was written."""


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
    """Encode the file with `document`, whose entries belong to `group`."""
    topics: _Topics = {}
    for partition, entry in document.entries.items():
        topics.setdefault(partition.topic, {})[partition.partition] = entry
    groups = {**document.others, group: msgspec.Raw(_encoder.encode(topics))}
    body = _encoder.encode(groups) + b"\n"
    header = _Header(version=VERSION, size=len(body), sha256=hashlib.sha256(body).hexdigest())
    return _encoder.encode(header) + b"\n" + body


def decode(data: bytes, group: str) -> Document:
    """Decode a file, with the entries of `group`.

    Raises DamagedFile: torn, changed, or no checkpoint file at all; NewerFile: this version of binlane must
    not touch it."""
    line, _, body = data.partition(b"\n")
    try:
        version = _version.decode(line).binlane_checkpoint
        if version > VERSION:
            raise NewerFile(f"format {version}; this binlane knows up to {VERSION}")
        if version < VERSION:
            raise DamagedFile(f"format {version} was never released")
        header = _header.decode(line)
        if len(body) != header.size:
            raise DamagedFile(f"{len(body)} bytes after the first line, but {header.size} were written")
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
