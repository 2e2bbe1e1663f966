"""Whether Kafka can be reached, as its client tells."""

from __future__ import annotations

import msgspec

_UP = ("UP", "UPDATE")


class _Broker(msgspec.Struct):
    state: str = ""


class _Statistics(msgspec.Struct):
    """What is of use here of librdkafka's statistics."""

    brokers: dict[str, _Broker] = {}


_decoder = msgspec.json.Decoder(_Statistics)


class Brokers:
    """Written by the thread that polls; read by any."""

    def __init__(self) -> None:
        self.up: bool | None = None
        """Whether there is a connection to one of them at least; None: not told yet, or never, where
        `statistics.interval.ms` is 0."""

    def statistics(self, text: str) -> None:
        """librdkafka's `stats_cb`."""
        self.up = any(broker.state in _UP for broker in _decoder.decode(text).brokers.values())
