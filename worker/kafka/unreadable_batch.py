"""Kafka batches that cannot be read, where they end, and errors about a partition that last."""

from __future__ import annotations

import math
import time
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import confluent_kafka
from confluent_kafka import Consumer, KafkaError, KafkaException

from handlers.kafka.librdkafka import client_logger, closed_in_time
from offsets.types import TopicPartition
from worker.observing.status import PartitionError

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
_NONE_THERE = frozenset({KafkaError._PARTITION_EOF, KafkaError._AUTO_OFFSET_RESET})
_TOLD_AGAIN_SECONDS = 30.0
"""librdkafka repeats the error of a partition that it still fetches within this time."""
_TOLD_ONCE = KafkaError.TOPIC_AUTHORIZATION_FAILED
"""The error that librdkafka does not repeat."""


class EndUnknown(Exception):
    """Why the end of a batch was not found."""


def end_of_batch(
    settings: Mapping[str, Any], partition: TopicPartition, begin: int, read_to: int | None = None
) -> int:
    """Return the offset after the unreadable batch that starts at `begin`.

    `read_to`: the partition is read to here, so no record may exist between this offset and `begin`.

    A broker answers a fetch of any offset with the whole batch that contains it. So librdkafka reports
    `begin` for each offset of the batch, and no other. Halving takes forty fetches for a million records.
    Offsets outside the log are not fetched: see `close_in_time`.

    Raises EndUnknown: the broker did not answer, no such batch starts there, or a record precedes it."""
    unknown = EndUnknown(f"the end of the batch at {partition} offset {begin} could not be found: try again")
    own = {**settings, "fetch.error.backoff.ms": "10"}
    latest = time.monotonic() + _MOST_SECONDS

    def bounds() -> tuple[int, int]:
        try:
            with closed_in_time(Consumer(own, logger=client_logger())) as consumer:
                where = confluent_kafka.TopicPartition(*partition)
                return consumer.get_watermark_offsets(where, timeout=_PROBE_SECONDS)
        except KafkaException as error:
            raise unknown from error

    def holds(offset: int) -> bool:
        if not first <= offset < end:
            return False
        # librdkafka takes bytes behind a damaged head for further batches, and reports these at any later
        # time. So each question has a consumer of its own, of which only the first answer counts.
        with closed_in_time(Consumer(own, logger=client_logger())) as consumer:
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

    first, end = bounds()
    # Retention may have deleted what was not read.
    if read_to is not None and (read_to := max(read_to, first)) < begin:
        if not holds(read_to):
            raise EndUnknown(
                f"{partition} still has records before that batch, from offset {read_to} on, which are not "
                "handled yet: try again in ten seconds"
            )
    elif not holds(begin):
        raise EndUnknown(f"the batch at {partition} offset {begin} can be read now, or no longer exists")
    inside, step = begin, 1
    while holds(inside + step):
        inside, step = inside + step, step * 2
    outside = inside + step
    while outside - inside > 1:
        middle = (inside + outside) // 2
        if holds(middle):
            inside = middle
        else:
            outside = middle
    return outside


@dataclass(slots=True)
class LastingError:
    """The fetcher's own. `told` may be called on any thread."""

    code: int
    name: str
    text: str
    offset: int | None
    """The offset of the unreadable batch, or None if the error names none."""
    left: float
    """Seconds until it counts as over, unless it is reported again."""
    seconds: float = 0.0
    """Seconds since the first report in which the partition returned no records."""
    answer_missing: bool = False
    """The partition's leader did not answer a question. No fetch failed."""

    @classmethod
    def after(cls, last: LastingError | None, error: KafkaError, offset: int | None) -> LastingError:
        """Return the error to keep after `error` was reported. An unreadable batch stays the cause:
        librdkafka may mistake the bytes behind its head for batches, and report errors about those."""
        left = math.inf if error.code() == _TOLD_ONCE else _TOLD_AGAIN_SECONDS
        seconds = 0.0 if last is None else last.seconds
        if last is not None and last.unreadable:
            return cls(last.code, last.name, last.text, last.offset, left, seconds)
        known = offset if offset is not None and offset >= 0 else None
        return cls(error.code(), error.name(), error.str(), known, left, seconds)

    @classmethod
    def unanswered(cls, last: LastingError | None, error: KafkaError) -> LastingError:
        """Return the error to keep after the partition's leader did not answer a question."""
        if last is not None and not last.answer_missing:
            return last
        seconds = 0.0 if last is None else last.seconds
        return cls(error.code(), error.name(), error.str(), None, math.inf, seconds, answer_missing=True)

    @property
    def unreadable(self) -> bool:
        """Whether the batch cannot be read, however often it is fetched."""
        return self.code in UNREADABLE

    @property
    def told_once(self) -> bool:
        """Whether it is never reported again. While it lasts, fetches report no end of the partition."""
        return self.code == _TOLD_ONCE

    @property
    def explains(self) -> bool:
        """Whether it ends by itself, and no record can arrive until then."""
        return not self.unreadable and not self.answer_missing

    def is_over(self, passed: float) -> bool:
        """`passed`: seconds since the last look, without progress."""
        self.seconds += passed
        self.left -= passed
        return self.left <= 0

    def told(self) -> PartitionError:
        return PartitionError(
            code=self.name,
            error=self.text,
            offset=self.offset,
            unreadable=self.unreadable,
            seconds=round(self.seconds, 3),
        )
