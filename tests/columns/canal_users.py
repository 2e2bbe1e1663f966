"""A table `shop.users` as Canal tells of it, whose hidden columns hold `hidden-...` everywhere."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from typing import Any, cast

from confluent_kafka import Message

from handlers import Batch, Change
from worker.column_rules.applying import bring_under
from worker.configuration import TableRule
from worker.formats.interface import Record
from worker.formats.registry import get

__all__ = ["HIDDEN", "HISTORY", "RULES", "batches"]

HIDDEN = "hidden-"
RULES: dict[str, Any] = {
    "columns": {
        "exclude": ["SSN", "ssn2"],
        "rename": {"name": "full_name"},
        "mask": {"email": "hash", "phone": {"partial": {"last": 2}}},
        "add": {"origin": "topic"},
    },
    "filter": "state = 'active' OR state IS NULL",
}
_TYPES = {
    "id": "int",
    "email": "varchar(90)",
    "ssn": "varchar(20)",
    "name": "varchar(50)",
    "state": "varchar(10)",
    "phone": "varchar(20)",
}


def _row(number: int, state: str | None, **more: Any) -> dict[str, Any]:
    own = {
        "id": str(number),
        "email": f"{HIDDEN}{number}@x",
        "ssn": f"{HIDDEN}{number}",
        "name": f"n{number}",
    }
    return {**own, "state": state, "phone": f"{HIDDEN}12{number}4", **more}


def _rows(
    kind: str, *rows: Mapping[str, Any], old: Sequence[Mapping[str, Any]] | None = None
) -> dict[str, Any]:
    types = {**_TYPES, "ssn2": "varchar(20)", "city": "varchar(20)", "title": "varchar(50)"}
    told = {name: types[name] for name in rows[0]}
    return {
        "type": kind,
        "isDdl": False,
        "data": list(rows),
        "old": old,
        "mysqlType": told,
        "pkNames": ["id"],
    }


def _ddl(sql: str) -> dict[str, Any]:
    return {"type": "ALTER", "isDdl": True, "sql": sql, "data": None}


def _later(number: int, state: str | None) -> dict[str, Any]:
    row = _row(number, state, ssn2=f"{HIDDEN}new", city="Rome")
    row["title"] = row.pop("name")
    return row


_COLUMNS = ", ".join(
    f"{name} {type_} DEFAULT '{HIDDEN}'" for name, type_ in _TYPES.items() if name in ("email", "ssn")
)
HISTORY: list[dict[str, Any]] = [
    _ddl(
        f"CREATE TABLE users (id int PRIMARY KEY COMMENT '{HIDDEN}', {_COLUMNS}, name varchar(50), state "
        f"varchar(10), phone varchar(20), INDEX (ssn)) COMMENT '{HIDDEN}'"
    ),
    _rows("INSERT", _row(1, "active"), _row(2, "draft"), _row(3, None), _row(4, "active"), _row(5, "draft")),
    _ddl(
        f"ALTER TABLE users ADD ssn2 varchar(20) DEFAULT '{HIDDEN}new', ADD city varchar(20) DEFAULT "
        f"'Rome' AFTER ssn, COMMENT '{HIDDEN}'"
    ),
    _ddl("ALTER TABLE users CHANGE name title varchar(50)"),
    _rows("UPDATE", _later(1, "draft"), old=[{"state": "active"}]),
    _rows("UPDATE", _later(2, "active"), old=[{"state": "draft"}]),
    _ddl("ALTER TABLE users DROP COLUMN phone"),
    _rows("DELETE", {name: value for name, value in _later(4, "active").items() if name != "phone"}),
    _rows("DELETE", {name: value for name, value in _later(5, "draft").items() if name != "phone"}),
]


def batches(rule: TableRule) -> list[Batch]:
    """A batch for each record of the history, under the rule."""
    canal, made = get("canal"), []
    for offset, fields in enumerate(HISTORY):
        value = json.dumps({"database": "shop", "table": "users", "es": 1_763_000_000_000 + offset, **fields})
        message = cast(Record, Message(topic="cdc", partition=0, offset=offset, value=value.encode()))
        changes: list[Change] = []
        canal.decode(message, changes)
        bring_under(rule.row_rules, rule.statement_rules, changes, 0, database="shop", table="users")
        made.append(Batch("shop.users", tuple(changes), database="shop", name="users"))
    return made
