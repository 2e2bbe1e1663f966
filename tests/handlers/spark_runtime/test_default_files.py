"""Whether plain paths can be taken for this machine's before Spark is up to be asked."""

from __future__ import annotations

import pytest

from handlers.spark.options import SparkSection
from handlers.spark.runtime import conf as default_files
from handlers.spark.runtime.conf import plain_paths_are_local


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in (*default_files._FOLDERS, *default_files._OPTIONS):
        monkeypatch.delenv(name, raising=False)


@pytest.mark.parametrize(
    ("conf", "is_local"),
    [
        ({}, True),
        ({"spark.sql.shuffle.partitions": 4, "spark.hadoop.fs.s3a.endpoint": "http://s3"}, True),
        ({"spark.hadoop.fs.defaultFS": "hdfs://name"}, False),
        ({"spark.hadoop.fs.default.name": "hdfs://name"}, False),
        ({"spark.driver.extraClassPath": "/etc/hadoop/conf"}, False),
        ({"spark.driver.extraJavaOptions": "-Dspark.hadoop.fs.defaultFS=hdfs://name"}, False),
    ],
)
def test_a_property_that_may_set_another_file_system_is_seen(conf: dict[str, str], is_local: bool) -> None:
    assert plain_paths_are_local(SparkSection(conf=conf)) is is_local


@pytest.mark.parametrize("name", ["HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME"])
def test_a_folder_in_which_it_may_be_set_is_seen(monkeypatch: pytest.MonkeyPatch, name: str) -> None:
    monkeypatch.setenv(name, "/etc/hadoop/conf")
    assert not plain_paths_are_local(SparkSection())


def test_javas_own_options_are_seen(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g")
    assert plain_paths_are_local(SparkSection())
    monkeypatch.setenv("JAVA_TOOL_OPTIONS", "-Xmx1g -Dspark.hadoop.fs.defaultFS=hdfs://name")
    assert not plain_paths_are_local(SparkSection())
