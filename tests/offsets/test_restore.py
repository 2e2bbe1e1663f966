"""Where a start begins."""

from __future__ import annotations

from datetime import UTC, datetime

import pytest
from hypothesis import given
from hypothesis import strategies as st

from offsets.restore import Initial, Place, Source, choose_start
from offsets.stores.file_format import FileEntry
from offsets.types import Checkpoint, OffsetRange, TopicPartition

SHOP = TopicPartition("cdc.shop", 0)
TEN_O_CLOCK = datetime(2026, 3, 1, 10, tzinfo=UTC)


def ranges(*pairs: tuple[int, int]) -> tuple[OffsetRange, ...]:
    return tuple(OffsetRange(*pair) for pair in pairs)


FILE = FileEntry(100, ranges((110, 120)), 90)
NOT_ACKNOWLEDGED = FileEntry(100, ranges((110, 120)))


@pytest.mark.parametrize(
    ("file", "kafka", "offset", "ahead", "source", "said"),
    [
        pytest.param(
            None, None, "earliest", (), "initial",
            "neither the local file nor Kafka knows this partition; checkpoint.initial is earliest",
            id="nobody knows: initial",
        ),
        pytest.param(
            FILE, None, 100, FILE.ahead, "file", "Kafka has no committed offset",
            id="Kafka has none: the file",
        ),
        pytest.param(
            FILE, Checkpoint(100), 100, FILE.ahead, "file", "agree on 100",
            id="both agree: the file",
        ),
        pytest.param(
            FILE, Checkpoint(100, ranges((103, 105), (115, 130), (140, 141))),
            100, ranges((103, 105), (110, 130), (140, 141)), "file", "agree on 100",
            id="both agree: what either knows ahead",
        ),
        pytest.param(
            FILE, Checkpoint(100, ranges((105, 110), (120, 121))), 100, ranges((105, 121)), "file", "agree",
            id="both agree: ranges that touch become one",
        ),
        pytest.param(
            NOT_ACKNOWLEDGED, Checkpoint(100), 100, FILE.ahead, "file", "agree on 100",
            id="both agree although the acknowledgement was never written",
        ),
        pytest.param(
            FILE, Checkpoint(90, ranges((95, 99), (150, 160))), 100, FILE.ahead, "file",
            "the last commit did not arrive",
            id="Kafka lags by the last commit: the file",
        ),
        pytest.param(
            FILE, Checkpoint(95, ranges((97, 98))), 95, ranges((97, 98)), "kafka", "moved",
            id="Kafka stands between: moved",
        ),
        pytest.param(
            FILE, Checkpoint(0), 0, (), "kafka", "moved",
            id="Kafka was set back: moved",
        ),
        pytest.param(
            FILE, Checkpoint(500), 500, (), "kafka", "another worker",
            id="Kafka is further: another worker went on",
        ),
        pytest.param(
            NOT_ACKNOWLEDGED, Checkpoint(90), 90, (), "kafka", "acknowledged: nothing",
            id="Kafka has what this file never committed",
        ),
        pytest.param(
            FileEntry(100, (), 100), Checkpoint(90), 90, (), "kafka", "moved",
            id="set back to where an earlier commit stood: moved",
        ),
        pytest.param(
            None, Checkpoint(40, ranges((50, 60))), 40, ranges((50, 60)), "kafka",
            "the local file does not know this partition",
            id="no file: Kafka",
        ),
        pytest.param(
            FileEntry(0, (), None), None, 0, (), "file", "says 0",
            id="offset 0 is a position like any other",
        ),
    ],
)  # fmt: skip
def test_the_rule(
    *,
    file: FileEntry | None,
    kafka: Checkpoint | None,
    offset: Place,
    ahead: tuple[OffsetRange, ...],
    source: Source,
    said: str,
) -> None:
    start = choose_start(SHOP, force=False, initial="earliest", file=file, kafka=kafka)
    assert (start.offset, start.ahead, start.source) == (offset, ahead, source)
    assert said in start.reason


@pytest.mark.parametrize(
    ("initial", "offset", "said"),
    [
        ("earliest", "earliest", "checkpoint.initial is earliest"),
        ("latest", "latest", "checkpoint.initial is latest"),
        (TEN_O_CLOCK, TEN_O_CLOCK, "checkpoint.initial is 2026-03-01T10:00:00+00:00"),
        ({"cdc.shop": {0: 77}}, 77, "checkpoint.initial is 77"),
        ({"cdc.shop": {0: 0}}, 0, "checkpoint.initial is 0"),
        ({"cdc.shop": {1: 77}}, "earliest", "does not name cdc.shop[0]: earliest"),
        ({"other": {0: 77}}, "earliest", "does not name cdc.shop[0]: earliest"),
    ],
)
@pytest.mark.parametrize("force", [False, True])
def test_initial_is_an_end_a_time_or_an_offset(
    initial: Initial, offset: Place, said: str, force: bool
) -> None:
    file, kafka = (FILE, Checkpoint(100)) if force else (None, None)
    start = choose_start(SHOP, force=force, initial=initial, file=file, kafka=kafka)
    assert (start.offset, start.ahead, start.source) == (offset, (), "force" if force else "initial")
    assert said in start.reason
    assert ("checkpoint.force is set" in start.reason) == force


OFFSETS = st.integers(0, 30)


@st.composite
def checkpoints(draw: st.DrawFn) -> Checkpoint:
    offset = place = draw(OFFSETS)
    ahead = []
    for gap, length in draw(st.lists(st.tuples(st.integers(1, 3), st.integers(1, 3)), max_size=6)):
        ahead.append(OffsetRange(place + gap, place + gap + length))
        place += gap + length
    return Checkpoint(offset, tuple(ahead))


def finished(checkpoint: Checkpoint | None) -> set[int]:
    if checkpoint is None:
        return set()
    return set(range(checkpoint.offset)).union(*(range(*each) for each in checkpoint.ahead))


@given(st.none() | checkpoints(), st.none() | OFFSETS, st.none() | checkpoints())
def test_nothing_is_skipped_that_no_store_calls_finished(
    in_file: Checkpoint | None, acknowledged: int | None, kafka: Checkpoint | None
) -> None:
    file = None if in_file is None else FileEntry(*in_file, acknowledged)
    start = choose_start(SHOP, force=False, initial="earliest", file=file, kafka=kafka)
    if not isinstance(start.offset, int):
        assert (file, kafka, start.ahead) == (None, None, ())
        return
    assert start.offset in {each.offset for each in (in_file, kafka) if each is not None}
    assert finished(Checkpoint(start.offset, start.ahead)) <= finished(in_file) | finished(kafka)
    chosen = kafka if start.source == "kafka" else in_file
    assert finished(Checkpoint(start.offset, start.ahead)) >= finished(chosen)
    places = [start.offset, *(place for each in start.ahead for place in each)]
    assert places == sorted(set(places)), "ahead ranges ascend and do not touch"
