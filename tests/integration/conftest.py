from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from integration.stage import PROCESSES, Stage

from worker.local.broker import Broker

MakeStage = Callable[..., Stage]


_WITH_BOTH = ("test_coroutine_runs", "test_delivery", "test_handler_faults")
"""Modules whose tests run with the worker's threads alone and with child processes. All others do if
BINLANE_TEST_PROCESSES=2 is set."""


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    if "lane_processes" in metafunc.fixturenames and metafunc.module.__name__.endswith(_WITH_BOTH):
        metafunc.parametrize("lane_processes", [0, 2], indirect=True, ids=["threads", "processes"])


@pytest.fixture
def lane_processes(request: pytest.FixtureRequest) -> int:
    """`lanes.processes` of the workers."""
    return int(getattr(request, "param", PROCESSES))


@pytest.fixture
def make_stage(broker: Broker, tmp_path: Path, lane_processes: int) -> Iterator[MakeStage]:
    """make_stage(partitions=1): a new topic and group, with all that a run on it needs."""
    made: list[Stage] = []

    def make(partitions: int = 1, *, create: bool = True, **topic_settings: str) -> Stage:
        topic = f"cdc.{uuid.uuid4().hex[:8]}"
        if create:
            broker.create_topic(topic, partitions, **topic_settings)
        made.append(Stage(broker.bootstrap_servers, topic, partitions, tmp_path / topic, lane_processes))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """One partition."""
    return make_stage()
