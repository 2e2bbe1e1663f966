"""Which file system paths without a scheme belong to: Hadoop's `fs.defaultFS`, if somebody has set it."""

from __future__ import annotations

import os
from importlib.util import find_spec
from pathlib import Path

from handlers.spark.section import SparkSection

_FOLDERS = ("HADOOP_CONF_DIR", "YARN_CONF_DIR", "SPARK_CONF_DIR", "SPARK_HOME", "SPARK_DIST_CLASSPATH")
"""Environment variables that point to files in which it may be set."""
_OPTIONS = (
    "JAVA_TOOL_OPTIONS",
    "JDK_JAVA_OPTIONS",
    "_JAVA_OPTIONS",
    "SPARK_SUBMIT_OPTS",
    "PYSPARK_SUBMIT_ARGS",
)
_NAMES = ("fs.default", "spark.driver.extraClassPath", "spark.driver.userClassPathFirst")
"""Texts to look for in keys and in Java's own options."""


def plain_paths_are_local(section: SparkSection) -> bool:
    """Whether nothing is found that points them elsewhere. Check True again when Spark has started."""
    if environment_has_files():
        return False
    texts = [os.environ.get(name, "") for name in _OPTIONS]
    for key, value in section.conf.items():
        texts += [key, str(value)] if key.endswith("JavaOptions") else [key]
    return not any(name in text for text in texts for name in _NAMES)


def environment_has_files() -> bool:
    """Whether the environment, or a folder beside pyspark, points Spark to files of settings or classes."""
    if any(os.environ.get(name) for name in _FOLDERS):
        return True
    found = find_spec("pyspark")
    return found is not None and found.origin is not None and Path(found.origin).with_name("conf").exists()
