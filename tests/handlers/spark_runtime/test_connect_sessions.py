"""A Spark Connect server: used, killed and found again."""

from __future__ import annotations

import gc
import io
import re
import subprocess
import sys
import threading
import weakref
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import obstore
import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark.errors import PySparkException
from servers.s3_server import S3Server
from servers.spark_cluster import ConnectNode, eventually
from spark_sessions import SparkKeeper

from handlers import HandlerContext, TargetUnavailable
from handlers.spark import SparkHandler
from handlers.spark.engine.table.judging import first_refused
from handlers.spark.log.store_choice import UnsafeForSeveral
from handlers.spark.log.stores.interface import FilesError, StoreOverwrites
from handlers.spark.options import SparkSection
from handlers.spark.runtime import connect, errors, versions
from handlers.testing import make_batch, opened
from worker.configuration import load
from worker.kafka.connection import reach_handlers

FUNCTION = """
from pyspark.sql import functions as F

def upper(frame, batch):
    frame.select(F.upper("name").alias("name"), "_offset").write.format("delta").mode("append").save(PLACE)
"""


@pytest.fixture(autouse=True, scope="module")
def _no_other(spark_keeper: SparkKeeper) -> None:
    """A process has one Spark: beside a classic one, no handler would go to the server."""
    spark_keeper.stop()


@pytest.fixture
def spark(connect_server: ConnectNode, tmp_path: Path) -> Iterator[Any]:
    from handlers.spark.runtime.session import SharedSpark

    shared = SharedSpark(SparkSection.model_validate(connect_server.section()), tmp_path, "test")
    yield shared
    shared.stop()


def fails(spark: Any, session: Any) -> None:
    """A statement, as a handler runs it."""
    try:
        session.sql("SELECT 1").collect()
    except Exception as error:
        spark.stop_worker_if_gone(error)
        raise


@pytest.mark.soak  # the server, cold, takes half a minute of CPU for its first MERGE
def test_delta_tables_are_written_and_read_in_sessions_with_settings_of_their_own(
    spark: Any, connect_server: ConnectNode, tmp_path: Path
) -> None:
    one, two = spark.fresh(), spark.fresh()
    assert not spark.is_classic
    one.conf.set("spark.databricks.delta.commitInfo.userMetadata", "mine")
    assert two.conf.get("spark.databricks.delta.commitInfo.userMetadata", "none") == "none"
    assert two.conf.get("spark.sql.session.timeZone") == "UTC"
    rows = pa.table({"id": [1, 2], "name": ["a", "b"]})
    one.createDataFrame(rows).write.format("delta").save(str(tmp_path / "t"))
    two.createDataFrame(rows).createOrReplaceTempView("changed")
    two.sql(
        f"MERGE INTO delta.`{tmp_path}/t` t USING changed s ON t.id = s.id + 1 "
        "WHEN MATCHED THEN UPDATE SET t.name = s.name WHEN NOT MATCHED THEN INSERT *"
    )
    found = spark.session.read.format("delta").load(str(tmp_path / "t")).orderBy("id", "name").collect()
    assert [tuple(row) for row in found] == [(1, "a"), (2, "a"), (2, "b")]
    status = {"master": spark.section.remote, "version": connect_server.version, "ui": None, "up": True}
    assert spark.status() == status


def test_an_error_is_told_without_stack_plan_or_grpc(spark: Any) -> None:
    with pytest.raises(Exception, match="nope") as caught:
        spark.session.sql("SELECT nope FROM range(1)").collect()
    spark.stop_worker_if_gone(caught.value)  # nothing is gone
    told = errors.told(caught.value)
    assert told.startswith("AnalysisException: [UNRESOLVED_COLUMN")
    assert "Project" not in told
    assert "\n" not in told


def test_rows_that_were_judged_are_not_kept(spark: Any) -> None:
    """PySpark keeps each frame of a Connect server that it was asked whether it is empty."""
    frame = spark.session.createDataFrame(pa.table({"_binlane_place": [0, 1], "n": [1, 2]}))
    rows = weakref.ref(frame._plan)
    assert first_refused(frame, 2, {"CHECK n": "n > 0"}) is None
    assert first_refused(frame, 2, {"CHECK n": "n > 1"}) == (0, "CHECK n")
    del frame
    gc.collect()
    assert rows() is None


@pytest.mark.soak
def test_a_killed_server_makes_batches_wait_and_is_found_again(
    spark: Any, connect_server: ConnectNode, tmp_path: Path
) -> None:
    kept = spark.fresh()
    place = tmp_path / "upper"
    (tmp_path / "connect_function.py").write_text(FUNCTION.replace("PLACE", repr(str(place))))
    handler = SparkHandler(mode="function", function="connect_function:upper")
    with opened(handler, tmp_path, spark=connect_server.section()):
        handler.handle(make_batch("shop.t", [{"id": 1, "name": "a"}], key="id", offset=1))

        with killed_in_mid_query(spark, connect_server):
            pass
        with pytest.raises(TargetUnavailable, match=f"{connect_server.url} does not answer: .*refused"):
            fails(spark, kept)
        with pytest.raises(TargetUnavailable):
            spark.renewed(kept)
        assert not spark._place.alive()
        assert spark.status()["up"] is False
        later = make_batch("shop.t", [{"id": 2, "name": "b"}], key="id", offset=2)
        with pytest.raises(TargetUnavailable):
            handler.handle(later)

        connect_server.start()
        eventually(spark.alive, "the server is found again", within=10)
        renewed = spark.renewed(kept)
        assert renewed is not kept
        fails(spark, renewed)  # does not raise
        assert spark.renewed(renewed) is renewed
        handler.handle(later)
    found = spark.session.read.format("delta").load(str(place)).orderBy("_offset").collect()
    assert [tuple(row) for row in found] == [("A", 1), ("B", 2)]


@contextmanager
def killed_in_mid_query(spark: Any, server: ConnectNode) -> Iterator[None]:
    """A query that would take hours ends with the server."""
    raised: list[Exception] = []

    def query() -> None:
        try:
            spark.fresh().sql("SELECT count(*) FROM range(1000000000000) WHERE id % 7 = 3").collect()
        except Exception as error:
            raised.append(error)

    thread = threading.Thread(target=query)
    thread.start()
    thread.join(2)
    assert thread.is_alive()
    server.kill()
    yield
    thread.join(30)
    with pytest.raises(TargetUnavailable):
        spark.stop_worker_if_gone(raised[0])


def test_a_session_that_the_server_has_forgotten_is_replaced(spark: Any) -> None:
    kept, other = spark.fresh(), spark.fresh()
    twin: Any = type(kept)(spark._place._builder())
    twin.client._session_id = kept.client._session_id
    twin.client.release_session()  # as the server does with one that idled for an hour
    with pytest.raises(TargetUnavailable, match="has forgotten the session"):
        fails(spark, kept)
    fails(spark, spark.renewed(kept))
    fails(spark, spark.renewed(other))


def test_check_reaches_the_server_and_tells_when_there_is_none(
    connect_server: ConnectNode, tmp_path: Path
) -> None:
    (tmp_path / "checked.py").write_text("def f(frame, batch): ...")
    for remote, expected in ((connect_server.url, None), ("sc://127.0.0.1:1", "127.0.0.1:1 does not answer")):
        config = tmp_path / "binlane.yaml"
        config.write_text(
            "kafka: {bootstrap_servers: 'b:1', group_id: g, topics: [t]}\nformat: canal\n"
            "tables: [{match: '*', handlers: [{type: spark, mode: function, function: 'checked:f'}]}]\n"
            f"spark: {{remote: '{remote}'}}\n"
        )
        [reached] = reach_handlers(load(config))
        assert (reached.error is None) == (expected is None)
        assert (expected or "") in (reached.error or "")


def test_a_property_of_the_server_cannot_be_set_for_a_session(
    connect_server: ConnectNode, tmp_path: Path
) -> None:
    from handlers.spark.runtime.session import SharedSpark

    section = connect_server.section(**{"spark.sql.warehouse.dir": "/elsewhere"})
    shared = SharedSpark(SparkSection.model_validate(section), tmp_path, "test")
    try:
        with pytest.raises(RuntimeError, match=r"spark\.sql\.warehouse\.dir cannot be set for a session"):
            shared.fresh()
    finally:
        shared.stop()


def test_a_server_of_another_spark_is_refused_with_the_pairs_that_work(
    spark: Any, connect_server: ConnectNode, monkeypatch: pytest.MonkeyPatch
) -> None:
    version = connect_server.version
    narrower = {known: own for known, own in versions.LIBRARIES.items() if not version.startswith(known)}
    assert len(narrower) == len(versions.LIBRARIES) - 1
    monkeypatch.setattr(versions, "LIBRARIES", narrower)
    told = f"spark.remote: binlane knows no Delta for Spark {version}. These pairs work: Spark 4."
    with pytest.raises(RuntimeError, match=re.escape(told)):
        spark.fresh()
    monkeypatch.undo()
    monkeypatch.setattr(connect.metadata, "version", lambda package: "4.3.0")
    with pytest.raises(RuntimeError, match=rf"spark.remote: .* {version} is older than pyspark 4\.3\.0"):
        spark.fresh()
    monkeypatch.undo()
    assert spark.fresh().version == version


def test_a_worker_may_open_before_its_server_runs(tmp_path: Path) -> None:
    from handlers.spark.runtime.session import SharedSpark

    remote = "sc://127.0.0.1:1/;token=never-in-an-error"
    shared = SharedSpark(SparkSection.model_validate({"remote": remote}), tmp_path, "test")
    try:
        with pytest.raises(TargetUnavailable) as caught:
            _ = shared.session
        assert "never-in-an-error" not in str(caught.value) + str(shared.status())
        wrapped = PySparkException("as pyspark 4.0 raises it", "RETRIES_EXCEEDED", {})
        wrapped.__cause__ = caught.value.__cause__
        with pytest.raises(TargetUnavailable, match=re.escape(str(caught.value))):
            shared.stop_worker_if_gone(wrapped)
    finally:
        shared.stop()


def test_without_the_extra_packages_the_error_says_what_to_install(tmp_path: Path) -> None:
    script = f"""
import sys
sys.modules["grpc"] = None  # as if it were not installed
from pathlib import Path
from handlers.spark.options import SparkSection
from handlers.spark.runtime.session import SharedSpark
try:
    SharedSpark(SparkSection.model_validate({{"remote": "sc://here"}}), Path({str(tmp_path)!r}), "test")
except RuntimeError as error:
    print(error)
"""
    done = subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, check=True)
    assert "pip install '.[connect]' in binlane's folder" in done.stdout


@pytest.fixture
def bucket(s3: S3Server, monkeypatch: pytest.MonkeyPatch) -> Iterator[str]:
    for name, value in s3.environment.items():
        monkeypatch.setenv(name, value)
    yield s3.new_bucket()
    s3.honest()


def refused(handler: SparkHandler, section: dict[str, Any], folder: Path) -> list[Exception]:
    """What a start, and `binlane check --connect`, say."""
    found: list[Exception] = []
    for attempt in (handler.open, handler.check):
        with pytest.raises(FilesError) as told:
            attempt(HandlerContext(worker="test", handler="spark", folder=folder, spark=section))
        found.append(told.value)
    return found


def test_a_batch_is_put_in_s3_once(
    s3: S3Server, bucket: str, connect_server: ConnectNode, tmp_path: Path
) -> None:
    section = {**connect_server.section(), "warehouse": f"s3a://{bucket}/lake"}
    batch = make_batch("shop.orders", [{"id": 1}, {"id": 2}], key="id", offset=7)
    for _ in range(2):  # as after a crash before the commit
        with opened(SparkHandler(mode="changelog", format="parquet"), tmp_path, spark=section) as handler:
            handler.handle(batch)
    client = s3.client(bucket)
    names = [one["path"] for page in obstore.list(client, "lake/shop") for one in page]
    assert names == [f"lake/shop/orders/{1:020d}.parquet"]
    found = pq.read_table(io.BytesIO(bytes(obstore.get(client, names[0]).bytes())))
    assert found["id"].to_pylist() == [1, 2]


def test_a_store_that_overwrites_is_refused_at_the_start_and_by_check(
    s3: S3Server, bucket: str, connect_server: ConnectNode, tmp_path: Path
) -> None:
    s3.ignores_conditions = True
    section = {**connect_server.section(), "warehouse": f"s3a://{bucket}/lake"}
    for error in refused(SparkHandler(mode="changelog", format="parquet"), section, tmp_path):
        assert isinstance(error, StoreOverwrites)
    assert obstore.list(s3.client(bucket)).collect() == []


def test_delta_tables_in_s3_are_refused_without_the_promise_of_one_writer(
    bucket: str, connect_server: ConnectNode, tmp_path: Path
) -> None:
    section = {**connect_server.section(), "warehouse": f"s3a://{bucket}/lake"}
    for error in refused(SparkHandler(mode="replica"), section, tmp_path):
        assert isinstance(error, UnsafeForSeveral)
    with opened(SparkHandler(mode="replica"), tmp_path, spark={**section, "single_writer": True}):
        pass
