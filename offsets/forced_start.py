"""`checkpoint.force`: once for each start of the worker, whoever has the partition when."""

from __future__ import annotations

from collections.abc import Mapping

from offsets.types import Committed, TopicPartition


class ForcedStart:
    """Whether a partition is still to begin at `initial`: until the group commits a position of it.

    A partition that comes back, or comes from another member that began it at `initial` as well, goes on from
    there; one that left before anything of it was committed begins at `initial` again. What was not there
    when the worker began (a partition added since, a topic made anew) begins as it does without `force`.

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
        """All partitions that there are before this worker joins the group, with what that has committed; and
        the ids of their topics, as far as they are told."""
        self._before = dict(committed)
        self._topic_ids = dict(topic_ids)

    def over(self, partition: TopicPartition) -> None:
        """The worker has committed a position of it. Should Kafka drop that with the topic, it is not as if
        there had been none."""
        self._before.pop(partition, None)

    def applies(
        self, partition: TopicPartition, committed: Committed | None, topic_id: str | None = None
    ) -> bool:
        """False: not wanted (`begin` was not called), it was not there then, or the group has committed
        since."""
        if partition not in self._before or committed != self._before[partition]:
            return False
        return topic_id is None or self._topic_ids.get(partition.topic, topic_id) == topic_id
