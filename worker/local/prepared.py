"""Files that halve the start of the local broker. They are Kafka's classes, read and checked once per
machine, and the first records of a formatted folder.

They are beside Spark's archive in the cache (see `handlers.spark.runtime.class_archive`). The module
`worker.local.training` creates them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from handlers.spark.runtime.class_archive import QUIET, is_ours, kept, place_of

BOOTSTRAP = "bootstrap.checkpoint"
"""The first records of a formatted folder: which features are on."""
_OF_FORMAT = (
    "controller.quorum.",
    "initial.",
    "log.dir",
    "metadata.log.dir",
    "node.id",
    "process.",
    "unstable.",
)
"""Prefixes of the settings that the formatting tool reads."""


def place(jars: Sequence[Path]) -> Path:
    """Return the path for this Java and this Kafka, without suffix. Raises JavaError, OSError."""
    return place_of("kafka", jars)


def java_options(jars: Sequence[Path]) -> list[str]:
    with suppress(OSError):
        found = kept(place(jars))
        if found is not None:
            return [f"-XX:SharedArchiveFile={found}", "-XX:+VerifySharedSpaces", QUIET]
    return []


def bootstrap_of(jars: Sequence[Path], overrides: Mapping[str, str]) -> bytes | None:
    """Return the contents of `BOOTSTRAP` for a folder with these settings; None: not known."""
    if any(name.startswith(_OF_FORMAT) for name in overrides):
        return None
    with suppress(OSError):
        known = place(jars).with_suffix(".checkpoint")
        if is_ours(known.parent) and not known.is_symlink():
            return known.read_bytes() or None
    return None
