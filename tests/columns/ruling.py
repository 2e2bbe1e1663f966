"""Rules for tests, and changes brought under them."""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping, Sequence
from typing import Any

from handlers import Change
from handlers.testing import make_batch
from worker.column_rules.applying import bring_under
from worker.configuration import Configuration, TableRule

__all__ = ["SECRET", "VECTOR", "changes_of", "configured", "hashed", "rule_of", "ruled", "statement"]

SECRET = "a secret of the tests"
VECTOR = "5f6746630b386712d23ab61d3fc1faa473befeefa52341657aa1d75939c3768f"
"""The hash that docs/columns.md shows."""


def configured(*tables: Mapping[str, Any], **sections: Any) -> Configuration:
    """A configuration of these rules of tables; `match` is shop.users where none is given."""
    return Configuration.model_validate(
        {
            "kafka": {"bootstrap_servers": "x:1", "group_id": "g", "topics": ["t"]},
            "masking": {"secret": SECRET},
            "tables": [{"match": "shop.users", "handlers": [{"type": "log"}], **table} for table in tables],
            **sections,
        }
    )


def rule_of(**keys: Any) -> TableRule:
    """One rule, of shop.users."""
    [rule] = configured(keys).tables
    return rule


def changes_of(
    *changes: Mapping[str, Any], key: str | Sequence[str] | None = "id", **more: Any
) -> list[Change]:
    """As `make_batch` has them, of shop.users."""
    return list(make_batch("shop.users", changes, key=key, **more).changes)


def hashed(value: object) -> str:
    """As the documentation says that `mask: hash` does it."""
    return hmac.new(SECRET.encode(), str(value).encode(), hashlib.sha256).hexdigest()


def statement(sql: str) -> Change:
    return changes_of({"sql": sql})[0]


def ruled(rule: TableRule, changes: Sequence[Change], table: str = "shop.users") -> list[Change]:
    """What handlers see of them. Raises RuleFault."""
    found = list(changes)
    database, _, name = table.partition(".")
    bring_under(rule.row_rules, rule.statement_rules, found, 0, database=database, table=name)
    return found
