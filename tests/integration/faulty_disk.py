"""A disk of the broker that changes what was written."""

from __future__ import annotations

from worker.local.broker import Broker

__all__ = ["damage"]


def damage(broker: Broker, topic: str, text: bytes) -> None:
    """Change one byte of a record where the broker keeps it, as a faulty disk does."""
    damaged = 0
    for log in broker.directory.rglob(f"{topic}-0/*.log"):
        data = log.read_bytes()
        if text in data:
            with log.open("r+b") as file:
                file.seek(data.index(text))
                file.write(b"X")
                damaged += 1
    assert damaged == 1
