"""Which DDL statements of the source the `sql` handler follows."""

from __future__ import annotations

from typing import Any

from pydantic import BaseModel, ConfigDict, model_validator

__all__ = ["DDLRules"]


class DDLRules(BaseModel):
    """One switch for each kind of statement; what is switched off is logged and passed over.

    As an option it is a mapping of these switches, or `true` or `false` for all of them.
    """

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    create_tables: bool = True
    drop_tables: bool = True
    truncate: bool = True
    rename_tables: bool = True
    add_columns: bool = True
    drop_columns: bool = True
    rename_columns: bool = True
    retype_columns: bool = True
    """Types, and which columns are the primary key."""

    @model_validator(mode="before")
    @classmethod
    def _one_switch_for_all(cls, given: Any) -> Any:
        return dict.fromkeys(cls.model_fields, given) if isinstance(given, bool) else given
