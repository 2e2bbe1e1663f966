"""Options that choose which DDL statements of the source a handler applies to its target."""

from __future__ import annotations

from typing import Any, Literal

from pydantic import BaseModel, ConfigDict, Field, model_validator

from handlers.mysql.ddl import operations as ddl

_SWITCHES: dict[type[ddl.Operation], str] = {
    ddl.CreateTable: "create_tables",
    ddl.DropTable: "drop_tables",
    ddl.TruncateTable: "truncate",
    ddl.RenameTable: "rename_tables",
    ddl.AddColumn: "add_columns",
    ddl.DropColumn: "drop_columns",
    ddl.RenameColumn: "rename_columns",
    ddl.ModifyColumn: "retype_columns",
    ddl.ChangeKey: "retype_columns",
}


class DDLRules(BaseModel):
    """One switch for each kind of statement. Statements that are switched off are logged and skipped.

    The option is a mapping of these switches, or `true` or `false` for all of them."""

    model_config = ConfigDict(strict=True, extra="forbid", frozen=True)

    create_tables: bool = Field(True, description="CREATE TABLE, also LIKE and SELECT.")
    drop_tables: bool | Literal["made"] = Field(
        "made", description="DROP TABLE. made: only of tables that binlane has made itself."
    )
    truncate: bool = Field(True, description="TRUNCATE TABLE.")
    rename_tables: bool = Field(True, description="RENAME TABLE, ALTER TABLE ... RENAME.")
    add_columns: bool = Field(True, description="ADD COLUMN, with the default in existing rows.")
    drop_columns: bool = Field(True, description="DROP COLUMN.")
    rename_columns: bool = Field(True, description="RENAME COLUMN, CHANGE with a new name.")
    retype_columns: bool = Field(True, description="Types of columns, and which columns are the primary key.")

    @model_validator(mode="before")
    @classmethod
    def _one_switch_for_all(cls, given: Any) -> Any:
        return dict.fromkeys(cls.model_fields, given) if isinstance(given, bool) else given

    def switch_off(self, operation: ddl.Operation) -> str | None:
        """Return the switch that skips this operation; None if it is applied."""
        switch = _SWITCHES.get(type(operation))
        return switch if switch is not None and not getattr(self, switch) else None
