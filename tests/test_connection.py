"""Reaching Kafka and handlers' targets, on a real broker."""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from worker.configuration import Configuration
from worker.kafka.connection import reach_handlers, reach_kafka
from worker.local.broker import Broker
from worker.local.broker_settings import HOST, NODE, free_port

HANDLERS = """\
import threading
from handlers import Handler

never = threading.Event()

class Good(Handler):
    def handle(self, batch): ...
    def check(self, context):
        assert (context.worker, context.handler, context.lanes) == ("g", "fine", 16)

class Bad(Good):
    def check(self, context):
        raise TimeoutError("the target is away")

class Hanging(Good):
    def check(self, context):
        never.wait()

class Unmade(Good):
    def __init__(self):
        raise RuntimeError("not today")
"""


def configuration(servers: str, *topics: str, **keys: Any) -> Configuration:
    properties = keys.pop("properties", {})
    kafka = {
        "bootstrap_servers": servers,
        "group_id": "g",
        "topics": list(topics) or ["t"],
        "properties": properties,
    }
    tables = [{"match": "*", "handlers": [{"type": "log"}]}]
    return Configuration.model_validate({"kafka": kafka, "tables": tables, **keys})


def test_topics_that_are_there_are_told_with_their_partitions(
    broker: Broker, make_topic: Callable[..., str]
) -> None:
    first, second = make_topic(2), make_topic(3)
    cluster, *topics = reach_kafka(configuration(broker.bootstrap_servers, first, f"^{second}$"))
    assert (cluster.detail, cluster.error) == ("1 brokers", None)
    assert [(topic.detail, topic.error) for topic in topics] == [
        (f"{first} (2 partitions)", None),
        (f"{second} (3 partitions)", None),
    ]


def test_missing_topics_are_told_and_not_created(broker: Broker) -> None:
    asked = configuration(broker.bootstrap_servers, "no.such.topic", "^no_such")
    for _ in range(2):
        _, name, expression = reach_kafka(asked)
        assert name.error == "there is no such topic"
        assert expression.error == "no topic matches it yet"


def test_a_topic_that_no_format_is_given_for_is_told(broker: Broker, make_topic: Callable[..., str]) -> None:
    name = make_topic()
    asked = configuration(broker.bootstrap_servers, f"^{name}").model_copy(update={"format": {"x": "canal"}})
    _, topic = reach_kafka(asked)
    assert topic.error == f"no entry of format: matches {name}: its records are not read"


def test_a_missing_topic_of_ddl_is_told_too(broker: Broker, make_topic: Callable[..., str]) -> None:
    asked = configuration(broker.bootstrap_servers, make_topic())
    kafka = asked.kafka.model_copy(update={"ddl_topics": ["no.such.ddl"]})
    _, _, ddl = reach_kafka(asked.model_copy(update={"kafka": kafka}))
    assert (ddl.target, ddl.error) == ("topic no.such.ddl", "there is no such topic")


def test_an_unreachable_broker_is_told_with_its_reason_within_the_time() -> None:
    (answer,) = reach_kafka(configuration("127.0.0.1:1"), seconds=1)
    assert answer.error is not None
    assert answer.error.startswith("no answer within 1 s: ")
    assert "Connection refused" in answer.error


@pytest.fixture(scope="module")
def secured() -> Iterator[str]:
    """The address of a broker's listener that asks for a password: `hunter2` for the user `shop`."""
    port, sasl, controller = free_port(), free_port(), free_port()
    listeners = f"PLAINTEXT://{HOST}:{port},SASL://{HOST}:{sasl}"
    overrides = {
        "listeners": f"{listeners},CONTROLLER://{HOST}:{controller}",
        "advertised.listeners": listeners,
        "controller.quorum.voters": f"{NODE}@{HOST}:{controller}",
        "listener.security.protocol.map": "PLAINTEXT:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT",
        "listener.name.sasl.sasl.enabled.mechanisms": "PLAIN",
        "listener.name.sasl.plain.sasl.jaas.config": (
            'org.apache.kafka.common.security.plain.PlainLoginModule required user_shop="hunter2";'
        ),
    }
    with Broker(port=port, overrides=overrides) as node:
        node.create_topic("cdc.secured")
        yield f"{HOST}:{sasl}"


def with_password(password: str) -> dict[str, str]:
    return {
        "security.protocol": "sasl_plaintext",
        "sasl.mechanism": "PLAIN",
        "sasl.username": "shop",
        "sasl.password": password,
    }


def test_a_right_password_reaches_kafka(secured: str) -> None:
    answers = reach_kafka(configuration(secured, "cdc.secured", properties=with_password("hunter2")))
    assert [answer.error for answer in answers] == [None, None]


def test_a_wrong_password_is_told_as_such_and_not_waited_for(secured: str) -> None:
    begin = time.monotonic()
    (answer,) = reach_kafka(configuration(secured, "cdc.secured", properties=with_password("hunter3")))
    assert answer.error is not None
    assert answer.error.startswith("authentication failed: ")
    assert "Invalid username or password" in answer.error
    assert "hunter3" not in answer.error
    assert time.monotonic() - begin < 8


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.delitem(sys.modules, "targets", raising=False)
    (tmp_path / "targets.py").write_text(HANDLERS)
    return tmp_path


def test_each_handler_is_reached_once_and_a_hanging_one_is_left(folder: Path) -> None:
    def entry(name: str) -> dict[str, str]:
        return {"type": f"targets:{name}", "name": "fine"}

    names = ["Good", "Bad", "Hanging", "Unmade"]
    table = {"match": "*", "handlers": [entry(name) for name in names]}
    several = configuration("127.0.0.1:1", tables=[table, table])
    several.read_from(folder / "shop.yaml", several.secrets)
    answers = list(reach_handlers(several, seconds=0.5))
    assert [answer.error for answer in answers] == [
        None,
        "TimeoutError: the target is away",
        "no answer within 0.5 s",
        "targets:Unmade refused its options: RuntimeError: not today",
    ]
    assert all(thread.daemon for thread in threading.enumerate() if thread.name == "check-fine")
