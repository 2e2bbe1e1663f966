"""What the `kafka` handler wrote to a topic."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from topic_messages import messages

__all__ = ["Seen", "read"]


class Seen(NamedTuple):
    partition: int
    key: Any
    """Decoded; None for a message without one."""
    value: Any
    """Decoded; None for a tombstone."""
    headers: dict[str, str]


def read(servers: str, topic: str) -> list[Seen]:
    """All messages, each partition in its order."""
    return [
        Seen(
            message.partition(),
            _decoded(message.key()),
            _decoded(message.value()),
            {name: (value or b"").decode() for name, value in message.headers() or ()},
        )
        for message in messages(servers, topic)
    ]


def _decoded(text: bytes | None) -> Any:
    return None if text is None else json.loads(text)
