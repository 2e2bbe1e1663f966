"""Type texts that say more than MySQL's spelling can: those of PostgreSQL's own types."""

from __future__ import annotations

from typing import Self

__all__ = ["NativeType"]


class NativeType(str):
    """A type text in the spelling of `Change.types`, for whoever knows no other, and in PostgreSQL's words.

    A text, so that it goes wherever a column's type goes: into rows, through rules that rename the column.
    """

    __slots__ = ("native",)

    native: str
    """`jsonb`, `inet[]`, `bit varying(9)`: as docs/handlers/sql.md lists them."""

    def __new__(cls, text: str, native: str) -> Self:
        made = super().__new__(cls, text)
        made.native = native
        return made
