"""What the types of a change say besides: PostgreSQL's own names, and that they are all that there is."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self


class SourceColumn(NamedTuple):
    """A column of the source, under the rules of its table."""

    to: str | None
    """The name under which it leaves; None: it does not."""
    type: str
    """In full, as `full` gives it; before the rules. Empty for one that does not leave."""


class NativeTypes(dict[str, str]):
    """`Change.types` as plain texts, which can be encoded and pickled, with PostgreSQL's own names beside."""

    __slots__ = ("native",)

    native: Mapping[str, str]
    """Column -> what `NativeType` says besides, of those that have it."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """`types`: in full."""
        super().__init__({name: str(text) for name, text in types.items()})
        self.native = {name: text.native for name, text in types.items() if isinstance(text, NativeType)}


class SchemaTypes(NativeTypes):
    """Those that name all columns of the source's table, as a record's own schema does, where no DDL record
    ever tells that they change."""

    __slots__ = ("columns",)

    columns: Mapping[str, SourceColumn]
    """By the source's names, also those that do not leave."""

    def __init__(self, types: Mapping[str, str], columns: Mapping[str, SourceColumn] | None = None) -> None:
        super().__init__(types)
        self.columns = (
            {name: SourceColumn(name, full(text)) for name, text in types.items()}
            if columns is None
            else columns
        )


def in_full(types: Mapping[str, str]) -> dict[str, str]:
    """The types of a change, each a `NativeType` where it is one."""
    native = types.native if isinstance(types, NativeTypes) else {}
    return {name: NativeType(text, native[name]) if name in native else text for name, text in types.items()}


def full(text: str) -> str:
    """A type text with what `NativeType` says besides; `read_full` takes it apart."""
    return f"{text}\n{text.native}" if isinstance(text, NativeType) else str(text)


def read_full(text: str) -> str:
    plain, _, native = text.partition("\n")
    return NativeType(plain, native) if native else plain


class NativeType(str):
    """A type text in the spelling of `Change.types`, for whoever knows no other, and in PostgreSQL's words.

    A text, so that it goes wherever a column's type goes, through rules that rename the column; but never in
    `Change.types` itself, as nothing encodes it (`NativeTypes`)."""

    __slots__ = ("native",)

    native: str
    """`jsonb`, `inet[]`, `bit varying(9)`: as docs/handlers/sql.md lists them."""

    def __new__(cls, text: str, native: str) -> Self:
        made = super().__new__(cls, text)
        made.native = native
        return made
