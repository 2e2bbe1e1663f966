"""Bounds that a reload brings reach everything that holds records."""

from __future__ import annotations

import threading
from pathlib import Path

import pytest
from building import Clock, configuration

from worker.local.broker_settings import free_port
from worker.running.components import Components


def test_what_waits_for_its_place_in_the_source_s_order_is_bounded_anew(tmp_path: Path) -> None:
    settings = configuration(
        kafka={
            "bootstrap_servers": f"127.0.0.1:{free_port()}",
            "group_id": "g",
            "topics": ["rows"],
            "ddl_topics": ["ddl"],
        },
        format="debezium",
        lanes={"max_bytes": "4GiB"},
        checkpoint={"directory": str(tmp_path)},
    )
    components = Components(settings, clock=Clock(), fail=pytest.fail, stop=threading.Event())
    order = components.order
    assert order is not None
    before = order._max_bytes
    lanes = settings.lanes.model_copy(update={"max_bytes": 64 << 20})
    for stage in components.stages:
        stage.adopt(settings.model_copy(update={"lanes": lanes}))
    assert (before, order._max_bytes) == (1 << 30, 16 << 20)
