"""The section schema_registry: its faults in one line each, its secrets, and what reaches the registry."""

from __future__ import annotations

from pathlib import Path

import pytest
from servers.schema_registry import schema_registry

from worker.configuration import ConfigurationError
from worker.configuration.doubts import doubts
from worker.configuration.loading import load
from worker.kafka.connection import reach_registry

HEAD = """
kafka: {bootstrap_servers: "localhost:9092", group_id: g, topics: [t]}
tables: [{match: "*", handlers: [{type: log}]}]
"""


def written(folder: Path, text: str) -> Path:
    path = folder / "shop.yaml"
    path.write_text(f"{HEAD}{text}\n")
    return path


@pytest.mark.parametrize(
    ("section", "told"),
    [
        ("{}", "schema_registry.url: missing"),
        ("{url: registry:8081}", "schema_registry.url: found"),
        ("{url: 'http://u:hunter22@registry'}", "schema_registry.url: found"),
        ("{url: 'ftp://registry'}", "allowed: a URL such as https://HOST:8081"),
        ("{url: 'http://registry', id_bytes: 5}", "schema_registry.id_bytes: found 5"),
        ("{url: 'http://registry', api: karapace}", "schema_registry.api: found"),
        (
            "{url: 'http://registry', bearer_token: abcdef, basic_auth: {username: u, password: hunter22}}",
            "allowed: basic_auth or bearer_token, not both",
        ),
        ("{url: 'http://registry', user: u}", "unknown key"),
    ],
)
def test_a_fault_of_it_is_told_in_one_line(tmp_path: Path, section: str, told: str) -> None:
    with pytest.raises(ConfigurationError) as error:
        load(written(tmp_path, f"format: debezium\nschema_registry: {section}"))
    [fault] = str(error.value).splitlines()
    assert told in fault
    assert "hunter22" not in fault


def test_without_records_of_debezium_it_is_told_to_be_of_no_use(tmp_path: Path) -> None:
    text = "schema_registry: {url: 'http://registry'}"
    [sentence] = doubts(load(written(tmp_path, f"format: canal\n{text}")))
    assert sentence.startswith("schema_registry is only used for the format debezium")
    assert list(doubts(load(written(tmp_path, f"format: {{t: debezium}}\n{text}")))) == []


def test_it_is_reached_and_what_keeps_it_from_that_is_told_without_a_secret(tmp_path: Path) -> None:
    with schema_registry() as registry:
        text = f"format: debezium\nschema_registry: {{url: '{registry.url}', bearer_token: hunter22}}"
        configuration = load(written(tmp_path, text))
        [answer] = reach_registry(configuration)
        assert (answer.target, answer.detail, answer.error) == (
            f"schema registry {registry.url}",
            "the API of confluent",
            None,
        )
        registry.needs = "Bearer another"
        [refused] = reach_registry(configuration)
        assert "answers 401" in str(refused.error)
        assert "hunter22" not in str(refused.error)
    [gone] = reach_registry(configuration)
    assert "ConnectError" in str(gone.error)
    assert reach_registry(load(written(tmp_path, "format: debezium"))) == []


def test_a_certificate_that_cannot_be_read_is_told(tmp_path: Path) -> None:
    text = "format: debezium\nschema_registry: {url: 'https://127.0.0.1:1', tls: {ca: missing.pem}}"
    [answer] = reach_registry(load(written(tmp_path, text)))
    assert "schema_registry.tls: a certificate cannot be read: ca (missing.pem): " in str(answer.error)
