"""Which properties Spark is given, by where it runs."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from handlers.spark.options import SparkSection
from handlers.spark.runtime.conf import on_loopback, session_conf, spark_conf
from worker.verifying.spark_lakes import for_looking


def conf(**section: Any) -> dict[str, str]:
    return spark_conf(SparkSection.model_validate(section), Path("/etc/binlane"), "test")


@pytest.mark.parametrize(
    ("master", "expected"),
    [
        ("local[2]", True),
        ("local", True),
        ("spark://127.0.0.1:7077", True),
        ("spark://localhost:7077,127.0.0.2:7078", True),
        ("spark://[::1]:7077", True),
        ("spark://master:7077", False),
        ("spark://127.0.0.1:7077,10.0.0.5:7077", False),
        ("k8s://https://127.0.0.1:6443", False),
        ("yarn", False),
    ],
)
def test_only_a_master_of_this_machine_keeps_the_driver_on_loopback(master: str, expected: bool) -> None:
    assert on_loopback(master) is expected
    found = conf(master=master).get("spark.driver.host")
    assert found == ("127.0.0.1" if expected else None)


def test_a_cluster_chooses_its_own_partitions() -> None:
    assert conf()["spark.sql.shuffle.partitions"] == "2"
    assert "spark.sql.shuffle.partitions" not in conf(master="spark://master:7077")


def test_the_web_pages_keep_little_cannot_kill_jobs_and_can_be_switched_off() -> None:
    assert conf()["spark.ui.enabled"] == "true"
    assert conf()["spark.ui.killEnabled"] == "false"
    for ui in (True, False):  # they are kept on the heap all the same
        assert int(conf(ui=ui)["spark.sql.ui.retainedExecutions"]) <= 100
    assert conf(ui=False)["spark.ui.enabled"] == "false"


def test_a_property_of_the_users_wins_and_lists_grow_by_it() -> None:
    own = {"spark.ui.port": 4141, "spark.sql.extensions": "my.Extension", "spark.scheduler.mode": "FAIR"}
    found = conf(conf=own | {"spark.sql.ansi.enabled": False})
    assert found["spark.ui.port"] == "4141"
    assert found["spark.scheduler.mode"] == "FAIR"
    assert found["spark.sql.ansi.enabled"] == "false"
    assert found["spark.sql.extensions"] == "io.delta.sql.DeltaSparkSessionExtension,my.Extension"


def test_a_session_at_a_server_is_set_to_what_binlane_needs_and_to_the_users_properties_alone() -> None:
    section = SparkSection.model_validate({"remote": "sc://here", "conf": {"spark.sql.ansi.enabled": False}})
    found = session_conf(section)
    assert found["spark.sql.session.timeZone"] == "UTC"
    assert found["spark.sql.variable.substitute"] == "false"
    assert found["spark.sql.ansi.enabled"] == "false"
    assert not [key for key in found if not key.startswith(("spark.sql.", "spark.databricks.delta."))]


@pytest.mark.parametrize(
    ("configured", "looking"),
    [("2g", "1g"), ("1025m", "1g"), ("512m", "512m"), ("1t", "1g"), ("1048576k", "1048576k")],
)
def test_who_only_looks_takes_a_heap_of_1_gib_at_most(configured: str, looking: str) -> None:
    section = for_looking(SparkSection.model_validate({"master": "yarn", "driver_memory": configured}))
    found = spark_conf(section, Path("/etc/binlane"), "test")
    assert (found["spark.driver.memory"], found["spark.master"]) == (looking, "local[2]")


def test_who_only_looks_uses_the_same_server() -> None:
    section = SparkSection.model_validate({"remote": "sc://here"})
    assert for_looking(section) == section
