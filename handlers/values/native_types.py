"""Extra facts in a change's types: PostgreSQL's own type names, and whether they list every column."""

from __future__ import annotations

from collections.abc import Mapping
from typing import NamedTuple, Self


class SourceColumn(NamedTuple):
    """A column of the source, and what its table's column rules do with it."""

    to: str | None
    """The name in the target; None if the rules exclude the column."""
    type: str
    """The type before the rules, as `full` writes it. Empty for an excluded column."""


class NativeTypes(dict[str, str]):
    """`Change.types` as plain texts, which can be encoded and pickled, and PostgreSQL's names (`native`)."""

    __slots__ = ("native",)

    native: Mapping[str, str]
    """Column -> `NativeType.native`, for each column that has one."""

    def __init__(self, types: Mapping[str, str]) -> None:
        """`types`: column -> type, with a `NativeType` where one is known."""
        super().__init__({name: str(text) for name, text in types.items()})
        self.native = {name: text.native for name, text in types.items() if isinstance(text, NativeType)}


class SchemaTypes(NativeTypes):
    """Types that list all columns of the source's table, as a record's own schema does. Used if no DDL
    records report that they change."""

    __slots__ = ("columns",)

    columns: Mapping[str, SourceColumn]
    """By the source's names, including excluded columns."""

    def __init__(self, types: Mapping[str, str], columns: Mapping[str, SourceColumn] | None = None) -> None:
        super().__init__(types)
        self.columns = (
            {name: SourceColumn(name, full(text)) for name, text in types.items()}
            if columns is None
            else columns
        )


def in_full(types: Mapping[str, str]) -> dict[str, str]:
    """Return a change's types, with a `NativeType` for each column that has one."""
    native = types.native if isinstance(types, NativeTypes) else {}
    return {name: NativeType(text, native[name]) if name in native else text for name, text in types.items()}


def full(text: str) -> str:
    """Append the native name of a `NativeType` to its text. `read_full` reverses this."""
    return f"{text}\n{text.native}" if isinstance(text, NativeType) else str(text)


def read_full(text: str) -> str:
    plain, _, native = text.partition("\n")
    return NativeType(plain, native) if native else plain


class NativeType(str):
    """A type in the spelling of `Change.types`, with PostgreSQL's own name in `native`.

    It is a text, so it passes through all code that handles types, such as rules that rename a column. It
    must never be in `Change.types` itself, because nothing encodes it (see `NativeTypes`)."""

    __slots__ = ("native",)

    native: str
    """`jsonb`, `inet[]`, `bit varying(9)`: docs/handlers/sql.md lists them."""

    def __new__(cls, text: str, native: str) -> Self:
        made = super().__new__(cls, text)
        made.native = native
        return made
