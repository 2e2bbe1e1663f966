"""Table definitions from Maxwell's DDL records.

A record's `def` has the columns' types without the sizes of most (`decimal`, `binary`, `varchar`): those
are taken from the statement, or from the table as it was before.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

import msgspec

from handlers.mysql.types import read_type
from worker.formats.table_history import TableDefinition

__all__ = ["MaxwellColumn", "MaxwellTable", "definition_of", "statement_for", "template_of"]


class MaxwellColumn(msgspec.Struct, gc=False):
    """A column of `def` or `old`."""

    name: str
    type: str
    signed: bool = True
    charset: str | None = None
    labels: list[str] | None = msgspec.field(name="enum-values", default=None)
    fraction: int | None = msgspec.field(name="column-length", default=None)
    """Digits of a second's fraction, of time, datetime and timestamp."""


class MaxwellTable(msgspec.Struct, gc=False):
    """`def` or `old` of a DDL record."""

    database: str
    table: str
    columns: list[MaxwellColumn] = []
    primary_key: list[str] | None = msgspec.field(name="primary-key", default=None)


class _Token(NamedTuple):
    kind: str
    """name (between backticks), word, string or sign."""
    text: str
    """Without its quotes; a string's text is left out."""

    @property
    def word(self) -> str:
        """A keyword in lower case; empty for what cannot be one."""
        return self.text.lower() if self.kind == "word" else ""


_TOKEN = re.compile(
    r"(?:\s+|/\*.*?\*/|--(?=\s|\Z)[^\n]*|\#[^\n]*)"
    r"|(?P<string>'(?:[^'\\]|''|\\.)*'|\"(?:[^\"\\]|\"\"|\\.)*\")"
    r"|`(?P<name>(?:[^`]|``)*)`"
    r"|(?P<word>[\w$]+)"
    r"|(?P<sign>.)",
    re.DOTALL,
)
# Types whose size is told by nothing else than the statement, and what they are without one.
_SIZED = {
    "decimal": "(10,0)",
    "bit": "(1)",
    "char": "(1)",
    "binary": "(1)",
    "varchar": "",
    "varbinary": "",
    "tinyint": "",
}
# https://dev.mysql.com/doc/refman/8.0/en/other-vendor-data-types.html
_SYNONYMS = {
    "numeric": "decimal",
    "dec": "decimal",
    "fixed": "decimal",
    "character": "char",
    "nchar": "char",
    "nvarchar": "varchar",
    "varcharacter": "varchar",
    "varying": "varchar",
}
_INTEGERS = frozenset(("tinyint", "smallint", "mediumint", "int", "bigint"))
# Text columns of the character set `binary` are columns of bytes.
_AS_BYTES = {
    "char": "binary",
    "varchar": "varbinary",
    "tinytext": "tinyblob",
    "text": "blob",
    "mediumtext": "mediumblob",
    "longtext": "longblob",
}


def _tokens(sql: str) -> list[_Token]:
    return [
        _Token(match.lastgroup, "" if match.lastgroup == "string" else match[match.lastgroup])
        for match in _TOKEN.finditer(sql)
        if match.lastgroup
    ]


def _is_name(token: _Token, name: str) -> bool:
    """Maxwell leaves a backtick in a name doubled, as the statement has it."""
    text = token.text.lower()
    return text in (name.lower(), name.lower().replace("`", "``"))


def definition_of(table: MaxwellTable, sql: str, before: TableDefinition | None) -> TableDefinition:
    """The table after the statement `sql`; `before` is what it was made from, if that is known."""
    tokens = _tokens(sql)
    renamed = list(_renamed_columns(tokens))

    def type_before(name: str) -> str | None:
        if before is None:
            return None
        old = next((old for new, old in renamed if _is_name(new, name)), None)
        if old is None:
            return before.types.get(name)
        return next((text for column, text in before.types.items() if _is_name(old, column)), None)

    types = {column.name: _type_text(column, tokens, type_before(column.name)) for column in table.columns}
    return TableDefinition(types, tuple(table.primary_key) if table.primary_key else None)


def template_of(database: str, sql: str) -> tuple[str, str] | None:
    """(database, table) that CREATE TABLE ... LIKE names. `database`: of a name without one."""
    tokens = _tokens(sql)
    words = [token.word for token in tokens[:12]]
    if words[:1] != ["create"] or "like" not in words:
        return None
    names = [token.text for token in tokens[words.index("like") + 1 :][:3]]
    if len(names) == 3 and names[1] == ".":
        return names[0], names[2]
    return (database, names[0]) if names else None


def statement_for(database: str, table: str, after: MaxwellTable, sql: str) -> str:
    """The statement of one `table-alter`, so that running each record's statement gives what was run.

    Maxwell writes RENAME TABLE with several tables as one record for each, all with the whole statement: each
    gets its own part. A statement that moves a table gets the name of the database it moves from.
    """
    if (database, table) == (after.database, after.table):
        return sql
    tokens = _tokens(sql)
    if _only_renames(tokens):
        return f"RENAME TABLE {_quoted(database, table)} TO {_quoted(after.database, after.table)}"
    bare = rf"(?is)^\s*ALTER\s+TABLE\s+(?:`{re.escape(table)}`|{re.escape(table)}(?![\w$]))(?!\s*\.)"
    return re.sub(bare, lambda _: f"ALTER TABLE {_quoted(database, table)}", sql, count=1)


_RENAMING = re.compile(
    # n: a name between backticks, w: a word. A name is either, a qualified one has a dot.
    r"w w (?:[nw] \. )?[nw] (?P<rename>w) (?:[w=] )?(?:[nw] \. )?[nw] "
)


def _only_renames(tokens: list[_Token]) -> bool:
    """RENAME TABLE of any number, or ALTER TABLE name RENAME [TO|AS|=] name and nothing else."""
    words = [token.word for token in tokens]
    if words[:1] == ["rename"]:
        return True
    kinds = "".join(f"{token.text if token.kind == 'sign' else token.kind[0]} " for token in tokens)
    found = _RENAMING.fullmatch(kinds)
    return (
        found is not None
        and words[:2] == ["alter", "table"]
        and words[found.start("rename") // 2] == "rename"
    )


def _quoted(database: str, table: str) -> str:
    return ".".join(f"`{name.replace('`', '``')}`" for name in (database, table))


def _renamed_columns(tokens: list[_Token]) -> Iterator[tuple[_Token, _Token]]:
    """(new, old) of each RENAME COLUMN old TO new."""
    for at in range(len(tokens) - 4):
        if (tokens[at].word, tokens[at + 1].word, tokens[at + 3].word) == ("rename", "column", "to"):
            yield tokens[at + 4], tokens[at + 2]


def _type_text(column: MaxwellColumn, tokens: list[_Token], before: str | None) -> str:
    name = column.type.lower()
    if column.charset == "binary":
        name = _AS_BYTES.get(name, name)
    if name in ("enum", "set"):
        return f"{name}({','.join(map(_literal, column.labels or ()))})"
    if name in ("time", "datetime", "timestamp"):
        return f"{name}({column.fraction})" if column.fraction else name
    size, unsigned = _told(name, column.name, tokens) or _kept(name, before)
    if name in _INTEGERS:
        unsigned = not column.signed
    return f"{name}{size} unsigned" if unsigned else f"{name}{size}"


def _literal(label: str) -> str:
    escaped = label.replace("\\", "\\\\").replace("'", "''")
    return f"'{escaped}'"


def _kept(name: str, before: str | None) -> tuple[str, bool]:
    """Size and sign of a column that the statement leaves as it was."""
    known = read_type(before or "")
    if known.name != name:
        return "", False
    return f"({','.join(map(str, known.sizes))})" if known.sizes else "", known.unsigned


def _told(name: str, column: str, tokens: list[_Token]) -> tuple[str, bool] | None:
    """Size and sign that the statement gives the column, if it defines it with this type."""
    if name not in _SIZED:
        return None
    for at in range(len(tokens) - 1):
        if tokens[at].kind not in ("name", "word") or not _is_name(tokens[at], column):
            continue
        end = at + 1
        kind = tokens[end].word
        if kind in ("national", "character", "char") and end + 1 < len(tokens):
            following = tokens[end + 1].word
            if following in ("char", "character", "varchar", "varying"):
                end, kind = end + 1, following
        kind = _SYNONYMS.get(kind, kind)
        if name == "tinyint" and kind in ("bool", "boolean"):
            return "(1)", False
        if name in (kind, _AS_BYTES.get(kind)):
            return _size(tokens, end + 1, _SIZED[name])
    return None


def _size(tokens: list[_Token], at: int, default: str) -> tuple[str, bool]:
    size = default
    texts = [token.text.lower() for token in tokens[at:]]
    if texts[:1] == ["("] and ")" in texts:
        end = texts.index(")") + 1
        size, texts = "".join(texts[:end]), texts[end:]
    return size, bool({"unsigned", "zerofill"} & set(texts[:2]))
