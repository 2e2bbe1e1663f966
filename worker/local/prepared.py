"""What a start of the local broker finds done: Kafka's classes, read and checked once per machine, and what a
formatted folder begins with. Both halve a start.

They are beside Spark's archive in the cache (see `handlers.spark.runtime.class_archive`), where
`python -m worker.local.training` puts them.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from handlers.spark.runtime.class_archive import QUIET, is_ours, kept, place_of

BOOTSTRAP = "bootstrap.checkpoint"
"""The records that a formatted folder begins with: which features are on."""
_OF_FORMAT = (
    "controller.quorum.",
    "initial.",
    "log.dir",
    "metadata.log.dir",
    "node.id",
    "process.",
    "unstable.",
)
"""Settings that the tool that formats looks at begin so."""


def place(jars: Sequence[Path]) -> Path:
    """Of this Java and this Kafka, without what their names end with. Raises JavaError, OSError."""
    return place_of("kafka", jars)


def java_options(jars: Sequence[Path]) -> list[str]:
    with suppress(OSError):
        found = kept(place(jars))
        if found is not None:
            return [f"-XX:SharedArchiveFile={found}", "-XX:+VerifySharedSpaces", QUIET]
    return []


def bootstrap_of(jars: Sequence[Path], overrides: Mapping[str, str]) -> bytes | None:
    """What `BOOTSTRAP` holds in a folder that is formatted with these settings; None: nobody knows."""
    if any(name.startswith(_OF_FORMAT) for name in overrides):
        return None
    with suppress(OSError):
        known = place(jars).with_suffix(".checkpoint")
        if is_ours(known.parent) and not known.is_symlink():
            return known.read_bytes() or None
    return None
