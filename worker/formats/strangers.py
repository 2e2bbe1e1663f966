"""Hints for records that do not have their topic's format: who seems to have written them, and what to do.

A hint is made only for a record that is refused anyway, so a wrong guess does no harm to valid records."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import Any

from worker.formats.interface import UndecodableRecord
from worker.formats.json_values import JSON_ERRORS, read_json

_LAYOUT = "describe its records with format: json; docs/formats.md has a layout"


def _has(*names: str) -> Callable[[Mapping[str, Any]], bool]:
    wanted = frozenset(names)
    return lambda values: wanted <= values.keys()


_KNOWN: tuple[tuple[str, Callable[[Mapping[str, Any]], bool], str], ...] = (
    (
        "",
        _has("specversion", "type", "source", "id"),
        "it is a CloudEvents envelope: set the connector's value.converter to "
        f"org.apache.kafka.connect.json.JsonConverter, or {_LAYOUT}",
    ),
    ("", _has("op_type", "op_ts", "table"), f"it is a record of Oracle GoldenGate: {_LAYOUT}"),
    (
        "",
        _has("commitTs", "version", "type"),
        "it is a record of TiCDC's simple protocol: set protocol=canal-json, and format: canal",
    ),
    (
        "canal",
        lambda values: "isDdl" in values or "mysqlType" in values,
        "it is a Canal message: set `format: canal` for its topic",
    ),
    (
        "maxwell",
        lambda values: (
            "database" in values and ("data" in values or "def" in values) and "isDdl" not in values
        ),
        "it is a Maxwell record: set `format: maxwell` for its topic",
    ),
    (
        "debezium",
        lambda values: isinstance(values.get("source"), dict) and ("op" in values or "ddl" in values),
        "it is a Debezium record: set `format: debezium` for its topic",
    ),
    (
        "",
        _has("operationType", "ns", "documentKey"),
        "it is a change event of MongoDB's own connector: its documents are not rows, and are not read",
    ),
)
"""(format, test for its records, hint). The format is empty for writers that have none here."""


def hint_of(values: Mapping[str, Any], expected: str) -> str | None:
    """Guess the writer of a JSON object that does not have the format `expected`. None: it is unknown."""
    payload = values.get("payload")
    if isinstance(payload, dict) and "schema" in values:
        values = payload
    found = [(name, hint) for name, tells, hint in _KNOWN if tells(values)]
    # An object that also passes its own format's test is a record of that format.
    return None if not found or any(name == expected for name, _ in found) else found[0][1]


def hint_at(value: bytes, expected: str) -> str:
    """The hint for a record's value, as the end of an error: `; it is ...`. Empty if there is no hint."""
    try:
        values = read_json(value)
    except JSON_ERRORS:
        return ""
    hint = hint_of(values, expected) if isinstance(values, dict) else None
    return "" if hint is None else f"; {hint}"


_BINARY = {
    "canal": "neither JSON nor a Canal packet, but other binary data",
    "debezium": (
        "not JSON, but binary data; set value.converter=org.apache.kafka.connect.json.JsonConverter in the "
        "connector"
    ),
}


def stranger(value: bytes, what: str, error: Exception, expected: str = "") -> UndecodableRecord:
    """The error for a value that is not what its topic's format expects (`what`). `error`: the decoder's."""
    start = value[:64].lstrip()
    if not start:
        return UndecodableRecord(f"not a {what}: the value is empty")
    if not start.startswith((b"{", b"[", b'"')) and any(byte < 0x20 or byte > 0x7E for byte in start):
        return UndecodableRecord(_BINARY.get(expected, f"not a {what}, but binary data"))
    if isinstance(error, RecursionError):
        return UndecodableRecord(f"not a {what}: nested too deeply")
    return UndecodableRecord(f"not a {what}: {error}{hint_at(value, expected)}")
