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

_FOLDERS = ("spark_delta", "spark_ddl", "spark_engine", "spark_view")
_MODULES = (
    "test_example_aggregates.py",
    "test_log_spark.py",
    "test_pieces_spark.py",
    "test_postgres_delta.py",
    "test_several_writers.py",
    "test_spark_function.py",
)
_SEARCHING_FOLDERS = ("elasticsearch", "targets")
_SEARCHING_MODULES = ("test_documented_handlers.py", "test_example_targets.py")


def _shares_spark(path: PurePath) -> bool:
    """Does the module ask for the Spark of `spark_keeper`, and leave it running?"""
    return path.parent.name in _FOLDERS or path.name in _MODULES


def _shares_search(path: PurePath) -> bool:
    return path.parent.name in _SEARCHING_FOLDERS or path.name in _SEARCHING_MODULES


class OneOfEach(LoadFileScheduling):  # type: ignore[misc]
    """Gives a whole file to a process; all files with the shared Spark to one, those with OpenSearch, too."""

    def _split_scope(self, nodeid: str) -> str:
        file = super()._split_scope(nodeid)
        path = PurePath(file)
        if _shares_spark(path):
            return "the shared Spark"
        return "OpenSearch" if _shares_search(path) else file


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Modules with the shared Spark are one process's work, begun first; long ones are spread among those
    that mostly wait. None of them is left to run alone at the end."""
    modules = [list(tests) for _, tests in itertools.groupby(items, lambda item: item.path)]
    shared = [tests for tests in modules if _shares_spark(tests[0].path)]
    others = [tests for tests in modules if not _shares_spark(tests[0].path)]
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
