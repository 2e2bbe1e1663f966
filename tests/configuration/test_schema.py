"""The JSON Schema takes what `load` takes, and documents every key."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from configuration.shorthand import ANY_TABLE, Load, complete
from configuration.shorthand import KAFKA as MINIMAL
from jsonschema import Draft202012Validator

from worker.commands.check import configuration_schema
from worker.configuration import Configuration, load

ALL_KEYS = Path(__file__).parents[1] / "data/configuration/all-keys.yaml"
DOCUMENTATION = Path(__file__).parents[2] / "docs/configuration.md"
KAFKA = {"bootstrap_servers": "localhost:9092", "group_id": "g", "topics": ["t"]}


@pytest.fixture(scope="module")
def schema() -> dict[str, Any]:
    return configuration_schema()


def said(schema: dict[str, Any], **keys: Any) -> list[str]:
    errors = Draft202012Validator(schema).iter_errors({"kafka": KAFKA, "tables": ANY_TABLE, **keys})
    return [error.message for error in errors]


def test_the_schema_is_a_schema(schema: dict[str, Any]) -> None:
    Draft202012Validator.check_schema(schema)
    assert schema["$schema"] == "https://json-schema.org/draft/2020-12/schema"


def test_a_file_with_every_key_is_taken_by_the_schema_and_by_load(schema: dict[str, Any], read: Load) -> None:
    text = ALL_KEYS.read_text()
    assert list(Draft202012Validator(schema).iter_errors(yaml.safe_load(text))) == []
    configuration = read(kafka=text)
    assert configuration.tables[0].handlers[1].options == {"url": "x"}


def test_the_file_with_every_key_has_every_key(schema: dict[str, Any]) -> None:
    data = yaml.safe_load(ALL_KEYS.read_text())
    assert data.keys() == schema["properties"].keys()
    for key, value in data.items():
        found = schema["properties"][key].get("$ref")
        if found and key not in ("spark", "kafka"):
            assert value.keys() == schema["$defs"][found.rpartition("/")[2]]["properties"].keys(), key
    table, with_expect = data["tables"]
    assert table.keys() | with_expect.keys() == schema["$defs"]["TableRule"]["properties"].keys()
    assert table["retry"].keys() == schema["$defs"]["RetryRule"]["properties"].keys()


@pytest.mark.parametrize(
    "keys",
    [
        {"batch": {"max_wait": "5"}},
        {"batch": {"max_wait": 5}},
        {"lanes": {"max_bytes": "5MB"}},
        {"lanes": {"count": "5"}},
        {"lanes": {"count": 0}},
        {"lanes": {"order_by": "tabel"}},
        {"lanez": {}},
        {"format": "xml"},
        {"checkpoint": {"initial": "soon"}},
        {"http": {"port": 70000}},
        {"tables": [{"match": "*"}]},
        {"tables": [{"match": "*", "handlers": []}]},
        {"tables": [{"match": "*", "handlers": [{"name": "x"}]}]},
        {"tables": [{"match": "*", "handlers": [{"type": "sprak"}]}]},
        {"tables": [{"match": "*", "handlers": [{"type": "spark", "mode": "changelog", "pth": "x"}]}]},
        {"tables": [{"match": "*", "handlers": [{"type": "log", "limit": {"calls": 0}}]}]},
        {
            "tables": [
                {"match": "*", "handlers": [{"type": "spark", "mode": "replica", "limit": {"rows": 1}}]}
            ]
        },
        {"spark": {"mastr": "local"}},
    ],
)
def test_an_editor_is_told_of_a_fault(schema: dict[str, Any], keys: dict[str, Any]) -> None:
    assert said(schema, **keys)


@pytest.mark.parametrize(
    "keys",
    [
        {"http": {"port": "${PORT:-8080}"}},
        {"http": None},
        {"http": "${HTTP}"},
        {"batch": {"max_wait": "${WAIT}", "max_records": "${RECORDS}"}},
        {"format": "${FORMAT}"},
        {"checkpoint": {"initial": "${INITIAL}"}},
        {"checkpoint": {"initial": {"t": {"0": 5}}}},
        {"checkpoint": {"initial": "2026-11-01T10:00:00Z"}},
        {"lanes": {"work_stealing": "${STEAL}", "order_by": "${ORDER}"}},
        {"tables": [{"match": "*", "handlers": [{"type": "a.b:C", "name": "x", "any": {"thing": 1}}]}]},
        {"tables": [{"match": "*", "handlers": [{"type": "spark", "name": "x", "mode": "changelog"}]}]},
        {
            "tables": [
                {"match": "*", "handlers": [{"type": "sql", "url": "x", "limit": {"calls": "${CALLS}"}}]}
            ]
        },
        {"tables": [{"match": "*", "handlers": [{"type": "log"}], "retry": {"max_attempts": None}}]},
    ],
)
def test_what_load_takes_is_no_fault(schema: dict[str, Any], keys: dict[str, Any]) -> None:
    assert said(schema, **keys) == []


def keys_of(schema: dict[str, Any]) -> Iterator[tuple[str, str, dict[str, Any]]]:
    for name, model in [("Configuration", schema), *schema["$defs"].items()]:
        for key, value in model.get("properties", {}).items():
            if isinstance(value, dict):
                yield name, key, value


def test_every_key_has_a_description(schema: dict[str, Any]) -> None:
    def described(value: dict[str, Any]) -> bool:
        section = schema["$defs"].get(value.get("$ref", "").rpartition("/")[2], {})
        return bool(value.get("description") or section.get("description"))

    assert [f"{name}.{key}" for name, key, value in keys_of(schema) if not described(value)] == []


def test_defaults_are_written_as_a_file_would_write_them(schema: dict[str, Any]) -> None:
    assert schema["$defs"]["CheckpointRule"]["properties"]["interval"]["default"] == "5s"
    assert schema["$defs"]["LanesRule"]["properties"]["max_bytes"]["default"] == "256MiB"
    for name, key, value in keys_of(schema):
        if value.get("default") is not None:
            bare = {"$defs": schema["$defs"], **value}
            assert Draft202012Validator(bare).is_valid(value["default"]), f"{name}.{key}"


def test_defaults_of_the_schema_are_those_of_the_model(schema: dict[str, Any]) -> None:
    """What an editor shows is what a configuration without the key means."""
    plain = Configuration.model_validate({"kafka": KAFKA, "tables": ANY_TABLE})
    defaults = {
        section: {
            key: value["default"]
            for key, value in schema["$defs"][model]["properties"].items()
            if "default" in value
        }
        for section, model in {
            "lanes": "LanesRule",
            "batch": "BatchRule",
            "checkpoint": "CheckpointRule",
            "http": "HttpRule",
            "logging": "LoggingRule",
        }.items()
    }
    written = Configuration.model_validate({"kafka": KAFKA, "tables": ANY_TABLE, **defaults})
    assert written.model_dump() == plain.model_dump()


def test_the_documentation_names_every_key(schema: dict[str, Any]) -> None:
    text = DOCUMENTATION.read_text()
    of_handlers = {"SparkSection", "SparkOptions", "DDLRules", "MergeOptions", "UpkeepOptions"}
    missing = [
        f"{name}.{key}"
        for name, key, _ in keys_of(schema)
        if name not in of_handlers and not name.endswith("Options") and f"`{key}`" not in text
    ]
    assert missing == []


def examples() -> list[str]:
    return [block.split("```")[0] for block in DOCUMENTATION.read_text().split("```yaml\n")[1:]]


@pytest.mark.parametrize("text", [text for text in examples() if not text.startswith("initial:")])
def test_an_example_of_the_documentation_can_be_used(folder: Path, text: str) -> None:
    (folder / "kafka-password").write_text("hunter2\n")
    path = folder / "shop.yaml"
    whole = text if "kafka:" in text else f"{MINIMAL}{text}"
    # These two name files of a machine that is not here.
    whole = whole.replace("/run/secrets/", "").replace("    ssl.ca.location: /etc/kafka/ca.pem\n", "")
    path.write_text(complete(whole))
    load(
        path,
        environment={"HOSTNAME": "shop-0", "MIRROR_URL": "http://localhost", "HTTP_TOKEN": "x" * 16},
        check_handlers=False,
    )


def test_every_initial_position_of_the_documentation_can_be_used(read: Load) -> None:
    (text,) = [text for text in examples() if text.startswith("initial:")]
    lines = text.splitlines()
    assert len(lines) == 4
    for line in lines:
        read(f"checkpoint:\n  {line}\n")
