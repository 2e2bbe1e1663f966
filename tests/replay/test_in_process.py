"""Every record of a stream through the format and the handler, without Kafka and the worker."""

from __future__ import annotations

from pathlib import Path

import pytest
from decoding import STREAMS, batches
from differences import CAPTURED, expected
from replica import Replica

from handlers import HandlerContext
from handlers.sql.handler import SqlHandler


@pytest.mark.parametrize(("stream", "format_name"), STREAMS, ids=[one[0] for one in STREAMS])
def test_a_stream_leaves_the_rows_of_its_source(stream: str, format_name: str, tmp_path: Path) -> None:
    url = f"sqlite:///{tmp_path / 'replica.db'}"
    handler = SqlHandler(url=url)
    handler.open(HandlerContext(worker="replay", handler="sql", folder=tmp_path))
    for batch in batches(stream, format_name):
        handler.handle(batch)
    handler.close()
    assert Replica(url).differences(CAPTURED.get(stream)) == expected(stream, "sqlite")
