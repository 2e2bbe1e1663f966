"""Spark's properties: for a Spark of our own, and for a session at a Connect server. Whose
paths without a scheme are: Hadoop's `fs.defaultFS`, if somebody has set it."""

from __future__ import annotations

import ipaddress
import os
import re
from importlib.util import find_spec
from pathlib import Path

from handlers.spark.locations import location
from handlers.spark.options import SparkSection
from handlers.spark.runtime.jars import delta_jars, resolve
from handlers.spark.table_ref import as_texts

_SESSION = {
    "spark.sql.session.timeZone": "UTC",
    # Statements contain values, and `${env:X}` in a value must stay unchanged.
    "spark.sql.variable.substitute": "false",
    # Spark's default counts nanoseconds from 1970, for readers other than Spark. Those misread years before
    # 1678 and after 2261.
    "spark.sql.parquet.outputTimestampType": "TIMESTAMP_MICROS",
    # Number of tasks that read a table's log. Delta's default of 50 makes a small merge 5-10 times slower.
    "spark.databricks.delta.snapshotPartitions": "1",
    # Any table may get a datetime column, and Delta does not add this feature to existing tables.
    "spark.databricks.delta.properties.defaults.feature.timestampNtz": "supported",
    # The most tasks for listing merged segments and VACUUM's folders. Spark's default is one each, up to
    # 10,000.
    "spark.sql.sources.parallelPartitionDiscovery.parallelism": "16",
}
# The heap keeps what web pages show, even without pages: enough for the last merges of a few tables.
_RETAINED = {
    "spark.ui.retainedJobs": "100",
    "spark.ui.retainedStages": "100",
    "spark.ui.retainedTasks": "1000",
    "spark.sql.ui.retainedExecutions": "50",
    "spark.ui.retainedDeadExecutors": "10",
}
_CONF_FILES = frozenset(("SPARK_CONF_DIR", "SPARK_HOME"))
"""Where Spark looks for spark-defaults.conf."""
_UI = {
    "spark.ui.enabled": "true",
    "spark.ui.killEnabled": "false",
    # If 4040 is taken, use the next free port: several workers may share a machine.
    "spark.port.maxRetries": "64",
}
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


def spark_conf(section: SparkSection, folder: Path, name: str) -> dict[str, str]:
    """Return the properties of a Spark whose driver runs here. Relative places start at `folder`.

    Raises JarsError, and JavaError if jars must be resolved."""
    jars = delta_jars()
    if section.packages:
        known = {jar.name for jar in jars}
        jars += [jar for jar in resolve(section.packages, kind="spark") if jar.name not in known]
    conf = {
        "spark.master": section.master,
        "spark.app.name": name,
        "spark.driver.memory": section.driver_memory,
        "spark.jars": ",".join(map(str, jars)),
        "spark.sql.extensions": "io.delta.sql.DeltaSparkSessionExtension",
        "spark.sql.catalog.spark_catalog": "org.apache.spark.sql.delta.catalog.DeltaCatalog",
        "spark.sql.warehouse.dir": location(section.warehouse, folder),
        **_SESSION,
        # First come, first served: fair pools only delay each of several merges.
        "spark.scheduler.mode": "FIFO",
        "spark.ui.showConsoleProgress": "false",
        "spark.log.level": "WARN",
        **_RETAINED,
        **(_UI if section.ui else {"spark.ui.enabled": "false"}),
    }
    if is_local(section.master):
        # Batches are small, so more partitions only cost time. On a cluster, Spark's default and AQE decide.
        conf["spark.sql.shuffle.partitions"] = "2"
        conf["spark.sql.sources.parallelPartitionDiscovery.parallelism"] = "2"
    if on_loopback(section.master):
        conf["spark.driver.host"] = conf["spark.driver.bindAddress"] = "127.0.0.1"
    joined = ("spark.jars", "spark.sql.extensions")
    for key, text in as_texts(section.conf).items():
        conf[key] = f"{conf[key]},{text}" if key in joined else text
    return conf


def session_conf(section: SparkSection) -> dict[str, str]:
    """Return the properties of a session at a Connect server. All others are the server's own."""
    return {**_SESSION, **as_texts(section.conf)}


def has_table_defaults(section: SparkSection) -> bool:
    """Whether Spark may give new tables properties that are not binlane's: from its configuration, or from a
    file that only Spark reads."""
    elsewhere = section.remote is not None or not _CONF_FILES.isdisjoint(os.environ)
    return elsewhere or any(key.startswith("spark.databricks.delta.") for key in section.conf)


def is_local(master: str) -> bool:
    """Whether the executors are threads of the driver."""
    return master.startswith("local") and not master.startswith("local-cluster")


def on_loopback(master: str) -> bool:
    """Whether driver and executors need only this machine's own network."""
    if master.startswith("local"):
        return True
    hosts = re.fullmatch(r"spark://(.+)", master)
    return hosts is not None and all(map(_is_loopback, hosts[1].split(",")))


def _is_loopback(address: str) -> bool:
    host = address.rpartition(":")[0].strip("[]") or address
    if host == "localhost":
        return True
    try:
        return ipaddress.ip_address(host).is_loopback
    except ValueError:  # a host name may lead anywhere
        return False


def plain_paths_are_local(section: SparkSection) -> bool:
    """Whether nothing is found that points them elsewhere. Check True again when Spark has started."""
    if _environment_has_files():
        return False
    texts = [os.environ.get(name, "") for name in _OPTIONS]
    for key, value in section.conf.items():
        texts += [key, str(value)] if key.endswith("JavaOptions") else [key]
    return not any(name in text for text in texts for name in _NAMES)


def _environment_has_files() -> bool:
    """Whether the environment, or a folder beside pyspark, points Spark to files of settings or classes."""
    if any(os.environ.get(name) for name in _FOLDERS):
        return True
    found = find_spec("pyspark")
    return found is not None and found.origin is not None and Path(found.origin).with_name("conf").exists()
