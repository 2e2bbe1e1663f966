"""The configuration as the status page shows it: whole, and without a secret."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pytest

from worker.configuration import Configuration, load
from worker.configuration.changes import merge
from worker.configuration.secrets import MASK
from worker.configuration.shown import shown_settings

_FILE = """
kafka:
  bootstrap_servers: ${SERVERS}
  group_id: shop
  topics: [cdc.shop]
  properties:
    sasl.username: binlane
    sasl.password: in-the-open
    sasl.oauthbearer.config: "user=x password=jaas-word"
    client.id: ${SHORT}
    ssl.key.password: ${file:key}
tables:
  - match: shop.*
    handlers:
      - {type: sql, url: "postgresql+psycopg://me:url-word@db/shop"}
      - type: webhook
        name: hook
        url: https://hooks.example/x?sig=query-word&v=1
        headers: {X-Api-Key: head-word}
    retry: {max_delay: 90s}
  - match: other.*
    handlers:
      - {type: redis, url: "redis://:${PIN}@cache:6379/0"}
http: {token: "a-token-of-twenty-chars"}
spark: {driver_memory: "${MEMORY}"}
"""
_SECRETS = (
    "in-the-open",
    "jaas-word",
    "key-word",
    "url-word",
    "query-word",
    "head-word",
    "a-token",
    "9f2",
    "7q",
)


@pytest.fixture
def configuration(tmp_path: Path) -> Configuration:
    return read(tmp_path, _FILE)


def read(folder: Path, text: str) -> Configuration:
    (folder / "key").write_text("key-word\n")
    (folder / "shop.yaml").write_text(text)
    environment = {"SERVERS": "kafka:9092", "SHORT": "9f2", "PIN": "7q", "MEMORY": "3g"}
    return load(folder / "shop.yaml", environment=environment, check_handlers=False)


def shown(configuration: Configuration) -> dict[str, str]:
    return {each.key: each.value for each in shown_settings(configuration)}


def test_no_secret_is_shown_wherever_it_comes_from(configuration: Configuration) -> None:
    told = msgspec.json.encode(shown_settings(configuration)).decode()
    for secret in _SECRETS:
        assert secret not in told


def test_secrets_are_masked_and_what_stands_beside_them_is_shown(configuration: Configuration) -> None:
    found = shown(configuration)
    assert found["kafka.properties.sasl.username"] == "binlane"
    assert found["kafka.properties.sasl.password"] == MASK
    assert found["kafka.properties.ssl.key.password"] == MASK
    assert found["kafka.properties.client.id"] == MASK  # a variable in a free section, too short to look for
    assert found["tables[0].handlers[0].url"] == f"postgresql+psycopg://me:{MASK}@db/shop"
    assert found["tables[0].handlers[1].url"] == f"https://hooks.example/x?sig={MASK}&v=1"
    assert found["tables[0].handlers[1].headers.X-Api-Key"] == MASK
    assert found["tables[1].handlers[0].url"] == MASK  # a short secret among more text
    assert found["http.token"] == MASK
    assert found["kafka.bootstrap_servers"] == "kafka:9092"  # a variable, but no secret


def test_defaults_are_shown_as_they_are_written_and_told_from_what_is_given(
    configuration: Configuration,
) -> None:
    given = {each.key: each.given for each in shown_settings(configuration)}
    found = shown(configuration)
    assert found["checkpoint.interval"] == "5s"
    assert found["lanes.max_bytes"] == "256MiB"
    assert found["checkpoint.journal.flush"] == "1m"
    assert found["tables[0].retry.max_delay"] == "90s"
    assert found["tables[0].handlers[1].name"] == "hook"
    assert found["dead_letter"] == "null"
    assert found["kafka.topics"] == "[cdc.shop]"
    assert given["tables[0].retry.max_delay"]
    assert given["http.token"]
    assert not given["tables[0].retry.multiplier"]
    assert not given["lanes.max_bytes"]


def test_what_a_reload_brings_is_hidden_as_well(configuration: Configuration, tmp_path: Path) -> None:
    new = read(tmp_path, _FILE.replace("url-word", "new-word").replace("max_delay: 90s", "max_delay: 80s"))
    configuration.secrets.learn(new.secrets)
    now = merge(configuration, new)
    assert shown(now)["tables[0].retry.max_delay"] == "80s"
    told = msgspec.json.encode(shown_settings(now)).decode()
    for secret in (*_SECRETS, "new-word"):
        assert secret not in told


def test_many_tables_are_cut_off_and_that_is_told(tmp_path: Path) -> None:
    rules = "".join(f"  - {{match: shop.t{n}, handlers: [{{type: log}}]}}\n" for n in range(300))
    found = shown_settings(read(tmp_path, _FILE.replace("tables:\n", f"tables:\n{rules}")))
    assert len(found) == 2_001
    assert found[-1].value == "further keys are not shown"
