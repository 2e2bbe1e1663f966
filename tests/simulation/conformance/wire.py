"""What no client sends for another: a request of Kafka's protocol, written by hand."""

from __future__ import annotations

import socket
import struct

__all__ = ["evict"]

_LEAVE_GROUP, _VERSION = 13, 1


def evict(servers: str, group: str, member: str) -> None:
    """Have the member leave, without its knowing: one coordinator is all that these brokers have."""
    host, port = servers.rsplit(":", 1)
    body = (
        struct.pack(">hhi", _LEAVE_GROUP, _VERSION, 1) + _text("conformance") + _text(group) + _text(member)
    )
    with socket.create_connection((host, int(port)), 20) as connection:
        connection.sendall(struct.pack(">i", len(body)) + body)
        answer = connection.makefile("rb")
        (size,) = struct.unpack(">i", answer.read(4))
        _, _, code = struct.unpack(">iih", answer.read(size)[:10])
    assert code == 0, f"LeaveGroup is refused with {code}"


def _text(text: str) -> bytes:
    return struct.pack(">h", len(text)) + text.encode()
