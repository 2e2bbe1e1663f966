"""Every record of a stream through the format and the handler, without Kafka and the worker."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
from decoding import STREAMS, batches
from differences import CAPTURED, expected
from rejecting import rejections
from replica import Replica

from handlers import HandlerContext
from handlers.sql.handler import SqlHandler


@pytest.mark.parametrize(("stream", "format_name"), STREAMS, ids=[one[0] for one in STREAMS])
def test_a_stream_leaves_the_rows_of_its_source(stream: str, format_name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'replica.db'}"
    handler = SqlHandler(url=url)
    handler.open(HandlerContext(worker="replay", handler="sql", folder=tmp_path))
    rejected = Counter(
        batch.table for batch in batches(stream, format_name) for _ in rejections(handler, batch)
    )
    handler.close()
    # Updates of a table without a key that do not say which row they were.
    assert rejected == ({"crm.event_log": 4} if stream == "debezium-unwrap" else {})
    assert Replica(url).differences(CAPTURED.get(stream)) == expected(stream, "sqlite")
