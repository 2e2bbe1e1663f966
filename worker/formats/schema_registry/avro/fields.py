"""What the schema that Kafka Connect would have may take: types that are named again and again multiply."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import msgspec

from worker.formats.schema_registry.avro.schema import SchemaError

_MOST_FIELDS = 20_000
"""A row of 5,000 columns stands in an envelope twice."""
_MOST_BYTES = 16 << 20


class FieldBudget:
    """Of one schema."""

    def __init__(self) -> None:
        self._fields, self._bytes = _MOST_FIELDS, _MOST_BYTES

    def take(self, told: Mapping[str, Any]) -> None:
        """`told`: a field without those in it. Raises SchemaError where it is one too many."""
        self._fields -= 1
        self._bytes -= len(msgspec.json.encode(told))
        if self._fields < 0 or self._bytes < 0:
            raise SchemaError(
                f"more than {_MOST_FIELDS:,} fields, or {_MOST_BYTES >> 20} MiB, with all that it names"
            )
