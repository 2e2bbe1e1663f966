"""Column rules, by their documentation: what leaves of a row, and which rows do."""

from __future__ import annotations

import hashlib
import hmac
from dataclasses import dataclass
from typing import Any, Literal

from .source import ALL_COLUMNS, Row

GONE = "gone_at"
"""The column that marks a row."""
SECRET = "a secret of the model"
DELETES: tuple[Literal["apply", "mark", "ignore"], ...] = ("apply", "mark", "ignore")


@dataclass(frozen=True)
class Rules:
    """`hides`: note does not leave, amount leaves as total, doc as its hash. `filters`: rows of the south do
    not leave."""

    hides: bool = False
    filters: bool = False
    deletes: Literal["apply", "mark", "ignore"] = "apply"

    def settings(self) -> dict[str, Any]:
        """Of a table's entry in the configuration."""
        found: dict[str, Any] = {}
        if self.hides:
            found["columns"] = {
                "exclude": ["note"],
                "rename": {"amount": "total"},
                "mask": {"doc": "hash"},
            }
        if self.filters:
            found["filter"] = "region <> 'south'"
        if self.deletes != "apply":
            found["deletes"] = self.deletes
        if self.deletes == "mark":
            found["deleted_column"] = GONE
        return found

    def takes(self, row: Row) -> bool | None:
        """None: the row lacks the filter's column."""
        if not self.filters:
            return True
        return None if "region" not in row else row["region"] != "south"

    def names(self) -> list[str]:
        """The columns that leave."""
        return list(self.form(dict.fromkeys(ALL_COLUMNS)))

    def form(self, row: Row) -> Row:
        """What leaves of a row."""
        left = dict(row)
        if self.hides:
            left = {
                "total" if name == "amount" else name: value for name, value in row.items() if name != "note"
            }
            if left.get("doc") is not None:
                left["doc"] = hmac.new(SECRET.encode(), left["doc"].encode(), hashlib.sha256).hexdigest()
        return left | {GONE: None} if self.deletes == "mark" else left
