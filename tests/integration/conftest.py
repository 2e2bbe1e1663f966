from __future__ import annotations

import uuid
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from integration.stage import Stage

from worker.local.broker import Broker

MakeStage = Callable[..., Stage]


@pytest.fixture
def make_stage(broker: Broker, tmp_path: Path) -> Iterator[MakeStage]:
    """make_stage(partitions=1): a new topic and group, with all that a run on it needs."""
    made: list[Stage] = []

    def make(partitions: int = 1, *, create: bool = True, **topic_settings: str) -> Stage:
        topic = f"cdc.{uuid.uuid4().hex[:8]}"
        if create:
            broker.create_topic(topic, partitions, **topic_settings)
        made.append(Stage(broker.bootstrap_servers, topic, partitions, tmp_path / topic))
        return made[-1]

    yield make
    for stage in made:
        stage.close()


@pytest.fixture
def stage(make_stage: MakeStage) -> Stage:
    """One partition."""
    return make_stage()
