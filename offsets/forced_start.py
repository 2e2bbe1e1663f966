"""`checkpoint.force`: applies once per start of the worker, to each partition."""

from __future__ import annotations

from collections.abc import Mapping

from offsets.types import Committed, TopicPartition


class ForcedStart:
    """Whether a partition must still start at `initial`: until the group commits a position in it.

    A partition that returns, or that another member started at `initial` too, continues there. One revoked
    before its first commit starts at `initial` again. New partitions and recreated topics start as without
    `force`.

    >>> from offsets.types import Checkpoint, Mark
    >>> orders = TopicPartition("cdc.shop", 0)
    >>> forced = ForcedStart()

    >>> before = Committed(Checkpoint(500), Mark(500, 1))
    >>> forced.begin({orders: before}, {})
    >>> forced.applies(orders, before)
    True
    >>> forced.applies(orders, Committed(Checkpoint(500), Mark(500, 2)))
    False
    """

    def __init__(self) -> None:
        self._before: dict[TopicPartition, Committed | None] = {}
        self._topic_ids: dict[str, str] = {}

    def begin(
        self, committed: Mapping[TopicPartition, Committed | None], topic_ids: Mapping[str, str]
    ) -> None:
        """Set all partitions that exist before this worker joins the group, with their commits, and their
        topics' known ids."""
        self._before = dict(committed)
        self._topic_ids = dict(topic_ids)

    def over(self, partition: TopicPartition) -> None:
        """The worker has committed here. That still counts if Kafka drops the commit with the topic."""
        self._before.pop(partition, None)

    def applies(
        self, partition: TopicPartition, committed: Committed | None, topic_id: str | None = None
    ) -> bool:
        """Whether it must start at `initial`. False: `begin` was not called, the partition did not exist
        then, or the group has committed since."""
        if partition not in self._before or committed != self._before[partition]:
            return False
        return topic_id is None or self._topic_ids.get(partition.topic, topic_id) == topic_id
