"""Which test modules share one Spark, or one OpenSearch: they run one after the other in one process of
`make test`.

A JVM that has done a thing before does it in a third of the time, and each process has one of its own. To
start an OpenSearch takes as long as all that is asked of it.
"""

from __future__ import annotations

import gc
import itertools
from pathlib import PurePath
from typing import Any

import pytest
from xdist.scheduler import LoadFileScheduling

__all__ = [
    "OneOfEach",
    "pytest_collection_finish",
    "pytest_collection_modifyitems",
    "pytest_xdist_make_scheduler",
]

_SPARK = "the shared Spark"
_SHARED = {
    # They ask for the Spark of `spark_keeper`, and leave it running.
    _SPARK: (
        *("spark_delta", "spark_ddl", "spark_engine", "spark_view"),
        *("test_example_aggregates.py", "test_log_spark.py", "test_pieces_spark.py"),
        *("test_spark_table_reload.py", "test_postgres_delta.py"),
        *("test_several_writers.py", "test_spark_function.py"),
    ),
    "OpenSearch": ("elasticsearch", "targets", "test_documented_handlers.py", "test_example_targets.py"),
}
"""Server -> the folders and modules of those who share it."""


def _shared_server(path: PurePath) -> str | None:
    """What the module shares; None: nothing of these."""
    return next((name for name, who in _SHARED.items() if {path.parent.name, path.name} & {*who}), None)


class OneOfEach(LoadFileScheduling):  # type: ignore[misc]
    """Gives a whole file to a process; all files that share a server to one."""

    def _split_scope(self, nodeid: str) -> str:
        file: str = super()._split_scope(nodeid)
        return _shared_server(PurePath(file)) or file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with the shared Spark are one process's work, begun first; long ones are spread among those
    that mostly wait. None of them is left to run alone at the end."""
    modules = [list(tests) for _, tests in itertools.groupby(items, lambda item: item.path)]
    shared = [tests for tests in modules if _shared_server(tests[0].path) == _SPARK]
    others = [tests for tests in modules if _shared_server(tests[0].path) != _SPARK]
    long = [tests for tests in others if any(test.get_closest_marker("long") for test in tests)]
    short = [tests for tests in others if tests not in long]
    placed = [
        (until * number / len(group), tests)
        for group, until in ((shared, 0), (long, 0.67), (short, 1.0))
        for number, tests in enumerate(group)
    ]
    items[:] = itertools.chain(*(tests for _, tests in sorted(placed, key=lambda each: each[0])))


def pytest_collection_finish() -> None:
    """Thousands of tests and their modules stay: to look through them again and again for what is garbage
    took one part in fifteen of a runner's time."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(20_000, 20, 100)


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> OneOfEach:
    return OneOfEach(config, log)
