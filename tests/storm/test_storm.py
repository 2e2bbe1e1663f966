"""Half a minute of storm with one broker; `make storm` is the long one."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.postgres_server import PostgresServer

from storm.faults import FAKE_TIME
from storm.plan import ONE_BROKER
from storm.rig import Scale
from storm.storming import storm

_SEED = 7
_SECONDS = 32.0
_SHARED = "database stopped"
"""Other tests use this database, too."""


@pytest.mark.soak
@pytest.mark.timeout(1200)
def test_a_short_storm_loses_nothing_and_keeps_the_order(tmp_path: Path, postgres: PostgresServer) -> None:
    kinds = {kind: 1 for kind in ONE_BROKER if kind not in (_SHARED, "Spark killed")}
    if FAKE_TIME is None:
        del kinds["clock jumps"]
    scale = Scale(brokers=1, tables=4, rate=100, spark=False, seed=_SEED)
    report = storm(
        tmp_path,
        scale,
        kinds,
        _SECONDS,
        database=postgres,
        url=postgres.new_database("storm"),
        patience=300,
    )
    print(report.table())
    assert not report.broken, "\n".join(report.broken)
    assert sum(row.times for row in report.rows.values()) == sum(kinds.values())
