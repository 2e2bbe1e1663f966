"""Which lane a table belongs to."""

from __future__ import annotations

import hashlib

_SALT = b"binlane"


def home_lane(table: str, lanes: int) -> int:
    """Return the lane that a table belongs to: the same in every process.

    Salted, because keys that already chose a Kafka partition by a hash are biased within that partition.
    """
    digest = hashlib.blake2b(table.encode("utf-8", "surrogatepass"), digest_size=8, salt=_SALT).digest()
    return int.from_bytes(digest, "big") % lanes
