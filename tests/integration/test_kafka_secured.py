"""Kafka over TLS, with certificates of clients, and with SCRAM: a real broker, an authority of its own."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.checkers import NothingLost, TableOrder
from integration.letters import binlane, letters
from integration.stage import Stage
from servers.own_authority import OwnAuthority
from servers.secured_broker import SecuredBroker

from worker.configuration import load
from worker.kafka.connection import Reached, reach_kafka

WAYS = ("TLS", "MTLS", "SCRAM")


@pytest.fixture(scope="module")
def secured(tmp_path_factory: pytest.TempPathFactory) -> Iterator[SecuredBroker]:
    with SecuredBroker(tmp_path_factory.mktemp("secured")) as broker:
        yield broker


@pytest.mark.parametrize("way", ["MTLS", "SCRAM"])
def test_a_worker_reads_commits_and_writes_letters(secured: SecuredBroker, way: str, tmp_path: Path) -> None:
    broker = secured.broker
    topic = broker.create_topic(f"cdc.{way}")
    broker.create_topic(f"{topic}.dead")
    stage = Stage(broker.bootstrap_servers, topic, 1, tmp_path)
    table = {"match": "*", "on_failure": "dead_letter", "retry": {"max_attempts": 1}}
    worker = stage.worker(
        tables=[table | {"handlers": [stage.recording(fail={"shop.t1": [0]})]}],
        dead_letter={"topic": f"{topic}.dead", "max_ratio": 1.0},
        properties=secured.properties(way),
    )
    worker.config["kafka"]["bootstrap_servers"] = secured.address(way)
    try:
        source = stage.source()
        source.insert("t0", records=100)
        source.flush()
        poison = stage.source()
        poison.insert("t1", records=1)
        poison.flush()
        worker.start()
        stage.wait_committed_to_the_end()
        assert len(letters(stage)) == 1
        assert worker.sigterm() == 0
        stage.check(NothingLost(source.rows), TableOrder())
        shown = binlane(worker, "checkpoint", "show", "CONFIG")
        assert (shown.returncode, shown.stderr) == (0, "")
        if way == "SCRAM":
            assert secured.password not in worker.log_text() + shown.stdout
    finally:
        stage.close()


def reached(folder: Path, address: str, properties: dict[str, Any], seconds: float = 4) -> Reached:
    """What `binlane check --connect` would tell of the brokers."""
    path = folder / "shop.yaml"
    kafka = {"bootstrap_servers": address, "group_id": "g", "topics": ["^t$"], "properties": properties}
    tables = [{"match": "*", "handlers": [{"type": "log"}]}]
    path.write_text(yaml.safe_dump({"kafka": kafka, "tables": tables}))
    return reach_kafka(load(path), seconds=seconds)[0]


@pytest.mark.parametrize("way", WAYS)
def test_check_reaches_it(secured: SecuredBroker, way: str, tmp_path: Path) -> None:
    found = reached(tmp_path, secured.address(way), secured.properties(way), seconds=60)
    assert (found.error, found.detail) == (None, "1 brokers")


def test_the_authority_may_be_a_file_beside_the_configuration(secured: SecuredBroker, tmp_path: Path) -> None:
    """As examples/kubernetes-shop/README.md says, where a mounted secret has it."""
    properties = secured.properties("SCRAM")
    (tmp_path / "kafka-ca.pem").write_bytes(Path(properties.pop("ssl.ca.location")).read_bytes())
    inline = properties | {"ssl.ca.pem": "${file:kafka-ca.pem}"}
    found = reached(tmp_path, secured.address("SCRAM"), inline, seconds=60)
    assert (found.error, found.detail) == (None, "1 brokers")
    (tmp_path / "kafka-ca.pem").write_bytes(OwnAuthority(tmp_path, "another").certificate.read_bytes())
    assert reached(tmp_path, secured.address("SCRAM"), inline).error is not None


def test_a_broker_of_another_authority_is_not_trusted(secured: SecuredBroker, tmp_path: Path) -> None:
    other = {"ssl.ca.location": str(OwnAuthority(tmp_path).certificate)}
    found = reached(tmp_path, secured.address("TLS"), secured.properties("TLS") | other)
    assert found.error is not None
    assert found.error.startswith("TLS failed: ")
    assert "certificate verify failed" in found.error


def test_a_broker_under_another_name_is_not_trusted(secured: SecuredBroker, tmp_path: Path) -> None:
    address = secured.address("TLS").replace("127.0.0.1", "localhost")
    found = reached(tmp_path, address, secured.properties("TLS"))
    assert found.error is not None
    assert found.error.startswith("TLS failed: ")


def test_a_client_without_a_certificate_is_not_let_in(secured: SecuredBroker, tmp_path: Path) -> None:
    found = reached(tmp_path, secured.address("MTLS"), secured.properties("TLS"))
    assert found.error is not None
    assert "certificate" in found.error


def test_a_client_with_a_certificate_of_another_authority_is_not_let_in(
    secured: SecuredBroker, tmp_path: Path
) -> None:
    pair = OwnAuthority(tmp_path, "another").client("shop")
    other = {"ssl.certificate.location": str(pair.certificate), "ssl.key.location": str(pair.key)}
    found = reached(tmp_path, secured.address("MTLS"), secured.properties("MTLS") | other)
    assert found.error is not None
    assert "certificate" in found.error


def test_a_wrong_password_is_told_and_not_shown(secured: SecuredBroker, tmp_path: Path) -> None:
    wrong = {"sasl.password": "not-the-password"}
    found = reached(tmp_path, secured.address("SCRAM"), secured.properties("SCRAM") | wrong)
    assert found.error is not None
    assert found.error.startswith("authentication failed: ")
    assert "not-the-password" not in found.error


def test_without_tls_nobody_is_let_in(secured: SecuredBroker, tmp_path: Path) -> None:
    assert reached(tmp_path, secured.address("TLS"), {}).error is not None
