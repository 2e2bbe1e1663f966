"""Kafka batches that cannot be read, however often they are fetched, and where they end."""

from __future__ import annotations

import time
from collections.abc import Mapping
from contextlib import closing
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError

from handlers.kafka.librdkafka import client_logger
from offsets.types import TopicPartition

UNREADABLE = frozenset(
    {
        KafkaError._BAD_COMPRESSION,
        KafkaError._BAD_MSG,
        KafkaError.INVALID_MSG,
        KafkaError.UNSUPPORTED_COMPRESSION_TYPE,
    }
)
"""Errors in the log itself. Any other error is the broker's: once it is over, fetching continues."""
_PROBE_SECONDS = 10.0
_MOST_SECONDS = 45.0
_TRIES = 3
_NONE_THERE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})


class EndUnknown(Exception):
    """Why the end of a batch was not found."""


def end_of_batch(settings: Mapping[str, Any], partition: TopicPartition, begin: int) -> int:
    """Return the offset after the unreadable batch that starts at `begin`.

    A broker answers a fetch of any offset with the whole batch that contains it. So librdkafka reports
    `begin` for each offset of the batch, and no other. Halving takes forty fetches for a million records.

    Raises:
        EndUnknown: the broker did not answer, or no such batch starts there.
    """
    unknown = EndUnknown(f"the end of the batch at {partition} offset {begin} could not be found: try again")
    own = {**settings, "fetch.error.backoff.ms": "10"}
    latest = time.monotonic() + _MOST_SECONDS
    with closing(Consumer(own, logger=client_logger())) as consumer:

        def holds(offset: int) -> bool:
            consumer.assign([confluent_kafka.TopicPartition(*partition, offset)])
            until = min(time.monotonic() + _PROBE_SECONDS, latest)
            while time.monotonic() < until:
                message = consumer.poll(0.5)
                if message is None or message.partition() != partition.partition:
                    continue
                error = message.error()
                if error is None or error.code() in _NONE_THERE:
                    return False
                found = message.offset()
                if error.code() in UNREADABLE and found is not None and found >= 0:
                    return found == begin
            raise unknown

        if not holds(begin):
            raise EndUnknown(f"the batch at {partition} offset {begin} can be read now, or no longer exists")
        inside = begin
        # librdkafka mistakes bytes behind a damaged head for further batches, and reports them late.
        for _ in range(_TRIES):
            step = 1
            while holds(inside + step):
                inside, step = inside + step, step * 2
            outside = inside + step
            while outside - inside > 1:
                middle = (inside + outside) // 2
                if holds(middle):
                    inside = middle
                else:
                    outside = middle
            if not holds(outside):
                return outside
    raise unknown
