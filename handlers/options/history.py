"""The options of targets that may keep versions of rows."""

from __future__ import annotations

from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from handlers.options.section import Section


class HistoryOptions(Section):
    """Whether a target keeps rows or their versions. A part of a handler's options."""

    mode: Literal["replica", "history"] = "replica"
    """`replica`: the source's rows. `history`: every version of each row, with its period of validity."""
    start_column: Annotated[str, Field(min_length=1)] = "__START_AT"
    """With mode: history, the column with the source time from which a version is valid, in UTC."""
    end_column: Annotated[str, Field(min_length=1)] = "__END_AT"
    """With mode: history, the column with the time at which the next version began; NULL: it is the current
    one."""

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if self.start_column.lower() == self.end_column.lower():
            raise ValueError("start_column and end_column need two names")
        return self

    @property
    def period(self) -> tuple[str, str] | None:
        """The columns with the start and the end of versions. None: it keeps replicas."""
        return (self.start_column, self.end_column) if self.mode == "history" else None
