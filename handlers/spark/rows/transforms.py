"""Iceberg's partition transforms in the option `partition_by`: days(created_at), bucket(16, id)."""

from __future__ import annotations

import re
from typing import NamedTuple

_CALL = re.compile(r"(\w+)\s*\(\s*(?:(\d+)\s*,\s*)?([^()]+?)\s*\)")
_PLAIN = ("identity", "year", "month", "day", "hour")
_SIZED = ("bucket", "truncate")


class Transform(NamedTuple):
    """One field of a partition."""

    name: str
    """In Iceberg's form: identity, day, bucket[16]."""
    column: str


def read_transform(text: str) -> Transform:
    """Parse one entry of `partition_by`. Raises ValueError.

    >>> read_transform("days(created_at)"), read_transform("bucket(16, id)")[0], read_transform("region")[0]
    (Transform(name='day', column='created_at'), 'bucket[16]', 'identity')
    """
    found = _CALL.fullmatch(text.strip())
    if found is None and not set("()") & set(text):
        return Transform("identity", text.strip())
    if found is not None:
        kind, size, column = found[1].lower(), found[2], found[3]
        if (plain := kind.removesuffix("s")) in _PLAIN and size is None:
            return Transform(plain, column)
        if kind in _SIZED and size is not None and int(size) > 0:
            return Transform(f"{kind}[{int(size)}]", column)
    raise ValueError(
        f"{text!r} is no partition; allowed: a column, years(c), months(c), days(c), hours(c), bucket(N, c), "
        "truncate(N, c)"
    )
