"""How much metadata a commit has when a broker takes less than binlane would write."""

from __future__ import annotations

from offsets.stores.commits import CommitTexts
from offsets.types import Checkpoint, OffsetRange, TopicPartition

ORDERS = TopicPartition("cdc.shop", 0)
SCATTERED = {ORDERS: Checkpoint(0, tuple(OffsetRange(n, n + 1) for n in range(7, 70_000, 7)))}


def test_what_is_refused_is_written_with_half_as_much_until_there_is_none() -> None:
    texts = CommitTexts()
    (refused,) = texts.offsets_of(SCATTERED)
    lengths = [len(refused.metadata or "")]
    assert lengths[0] > 1000
    while texts.shrink([refused]):
        (refused,) = texts.offsets_of(SCATTERED)
        assert refused.offset == 0
        lengths.append(len(refused.metadata or ""))
        assert lengths[-1] <= lengths[-2] // 2
    assert lengths[-1] == 0
    assert len(lengths) > 3
