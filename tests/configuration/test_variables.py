"""Variables and secret files in values."""

from __future__ import annotations

from pathlib import Path

import pytest
from configuration.shorthand import KAFKA, Faults, Load

FORMS = "${NAME}, ${NAME:-default}, ${file:/path} ($${ for the characters themselves)"


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("${A}", "alpha"),
        ("${A}-${B}", "alpha-2"),
        ("${MISSING:-other}", "other"),
        ("${EMPTY:-other}", "other"),
        ("${A:-other}", "alpha"),
        ("x${EMPTY}y", "xy"),
        ("'${A}'", "alpha"),
        ("$${A}", "${A}"),
        ("$A", "$A"),
        ("${REFERS}", "${A}"),
        ("${YAML}", "x: {y: [1]}"),
    ],
)
def test_a_variable_is_replaced(read: Load, written: str, meant: str) -> None:
    environment = {"A": "alpha", "B": "2", "EMPTY": "", "REFERS": "${A}", "YAML": "x: {y: [1]}"}
    assert read(f"name: {written}", **environment).name == meant


def test_a_value_that_is_one_variable_keeps_its_type(read: Load) -> None:
    configuration = read(
        """
        http:
          port: ${PORT:-8080}
        lanes: {count: "${COUNT}", processes: "${COUNT}", work_stealing: '${STEAL}'}
        """,
        COUNT="4",
        STEAL="false",
    )
    assert configuration.http is not None
    assert configuration.http.port == 8080
    assert (configuration.lanes.count, configuration.lanes.work_stealing) == (4, False)
    assert configuration.lanes.processes == 4


def test_a_variable_that_is_no_number_is_a_fault_where_a_number_is_wanted(faults: Faults) -> None:
    for value in ("four", "0x", "4.5", "04", "true", ""):
        assert faults('lanes: {count: "${COUNT}"}', COUNT=value) == [
            "shop.yaml:5: lanes.count: found ***; allowed: a whole number"
        ]


def test_a_quoted_variable_is_text_for_a_handler_without_a_model(read: Load) -> None:
    configuration = read(
        """
        tables:
          - match: '*'
            handlers:
              - type: neighbour:Copy
                url: "${NUMBER}"
                retries: ${NUMBER}
        """,
        NUMBER="5",
    )
    assert configuration.tables[0].handlers[0].options == {"url": "5", "retries": 5}


@pytest.mark.parametrize("value", ["123456", "0123", "true", "1e5", "null", "0x1F", "12:30"])
def test_text_stays_as_it_was_written_where_text_is_wanted(read: Load, value: str) -> None:
    configuration = read(
        """
        name: ${VALUE}
        tables:
          - {match: '*', handlers: [{type: "neighbour:Typed", password: "${VALUE}"}]}
        """,
        kafka=KAFKA + "  properties:\n    sasl.password: ${VALUE}\n",
        VALUE=value,
    )
    assert configuration.name == value
    assert configuration.kafka.properties == {"sasl.password": value}
    assert configuration.tables[0].handlers[0].options == {"password": value}


def test_an_unquoted_variable_of_a_handler_is_text_where_its_model_wants_text(read: Load) -> None:
    configuration = read(
        """
        tables:
          - match: '*'
            handlers:
              - type: neighbour:Typed
                password: ${PASSWORD}
                size: ${SIZE}
        """,
        PASSWORD="123456",
        SIZE="4",
    )
    assert configuration.tables[0].handlers[0].options == {"password": "123456", "size": 4}


def test_a_secret_file_is_read_without_its_last_line_break(read: Load, folder: Path) -> None:
    (folder / "secret").write_text("pass word\n\n")
    assert read("name: ${file:secret}").name == "pass word\n"
    assert read(f"name: ${{file:{folder}/secret}}").name == "pass word\n"


@pytest.mark.parametrize(
    ("written", "told"),
    [
        (
            "${NAME_OF_IT}",
            "the environment variable NAME_OF_IT is not set; "
            "allowed: set it, or give a default: ${NAME_OF_IT:-default}",
        ),
        ("a${", f"found ${{ without }}; allowed: {FORMS}"),
        ("'${}'", f"found ${{...}} without a variable's name; allowed: {FORMS}"),
        ("'${a b}'", f"found ${{...}} without a variable's name; allowed: {FORMS}"),
    ],
)
def test_a_variable_that_cannot_be_replaced_is_a_fault(faults: Faults, written: str, told: str) -> None:
    assert faults(f"name: {written}") == [f"shop.yaml:5: name: {told}"]


def test_a_file_that_cannot_be_read_is_a_fault(faults: Faults, folder: Path) -> None:
    (told,) = faults("name: ${file:secret}")
    assert told == (
        "shop.yaml:5: name: the file secret cannot be read (No such file or directory); "
        "allowed: a readable file"
    )
    (folder / "secret").write_bytes(b"\xff")
    assert faults("name: ${file:secret}") == [
        "shop.yaml:5: name: the file secret is not UTF-8 text; allowed: a text file"
    ]


def test_a_variable_in_a_key_is_a_fault(faults: Faults) -> None:
    (told,) = faults("${A}: 1", A="name")
    assert told == "shop.yaml:5: ${A}: found ${...} in a key; allowed: variables in values only"


def test_a_mapping_may_take_in_another(read: Load) -> None:
    configuration = read(
        """
        tables:
          - &usual
            match: a.*
            batch: {max_records: 5}
            handlers: [{type: "neighbour:Copy", url: x}]
          - <<: *usual
            match: b.*
        """
    )
    assert [rule.match for rule in configuration.tables] == ["a.*", "b.*"]
    assert [rule.batch.max_records for rule in configuration.tables] == [5, 5]
