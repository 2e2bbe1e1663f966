"""An error of Kafka about a partition that returns no records, kept as long as it lasts."""

from __future__ import annotations

import math
from dataclasses import dataclass

from confluent_kafka import KafkaError

from worker.fetching.unreadable_batch import UNREADABLE
from worker.observing.status import PartitionError

_TOLD_AGAIN_SECONDS = 30.0
"""librdkafka repeats the error of a partition that it still fetches within this time."""
_TOLD_ONCE = KafkaError.TOPIC_AUTHORIZATION_FAILED
"""The error that librdkafka does not repeat."""


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
