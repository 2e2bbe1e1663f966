"""The examples as they are, on a real broker that holds their samples."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from examples.example_runs import EXAMPLES, ExampleRun, RunExample, play, samples

from worker.local.broker import Broker

TOPICS = (
    "example.replica.shop",
    "example.replica.crm",
    "example.orders",
    "example.dead",
    "example.unexpected",
)
"""Those that examples write to."""


@pytest.fixture(scope="session")
def played(broker: Broker) -> Broker:
    """A broker whose topics hold all samples, each once."""
    more = [argument for topic in TOPICS for argument in ("--make", topic)]
    done = play(*map(str, samples()), "--bootstrap", broker.bootstrap_servers, *more)
    assert done.returncode == 0, done.stderr
    return broker


@pytest.fixture
def run_example(played: Broker, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[RunExample]:
    """`run_example("targets/redis", REDIS_URL=...)` starts `binlane run` with that example, in a folder of
    its own, and waits until all records of its topics are finished."""
    runs: list[ExampleRun] = []

    def run(name: str, *, folder: Path = EXAMPLES, **environment: Any) -> ExampleRun:
        for variable in ("KAFKA_BOOTSTRAP_SERVERS", "TARGET_BOOTSTRAP_SERVERS"):
            monkeypatch.setenv(variable, played.bootstrap_servers)
        for variable, value in environment.items():
            monkeypatch.setenv(variable, str(value))
        runs.append(ExampleRun(folder / f"{name}.yaml", tmp_path / "run"))
        runs[-1].start()
        return runs[-1]

    yield run
    for each in runs:
        each.close()
