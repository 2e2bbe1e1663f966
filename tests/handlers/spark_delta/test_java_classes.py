"""Java is asked for each class once."""

from __future__ import annotations

from typing import Any

import pytest
from py4j.java_gateway import JavaClass
from pyspark.sql import functions
from spark_sessions import SparkKeeper

from handlers.spark.runtime.java_process import java_class


@pytest.fixture
def session(spark_keeper: SparkKeeper) -> Any:
    return spark_keeper.get().fresh()


@pytest.fixture
def asked(session: Any, monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """The names that Java is asked for from now on."""
    names: list[str] = []
    client = session._jvm._gateway_client
    send = client.send_command

    def noted(command: str, *more: Any, **others: Any) -> Any:
        if command.startswith("r\nu\n"):  # reflection, unknown
            names.append(command.split("\n")[2])
        return send(command, *more, **others)

    monkeypatch.setattr(client, "send_command", noted)
    return names


def test_a_class_is_asked_for_once(session: Any, asked: list[str]) -> None:
    phaser = java_class(session, "java.util.concurrent.Phaser")
    assert isinstance(phaser, JavaClass)
    assert java_class(session, "java.util.concurrent.Phaser") is phaser
    assert asked == ["java.util.concurrent.Phaser"]
    assert phaser(3).getRegisteredParties() == 3


def test_pysparks_own_classes_are_asked_for_once(session: Any, asked: list[str]) -> None:
    assert session.range(1).select(functions.lit("a")).collect() == [("a",)]
    asked.clear()
    assert session.range(2).select(functions.lit("b")).collect() == [("b",), ("b",)]
    assert asked == []


def test_a_package_may_have_a_class_of_its_name_later(session: Any, asked: list[str]) -> None:
    for _ in range(2):
        assert not isinstance(java_class(session, "java.util"), JavaClass)
    assert asked == ["java.util", "java.util"]
