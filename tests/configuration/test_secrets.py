"""A secret's value reaches no fault and no log."""

from __future__ import annotations

import json
from base64 import b64encode
from pathlib import Path
from urllib.parse import quote, quote_plus

import pytest
from configuration.shorthand import KAFKA, Faults, Load
from hypothesis import example, given, settings
from hypothesis import strategies as st

from worker.attempts.backoff import text_of
from worker.configuration import loading
from worker.configuration.secrets import Secrets, is_secret_key, passwords_in
from worker.configuration.shown import shown_settings


@pytest.mark.parametrize(
    "key",
    [
        "sasl.password",
        "ssl.key.password",
        "sasl.oauthbearer.client.secret",
        "ssl.key.pem",
        "sasl.jaas.config",
        "password",
        "DB_PASSWORD",
        "api_key",
        "auth_token",
        "Authorization",
        "proxy-authorization",
        "Cookie",
        "X-API-Key",
        "api-key",
        "apiKey",
        "access-key",
        "spark.hadoop.fs.s3a.access.key",
        "pwd",
        "pass",
        "DB_PASS",
        "fs.azure.account.key.shop.dfs.core.windows.net",
        "fs.azure.sas.lake.shop.blob.core.windows.net",
        "fs.s3a.encryption.key",
        "SharedAccessKey",
        "client_key",
        "x-functions-key",
        "Ocp-Apim-Subscription-Key",
        "bearer",
    ],
)
def test_some_keys_are_secret_by_their_name(key: str) -> None:
    assert is_secret_key(key)


@pytest.mark.parametrize(
    "key",
    [
        "client.id",
        "ssl.ca.location",
        "sasl.oauthbearer.token.endpoint.url",
        "topic",
        "key",
        "key_columns",
        "primary_key",
        "bypass",
        "compass",
        "sasl.mechanism",
        "fs.azure.account.auth.type",
        "account",
    ],
)
def test_other_keys_are_not(key: str) -> None:
    assert not is_secret_key(key)


@settings(max_examples=30)
@given(st.lists(st.text(min_size=4), min_size=1, max_size=4), st.text(), st.text())
def test_no_secret_is_left_in_a_text(secrets: list[str], before: str, after: str) -> None:
    redact = Secrets(secrets).redact
    for secret in secrets:
        assert secret not in redact(before + secret + after) or secret in redact(before + after) + "***"


@settings(max_examples=50)
@given(st.text(st.characters(min_codepoint=32, exclude_categories=["Cs"]), min_size=8))
@example("a'b\"c\\d e\n-----f\tgé€")
def test_no_secret_is_left_where_others_write_it_in_their_way(secret: str) -> None:
    redact = Secrets([secret]).redact
    error = ValueError(secret)
    for text in (
        json.dumps({"error": secret}),
        json.dumps([json.dumps({"error": secret})]),
        json.dumps(secret, ensure_ascii=False),
        repr(error),
        repr({"error": secret, "other": "it's"}),
        repr(secret.encode()),
        f"http://shop:{quote(secret, safe='')}@db/shop",
        f"?token={quote_plus(secret)}",
        f"SELECT '{secret.replace(chr(39), chr(39) * 2)}'",
        " ".join(f"denied: {secret}".split()),
    ):
        assert redact(text) != text, text
        for part in (secret, json.dumps(secret)[1:-1], repr(secret)[1:-1]):
            assert part not in redact(text) or part in redact(text.replace(part, ""))


@given(st.integers(5, 30))
def test_no_beginning_of_a_secret_is_left_where_a_text_is_cut(length: int) -> None:
    secret = "hunter-two-and-three-and-four-and-five"
    error = ValueError("x" * (500 - length) + secret)
    assert Secrets([secret]).redact(text_of(error)) == "x" * (500 - length) + "***..."


def test_a_cut_text_without_a_secret_stays_as_it_is() -> None:
    assert Secrets(["hunter2"]).redact("hunter... hunt.. hund...") == "***... hunt.. hund..."


def test_each_line_of_a_secret_of_several_lines_is_secret() -> None:
    key = "-----BEGIN PRIVATE KEY-----\nMIIEvQIBADAN\nBgkqhkiG9w0B\n-----END PRIVATE KEY-----\n"
    assert Secrets([key]).redact("line 3: BgkqhkiG9w0B is no key") == "line 3: *** is no key"
    assert Secrets([key]).redact(f"{key.strip()}!") == "***!"


def test_secrets_that_are_learned_later_are_known_to_all_who_redact() -> None:
    secrets = Secrets(["hunter2"])
    redact = secrets.redact
    secrets.learn(Secrets(["hunter3"]))
    assert redact("hunter2 hunter3") == "*** ***"


def test_a_secret_that_begins_with_another_is_taken_out_as_a_whole() -> None:
    assert Secrets(["hunter", "hunter2"]).redact("hunter2 hunter") == "*** ***"


def test_short_texts_are_left_in_words() -> None:
    assert Secrets(["at", ""]).redact("a cat") == "a cat"


def test_secrets_do_not_show_themselves() -> None:
    assert "hunter2" not in repr(Secrets(["hunter2"]))


def test_what_is_written_out_in_a_url_or_a_header_is_secret(read: Load) -> None:
    configuration = read(
        """
        tables:
          - match: '*'
            handlers:
              - {type: "neighbour:Copy", url: "redis://shop:hunt%40er2@cache:6379/0"}
              - {type: "neighbour:Copy", name: b, url: {Authorization: "Bearer abc-def"}}
        """,
    )
    text = "cache:6379 shop hunt%40er2 hunt@er2 abc-def Bearer"
    assert configuration.secrets.redact(text) == "cache:6379 shop *** *** *** Bearer"


def test_what_a_client_sends_of_user_and_password_is_secret(read: Load) -> None:
    configuration = read(
        """
        format: debezium
        schema_registry: {url: "http://host:8081", basic_auth: {username: reader, password: of-the-registry}}
        tables:
          - match: '*'
            handlers:
              - {type: "neighbour:Copy", url: "https://shop:hunter%202@host/x"}
              - {type: elasticsearch, url: "http://host:9200", username: writer, password: of-the-index}
        """,
    )
    for pair in ("shop:hunter 2", "reader:of-the-registry", "writer:of-the-index"):
        sent = b64encode(pair.encode()).decode()
        assert configuration.secrets.redact(f"Authorization: Basic {sent}") == "Authorization: Basic ***"
    sent = b64encode(b"me:of-the-registry").decode()
    assert Secrets(["me:of-the-registry"]).redact(f"Basic {sent}") == "Basic ***"


def test_a_column_may_have_a_secrets_name_and_what_is_done_to_it_is_none(read: Load) -> None:
    configuration = read(
        """
        masking: {secret: "0123456789 abcdef"}
        tables:
          - match: '*'
            columns:
              mask: {password: hash, api_key: {hash: {secret: "fedcba 9876543210"}}}
              cast: {auth_token: text}
              rename: {auth_token: proof}
            handlers: [{type: log}]
        """,
    )
    text = "hash text proof 0123456789 abcdef fedcba 9876543210"
    assert configuration.secrets.redact(text) == "hash text proof *** ***"
    settings = {one.key: one.value for one in shown_settings(configuration)}
    assert settings["tables[0].columns.cast.auth_token"] == "text"
    assert settings["tables[0].columns.mask.password.kind"] == "hash"
    assert settings["tables[0].columns.mask.api_key.secret"] == "***"


@pytest.mark.parametrize(
    "value",
    [
        "postgresql://shop@db/shop?password=hunter-2",
        "https://lake.example/box?sv=2024&sig=hunter-2",
        "AccountName=lake;AccountKey=hunter-2;EndpointSuffix=core.windows.net",
        "org.apache.kafka.ScramLoginModule required username='shop' password='hunter-2';",
        "host=db user=shop password=hunter-2",
    ],
)
def test_the_password_of_a_connection_string_is_secret(read: Load, value: str) -> None:
    handler = {"type": "neighbour:Copy", "url": value}
    configuration = read(f"tables: {json.dumps([{'match': '*', 'handlers': [handler]}])}")
    assert configuration.secrets.redact("shop db lake hunter-2") == "shop db lake ***"


def test_what_an_iceberg_catalog_is_reached_with_is_secret(read: Load) -> None:
    given = "{credential: 'id:s3cret-1', s3.secret-access-key: s3cret-2, uri: 'postgresql://u:s3cret-3@h/c'}"
    read_one = read(f"tables: [{{match: '*', handlers: [{{type: log}}]}}]\nspark: {{iceberg: {given}}}")
    told = read_one.secrets.redact("id:s3cret-1 s3cret-2 postgresql://u:s3cret-3@h/c")
    assert "s3cret" not in told
    assert "s3cret" not in json.dumps(shown_settings(read_one), default=str)


@pytest.mark.parametrize("start", ["http://", "rediss//", "redis:///"])
def test_a_fault_hides_the_password_of_a_url(faults: Faults, start: str) -> None:
    (told,) = faults(f"tables: [{{match: '*', handlers: [{{type: redis, url: '{start}a:hunter2@h/0'}}]}}]")
    assert f'found "{start}a:***@h/0"' in told


@pytest.mark.parametrize(
    ("text", "path"),
    [
        ("masking: hunter2-hunter2-hunter2", "masking"),
        ("schema_registry: {url: 'http://h:1', basic_auth: 'shop:hunter2'}", "schema_registry.basic_auth"),
    ],
)
def test_a_secret_in_the_place_of_its_section_is_not_told(faults: Faults, text: str, path: str) -> None:
    (told,) = faults(text)
    assert f"{path}: found ***; allowed: a mapping with the keys" in told
    assert "hunter2" not in told


def test_secret_values_are_known_to_the_configuration(read: Load, folder: Path) -> None:
    (folder / "key").write_text("from-a-file\n")
    configuration = read(
        """
        name: ${NAME}
        spark: {conf: {spark.hadoop.fs.s3a.secret.key: "written-out"}}
        checkpoint: {directory: "${file:key}"}
        tables:
          - match: '*'
            handlers:
              - {type: "neighbour:Copy", url: "postgresql://shop:${PASSWORD}@db/shop", retries: "${RETRIES}"}
        """,
        kafka=KAFKA + "  properties: {sasl.password: 12345678, client.rack: '${RACK}'}\n",
        NAME="a-worker",
        PASSWORD="from-a-variable",
        RETRIES="3",
        RACK="rack-7",
    )
    text = "a-worker written-out from-a-file from-a-variable 12345678 rack-7 3"
    assert configuration.secrets.redact(text) == "a-worker *** *** *** *** *** 3"


@pytest.mark.parametrize(
    ("text", "line"),
    [
        ("lanes: {order_by: '${VALUE}'}", "lanes.order_by: found ***; allowed: table, row"),
        ("http: {port: '${VALUE}'}", "http.port: found ***; allowed: a whole number"),
        (
            "format: ${VALUE}",
            "format: found ***; allowed: canal, debezium, maxwell, dts, json",
        ),
        ("format: {a: '${VALUE}'}", "format: found a mapping; allowed: canal, debezium, maxwell, dts, json"),
    ],
)
def test_a_fault_shows_stars_for_a_variable(faults: Faults, text: str, line: str) -> None:
    # Near enough to a right spelling that the hint would give it away.
    for value in ("canall", "eight", "tabl"):
        assert faults(text, VALUE=value) == [f"shop.yaml:5: {line}"]


def test_the_text_of_a_handlers_model_shows_no_variable(faults: Faults) -> None:
    text = "tables: [{match: '*', handlers: [{type: 'neighbour:Typed', password: x, size: %s}]}]"
    assert faults(text % "7") == ["shop.yaml:5: tables[0].handlers[0].size: found 7: 7 is odd"]
    block = """
        tables:
          - match: '*'
            handlers:
              - type: neighbour:Typed
                password: x
                size: ${SIZE}
        """
    assert faults(block, SIZE="7") == ["shop.yaml:11: tables[0].handlers[0].size: found ***: *** is odd"]


def test_a_handler_whose_type_comes_from_a_variable_is_told_without_it(faults: Faults) -> None:
    (told,) = faults("tables: [{match: '*', handlers: [{type: '${TYPE}'}]}]", TYPE="no_such_module:Thing")
    assert "no_such_module" not in told
    assert told.startswith("shop.yaml:5: tables[0].handlers[0].type: found ***: ")


@pytest.mark.parametrize(
    ("text", "passwords"),
    [
        ("redis://shop:pa/ss-word@cache:6379/0", ["pa/ss-word"]),
        ("postgresql://u:pa?ss#word@h/db", ["pa?ss#word"]),
        ("ftp://u:p@ss@host", ["p@ss"]),
        ("mongodb://a:first-pw@h1,mongodb://b:second-pw@h2", ["first-pw", "second-pw"]),
        ("redis://:only@cache", ["only"]),
        ("http://host:8080/orders@v2", []),
        ("http://host:8080", []),
    ],
)
def test_a_password_of_a_url_is_found_also_where_it_is_not_escaped(text: str, passwords: list[str]) -> None:
    assert list(passwords_in(text)) == passwords


def test_the_password_of_the_checkpoints_database_is_secret(read: Load) -> None:
    secrets = read("checkpoint: {url: 'postgresql://shop:hunt%40er2@db/shop'}").secrets
    for text in ("hunt%40er2", "no user with hunt@er2"):
        assert "er2" not in secrets.redact(text)


def test_a_header_for_the_collector_is_secret_whatever_its_name_is(read: Load, faults: Faults) -> None:
    text = 'tracing: {headers: {x-team: hunter22, Authorization: "Bearer ${TOKEN}"}}'
    configuration = read(text, TOKEN="s3cr3t-word")
    shown = configuration.secrets.redact("x-team hunter22, Bearer s3cr3t-word")
    assert shown == "x-team ***, ***"
    values = {each.key: each.value for each in shown_settings(configuration)}
    assert values["tracing.headers.x-team"] == values["tracing.headers.Authorization"] == "***"
    assert not any("hunter22" in each or "s3cr3t" in each for each in values.values())
    [fault] = faults('tracing: {headers: {x-team: "hunter22\\nx"}}')
    assert fault == (
        "shop.yaml:5: tracing.headers.x-team: found ***; allowed: a header value (ASCII, no line breaks)"
    )


@pytest.mark.parametrize("endpoint", ["collector:4318", "grpc://collector:4317", "http://", "http://a b"])
def test_a_collector_is_named_by_a_url(endpoint: str, faults: Faults) -> None:
    [fault] = faults(f"tracing: {{endpoint: '{endpoint}'}}")
    assert fault.startswith("shop.yaml:5: tracing.endpoint: found ")
    assert fault.endswith("allowed: a URL that begins with http:// or https://")


def test_tracing_without_its_packages_is_told_with_what_installs_them(
    faults: Faults, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(loading, "find_spec", lambda name: None)
    assert faults("tracing: {}") == [
        "shop.yaml:5: tracing: its packages are not installed: pip install '.[otel]' in binlane's folder"
    ]
