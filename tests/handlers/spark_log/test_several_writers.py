"""A place in which two workers could undo each other's commits is refused, with its reason."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import pytest
from spark_sessions import SparkKeeper

from handlers.spark.log.store_choice import UnsafeForSeveral, check_several_writers
from handlers.spark.options import SparkSection
from handlers.spark.runtime.session import SharedSpark


@pytest.fixture(scope="module")
def shared(spark_keeper: SparkKeeper) -> SharedSpark:
    return spark_keeper.get()


@pytest.fixture
def spark(shared: SharedSpark) -> Any:
    """With settings of its own."""
    section = SparkSection.model_validate({})
    return SimpleNamespace(session=shared.session.newSession(), section=section, is_classic=True)


@pytest.mark.parametrize("scheme", ["s3", "s3a"])
def test_delta_s_log_store_for_one_driver_is_refused_on_s3(spark: Any, scheme: str) -> None:
    said = rf"^{scheme}://lake/shop: .*S3SingleDriverLogStore .*lost.*single_writer: true.*{scheme}\.impl"
    with pytest.raises(UnsafeForSeveral, match=said):
        check_several_writers(f"{scheme}://lake/shop", spark)


@pytest.mark.parametrize("key", ["spark.delta.logStore.class", "spark.delta.logStore.s3a.impl"])
def test_a_log_store_for_several_clusters_is_taken_on_s3_and_no_other(spark: Any, key: str) -> None:
    spark.session.conf.set(key, "io.delta.storage.S3DynamoDBLogStore")
    check_several_writers("s3a://lake/shop", spark)
    spark.session.conf.set(key, "io.delta.storage.GCSLogStore")
    with pytest.raises(UnsafeForSeveral, match="GCSLogStore checks"):
        check_several_writers("s3a://lake/shop", spark)


def test_a_promise_of_one_writer_is_believed(spark: Any) -> None:
    spark.section = SparkSection.model_validate({"single_writer": True})
    check_several_writers("s3a://lake/shop", spark)
    check_several_writers("oss://lake/shop", spark)


def test_stores_in_which_one_rename_wins_need_no_promise(spark: Any) -> None:
    for place in (
        "hdfs://nn/lake",
        "abfss://lake@shop.dfs.core.windows.net/",
        "gs://lake",
        "file:/lake",
        "/lake",
    ):
        check_several_writers(place, spark)
    with pytest.raises(UnsafeForSeveral, match=r"that is unknown for oss:"):
        check_several_writers("oss://lake/shop", spark)


def test_a_plain_path_is_judged_by_the_store_that_it_belongs_to(spark: Any) -> None:
    spark.session.conf.set("fs.defaultFS", "oss://lake")
    with pytest.raises(UnsafeForSeveral, match=r"^/shop: .*for oss:"):
        check_several_writers("/shop", spark)
