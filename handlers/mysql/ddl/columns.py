"""Parser of column definitions: `age bigint unsigned NOT NULL DEFAULT 18 COMMENT '…' AFTER name`."""

from __future__ import annotations

import re
from dataclasses import dataclass

from handlers.mysql.ddl import Column, Default, StatementError
from handlers.mysql.ddl.tokens import Kind, Tokens
from handlers.mysql.types import SYNONYMS, literal


@dataclass(frozen=True, slots=True)
class Definition:
    """A column, and what its definition says about the table's keys."""

    column: Column
    primary: bool
    unique: bool
    after: str | None
    """The column before it; empty: it is the first column; None: not specified."""


_SYNONYMS = {
    **SYNONYMS,
    "bool": "tinyint(1)",
    "boolean": "tinyint(1)",
    "serial": "bigint unsigned",
    "char byte": "binary",
    "long": "mediumtext",
}
_NOW = ("CURRENT_TIMESTAMP", "NOW", "LOCALTIME", "LOCALTIMESTAMP", "UTC_TIMESTAMP")


def read_definition(tokens: Tokens) -> Definition:
    """Read a column's name, type, attributes and place. Raises StatementError."""
    name = tokens.name()
    type_text, numbered = _type(tokens)
    nullable, default, generated, primary, unique = not numbered, None, None, False, bool(numbered)
    after: str | None = None
    while not tokens.at_end:
        if tokens.take("NOT", "NULL"):
            nullable = False
        elif tokens.take("DEFAULT"):
            default = _default(tokens)
        elif tokens.take("AUTO_INCREMENT"):
            numbered = 1
        elif tokens.take("AS"):
            if (expression := tokens.brackets()) is not None:
                generated = expression.spelled()
        elif tokens.take("UNIQUE"):
            unique = True
            tokens.take("KEY")
        elif tokens.take("PRIMARY") or tokens.take("KEY"):
            primary = True
            tokens.take("KEY")
        elif tokens.take("REFERENCES"):
            break
        elif tokens.take("COMMENT") or tokens.take("COLLATE"):
            tokens.next()
        elif tokens.word in ("FIRST", "AFTER"):
            after = "" if tokens.next().text == "FIRST" else tokens.name()
        else:  # NULL, ON UPDATE now(), CHECK (…), VIRTUAL, CHARACTER SET x, INVISIBLE, SRID 0 …
            tokens.skip()
    column = Column(name, type_text, nullable and not primary, default, generated, numbered)
    return Definition(column, primary, unique, after)


def _type(tokens: Tokens) -> tuple[str, int]:
    """Read the type, spelled as in `Change.types`, and `Column.numbered` (SERIAL)."""
    tokens.take("NATIONAL")
    name = tokens.name().lower()
    if name == "double":
        tokens.take("PRECISION")
    elif name == "char" and tokens.take("BYTE"):
        name = "char byte"
    elif name in ("char", "character", "nchar") and tokens.take_any("VARYING", "VARCHAR", "VARCHARACTER"):
        name = "varchar"
    elif name == "long":
        name = "mediumblob" if tokens.take("VARBINARY") else "mediumtext"
        tokens.take("VARCHAR")
    text = _SYNONYMS.get(name, name)
    inside = tokens.brackets()
    if inside is not None and text in ("enum", "set"):
        text += f"({','.join(literal(_label(one)) for one in inside.parts())})"
    elif inside is not None:
        text += f"({inside.spelled(apart='')})"
    elif text == "decimal":
        text = "decimal(10,0)"
    if re.fullmatch(r"decimal\(\d+\)", text):
        text = f"{text[:-1]},0)"
    unsigned = False
    while word := tokens.take_any("UNSIGNED", "SIGNED", "ZEROFILL"):
        unsigned = unsigned or word != "SIGNED"
    return text + (" unsigned" if unsigned else ""), int(name == "serial")


def _label(tokens: Tokens) -> str:
    """Read a label of an enum or a set. Raises ValueError."""
    if tokens.word.startswith("_"):
        tokens.next()  # its character set: _utf8mb4'…'
    piece = tokens.next()
    if piece.kind is Kind.TEXT:
        return piece.text.rstrip(" ")  # as the server does
    if piece.kind not in (Kind.BITS, Kind.BYTES):
        raise StatementError(f"{piece.text} is no label of an enum or a set")
    number = int(piece.text, 2 if piece.kind is Kind.BITS else 16)
    return number.to_bytes((number.bit_length() + 7) // 8, "big").decode("ascii")


def _default(tokens: Tokens) -> Default:  # noqa: PLR0911 - one return for each kind of literal
    begin, signs = tokens.place, 0
    while found := tokens.take_any("-", "+"):
        signs += found == "-"
    if signs and tokens.kind is not Kind.NUMBER:
        tokens.skip()
        return Default("expression", tokens.spelled_from(begin))
    if tokens.word.startswith("_") and tokens.kind is Kind.WORD:
        tokens.next()  # the character set of the text: _utf8mb4'…'
    if tokens.kind is Kind.TEXT:
        text = ""
        while tokens.kind is Kind.TEXT:
            text += tokens.next().text
        return Default("text", text)
    if tokens.kind is Kind.NUMBER:
        return Default("number", "-" * (signs % 2) + tokens.next().text)
    if tokens.kind is Kind.BITS:
        return Default("bits", tokens.next().text)
    if tokens.kind is Kind.BYTES:
        return Default("bytes", tokens.next().text)
    if tokens.take("NULL"):
        return Default("null", "")
    if word := tokens.take_any("TRUE", "FALSE"):
        return Default("number", "1" if word == "TRUE" else "0")
    if tokens.take_any(*_NOW):
        tokens.brackets()
        return Default("now", "")
    inside = tokens.brackets()
    if inside is not None:
        return _of_expression(inside)
    name = tokens.name()
    arguments = tokens.brackets()
    return Default("expression", name if arguments is None else f"{name}({arguments.spelled()})")


def _of_expression(inside: Tokens) -> Default:
    """Read a default in brackets. `DEFAULT ('x')` is a literal too."""
    begin = inside.place
    try:
        default = _default(inside)
    except ValueError:
        default = None
    if default is not None and inside.at_end:
        return default
    inside.place = begin
    return Default("expression", inside.spelled())
