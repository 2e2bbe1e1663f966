"""The configuration as the status page shows it: whole, and without a secret."""

from __future__ import annotations

import json
from pathlib import Path

import msgspec
import pytest

from worker.configuration import Configuration, load
from worker.configuration.secrets import MASK
from worker.configuration.shown import shown_settings
from worker.running.reloading import merge

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
_HEAD = "kafka: {bootstrap_servers: 'kafka:9092', group_id: shop, topics: [cdc.shop]}\n"
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
    assert found["tables[0].handlers[1].url"] == "https://hooks.example"
    assert found["tables[0].handlers[1].headers.X-Api-Key"] == MASK
    assert found["tables[1].handlers[0].url"] == MASK  # a short secret among more text
    assert found["http.token"] == MASK
    assert found["kafka.bootstrap_servers"] == "kafka:9092"  # a variable, but no secret


def of_handler(folder: Path, **options: object) -> tuple[dict[str, str], Configuration]:
    """What is shown of a handler with these keys, and the configuration that has it."""
    entry = {"type": "webhook", **options}
    text = f"{_HEAD}tables: {json.dumps([{'match': '*', 'handlers': [entry]}])}\n"
    configuration = read(folder, text)
    begin = "tables[0].handlers[0]."
    return {key.removeprefix(begin): value for key, value in shown(configuration).items()}, configuration


@pytest.mark.parametrize(
    ("url", "told"),
    [
        ("redis://:12345@cache:6379/0", f"redis://:{MASK}@cache:6379/0"),
        ("redis://:1@cache:6379/0", f"redis://:{MASK}@cache:6379/0"),
        ("redis://shop:12345@cache:6379/0", f"redis://shop:{MASK}@cache:6379/0"),
        ("redis://shop:12/ab@cache/0", f"redis://shop:{MASK}@cache/0"),
        ("postgresql://shop:1?2#3,4@db/shop", f"postgresql://shop:{MASK}@db/shop"),
        ("https://shop:12/ab@lake.example/x", f"https://shop:{MASK}@lake.example/x"),
        ("https://ghp_A1@host/", f"https://{MASK}@host/"),
        ("https://ghp_A1:@host/", f"https://{MASK}:@host/"),
        ("https://ghp_A1:x-oauth-basic@host/", f"https://{MASK}:{MASK}@host/"),
        ("redis://A1@cache", f"redis://{MASK}@cache"),
        ("https://f.example/x?code=A1&v=2", f"https://f.example/x?code={MASK}&v=2"),
        ("https://f.example/x?Key=A1", f"https://f.example/x?Key={MASK}"),
        ("https://f.example/x?v=1&signature=A1#y", f"https://f.example/x?v=1&signature={MASK}#y"),
    ],
)
def test_the_secrets_of_a_url_are_not_shown(tmp_path: Path, url: str, told: str) -> None:
    found, _ = of_handler(tmp_path, type="redis", url=url)
    assert found["url"] == told


@pytest.mark.parametrize(
    "url",
    [
        "http://host:8080/orders@v2",
        "spark://a:7077,b:7077",
        "redis://default@cache",
        "postgresql://reader@db/shop?sslkey=/run/client.key",
        "mysql+pymysql://reader@db:3306/shop",
        "abfss://box@lake.dfs.core.windows.net/x",
        "https://f.example/x?keys=2&codec=gzip",
    ],
)
def test_a_url_without_a_secret_is_shown_whole(tmp_path: Path, url: str) -> None:
    found, _ = of_handler(tmp_path, type="redis", url=url)
    assert found["url"] == url


@pytest.mark.parametrize(
    "url",
    [
        "https://me:w0rd@hooks.example/T0/B0/zz?x=1",
        "https://hooks.example",
        "https://hooks.example/{table}",
    ],
)
def test_of_a_webhook_its_origin_is_shown_and_no_header(tmp_path: Path, url: str) -> None:
    headers = {"X-Auth": "abc-1234", "Content-Type": "text/x", "X-Team": "Kind w0rds"}
    found, configuration = of_handler(tmp_path, url=url, headers=headers)
    assert found["url"] == "https://hooks.example"
    assert {found[f"headers.{name}"] for name in headers} == {MASK}
    assert configuration.secrets.redact("X-Auth abc-1234, text/x, Kind w0rds, w0rds") == (
        f"X-Auth {MASK}, text/x, {MASK}, {MASK}"
    )


@pytest.mark.parametrize("url", ["hooks.example/x", "//hooks", "x", "https://[hooks/x"])
def test_of_a_webhook_without_an_origin_nothing_is_shown(tmp_path: Path, url: str) -> None:
    found, _ = of_handler(tmp_path, url=url)
    assert found["url"] == MASK


def test_a_text_holds_no_token_of_a_webhooks_path_or_of_another_url(tmp_path: Path) -> None:
    _, hook = of_handler(tmp_path, url="https://hooks.example/services/T0AB/0a1b2c3d4e5f6a7b?v=1")
    text = "POST /services/T0AB/0a1b2c3d4e5f6a7b?v=1 0a1b2c3d4e5f6a7b services hooks.example"
    assert hook.secrets.redact(text) == f"POST {MASK} {MASK} services hooks.example"
    _, other = of_handler(tmp_path, type="redis", url="https://ghp_Ab12@host/x?code=a%2Fbc1")
    assert other.secrets.redact("ghp_Ab12 a%2Fbc1 a/bc1 host") == f"{MASK} {MASK} {MASK} host"
    _, digits = of_handler(tmp_path, type="redis", url="redis://:12345@cache:6379/0")
    assert digits.secrets.redact("AUTH 12345 6379") == f"AUTH {MASK} 6379"


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
