"""Map a source column type (a MySQL type text) to each database's SQLAlchemy type.

docs/handlers/sql.md contains the whole table. No type loses a value. If the target lacks a type, it gets the
next type that can store every value, or text if no other type can."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import Any

import sqlalchemy as sa
from sqlalchemy.dialects import mysql, postgresql
from sqlalchemy.types import TypeEngine, UserDefinedType

from handlers.mysql.types import INTEGERS, SHAPES, SYNONYMS, MySQLType, read_type
from handlers.sql.types.mysql_sizes import key_type
from handlers.sql.types.postgresql_types import native_type

_LONG_VARCHAR = 4000
"""Longer columns become texts: InnoDB limits rows to 65,535 bytes, without texts."""

Type = TypeEngine[Any]
Maker = Callable[[MySQLType], Type]


class Unsigned64(UserDefinedType[int]):
    """An unsigned 64-bit integer in SQLite. Values above 2^63 - 1 are stored as text.

    A column whose type name contains BLOB (and not INT) stores each value unchanged
    (https://www.sqlite.org/datatype3.html#determination_of_column_affinity). Any other would convert such
    digits to a rounded float."""

    cache_ok = True

    def get_col_spec(self, **_: Any) -> str:
        return "UNSIGNED64_BLOB"


class UBigInt(sa.BigInteger):
    """DuckDB's integer from 0 to 2^64 - 1."""

    __visit_name__ = "UBIGINT"


_ALIASES = {**SYNONYMS, "bool": "tinyint", "double precision": "double", "datetimeoffset": "timestamp"}
_BLOBS = ("tinyblob", "blob", "mediumblob", "longblob", "vector", *SHAPES)


def sql_type(type_text: str, dialect: str, *, key_parts: int = 0) -> Type:
    """Return the type in `dialect` (postgresql, mysql, mariadb, sqlite, duckdb) for a source type text.

    `type_text` has MySQL's syntax (`decimal(10,2) unsigned`), or is `boolean` or `uuid`. `key_parts` is the
    number of the primary key's columns if the column is one: MySQL limits the length of keys."""
    if dialect == "postgresql":
        native = native_type(type_text)
        if native is not None:
            return native
    return _sql_type(type_text, "mysql" if dialect == "mariadb" else dialect, key_parts)


@lru_cache(maxsize=10_000)
def _sql_type(type_text: str, dialect: str, key_parts: int) -> Type:
    read = read_type(type_text)
    # read_type reads `double precision` and the like as a name and an attribute.
    name = " ".join(type_text.lower().split()[:2]) if type_text.lower().startswith("double ") else read.name
    read = read._replace(name=_ALIASES.get(name, name))
    made = _MAKERS[dialect].get(read.name)
    result = _TEXTS[dialect] if made is None else made(read)
    return key_type(result, key_parts) if key_parts and dialect == "mysql" else result


def _size(read: MySQLType, default: int | None = None) -> int | None:
    return read.sizes[0] if read.sizes else default


def _scale(read: MySQLType) -> int:
    return read.sizes[1] if len(read.sizes) > 1 else 0


def _is_double(read: MySQLType) -> bool:
    # FLOAT(25) to FLOAT(53) are doubles. FLOAT(7,4) is not: its numbers are digits and scale.
    return len(read.sizes) == 1 and read.sizes[0] > 24


def _bits(read: MySQLType) -> int:
    return read.sizes[0] if read.sizes else 1


# ---- PostgreSQL: https://www.postgresql.org/docs/current/datatype.html

_NUMERIC20: Type = sa.NUMERIC(20, 0)
_PG_BITS: Sequence[tuple[int, Callable[[], Type]]] = ((16, sa.SMALLINT), (32, sa.INTEGER), (64, sa.BIGINT))


def _pg_varchar(read: MySQLType) -> Type:
    # Not CHAR(n): PostgreSQL pads it with spaces, which MySQL removes.
    size = _size(read, 1 if read.name == "char" else None)
    return sa.VARCHAR(size) if size else sa.TEXT()


_POSTGRESQL: dict[str, Maker] = {
    "tinyint": lambda _: sa.SMALLINT(),
    "smallint": lambda read: sa.INTEGER() if read.unsigned else sa.SMALLINT(),
    "mediumint": lambda _: sa.INTEGER(),
    "int": lambda read: sa.BIGINT() if read.unsigned else sa.INTEGER(),
    "bigint": lambda read: _NUMERIC20 if read.unsigned else sa.BIGINT(),
    "serial": lambda _: _NUMERIC20,
    "bit": lambda read: next((made() for end, made in _PG_BITS if _bits(read) < end), _NUMERIC20),
    "year": lambda _: sa.SMALLINT(),
    "decimal": lambda read: sa.NUMERIC(read.sizes[0], _scale(read)) if read.sizes else sa.NUMERIC(),
    "float": lambda read: sa.DOUBLE_PRECISION() if _is_double(read) else sa.REAL(),
    "double": lambda _: sa.DOUBLE_PRECISION(),
    "date": lambda _: sa.DATE(),
    # Always six digits: with fewer PostgreSQL would round silently.
    "datetime": lambda _: postgresql.TIMESTAMP(timezone=False),
    "timestamp": lambda _: postgresql.TIMESTAMP(timezone=True),
    # MySQL's TIME ranges from -838:59:59 to 838:59:59.
    **dict.fromkeys(("time", "interval"), lambda _: postgresql.INTERVAL()),
    "char": _pg_varchar,
    "varchar": _pg_varchar,
    # json keeps the text; jsonb would rewrite numbers, drop repeated keys and refuse \u0000.
    "json": lambda _: postgresql.JSON(),
    "set": lambda _: postgresql.ARRAY(sa.TEXT()),
    "boolean": lambda _: sa.BOOLEAN(),
    "uuid": lambda _: postgresql.UUID(as_uuid=False),
    **dict.fromkeys(("binary", "varbinary", *_BLOBS), lambda _: postgresql.BYTEA()),
}

# ---- DuckDB: https://duckdb.org/docs/stable/sql/data_types/overview

_DUCKDB_DIGITS = 38


def _duck_decimal(read: MySQLType) -> Type:
    # Without sizes DuckDB uses (18, 3) and rounds.
    if not read.sizes or read.sizes[0] > _DUCKDB_DIGITS:
        return sa.TEXT()
    return sa.NUMERIC(read.sizes[0], _scale(read))


_DUCKDB: dict[str, Maker] = {
    **_POSTGRESQL,
    "bigint": lambda read: UBigInt() if read.unsigned else sa.BIGINT(),
    "serial": lambda _: UBigInt(),
    "bit": lambda read: UBigInt() if _bits(read) == 64 else sa.BIGINT(),
    "decimal": _duck_decimal,
    **dict.fromkeys(("char", "varchar"), lambda _: sa.TEXT()),  # DuckDB's texts have no length
}

# ---- MySQL and MariaDB: https://dev.mysql.com/doc/refman/8.0/en/data-types.html

_LONGTEXT: Type = mysql.LONGTEXT()


def _my_integer(kind: Callable[..., Type]) -> Maker:
    return lambda read: kind(unsigned=read.unsigned)


def _my_decimal(read: MySQLType) -> Type:
    if not read.sizes or read.sizes[0] > 65 or _scale(read) > 30:
        return mysql.DECIMAL(65, 30)
    return mysql.DECIMAL(read.sizes[0], _scale(read), unsigned=read.unsigned)


def _my_char(read: MySQLType) -> Type:
    size = _size(read, 1) or 1
    return mysql.CHAR(size) if size <= 255 else _my_varchar(read)


def _my_varchar(read: MySQLType) -> Type:
    size = _size(read)
    return mysql.VARCHAR(size) if size and size <= _LONG_VARCHAR else _LONGTEXT


def _my_binary(read: MySQLType) -> Type:
    size = _size(read, 1) or 1
    return mysql.BINARY(size) if size <= 255 else _my_varbinary(read)


def _my_varbinary(read: MySQLType) -> Type:
    size = _size(read)
    return mysql.VARBINARY(size) if size and size <= 4 * _LONG_VARCHAR else mysql.LONGBLOB()


_MYSQL: dict[str, Maker] = {
    "tinyint": _my_integer(mysql.TINYINT),
    "smallint": _my_integer(mysql.SMALLINT),
    "mediumint": _my_integer(mysql.MEDIUMINT),
    "int": _my_integer(mysql.INTEGER),
    "bigint": _my_integer(mysql.BIGINT),
    "serial": lambda _: mysql.BIGINT(unsigned=True),
    "bit": lambda read: mysql.BIT(_bits(read)),
    "year": lambda _: mysql.YEAR(),
    "decimal": _my_decimal,
    "float": lambda read: mysql.DOUBLE() if _is_double(read) else mysql.FLOAT(),
    "double": lambda _: mysql.DOUBLE(),
    "date": lambda _: sa.DATE(),
    "datetime": lambda read: mysql.DATETIME(fsp=_size(read)),
    "timestamp": lambda read: mysql.TIMESTAMP(fsp=_size(read)),
    "time": lambda read: mysql.TIME(fsp=_size(read)),
    "char": _my_char,
    "varchar": _my_varchar,
    # One size up: utf8mb4 of the target may need more bytes than the source's character set.
    "tinytext": lambda _: mysql.TEXT(),
    "text": lambda _: mysql.MEDIUMTEXT(),
    "json": lambda _: mysql.JSON(),
    # Not ENUM and SET: without DDL they would refuse labels that the source adds later.
    "enum": lambda _: mysql.VARCHAR(255),
    "set": lambda _: mysql.TEXT(),
    "boolean": lambda _: mysql.TINYINT(1),
    "uuid": lambda _: mysql.CHAR(36),
    "binary": _my_binary,
    "varbinary": _my_varbinary,
    **dict.fromkeys(_BLOBS, lambda _: mysql.LONGBLOB()),
    "tinyblob": lambda _: mysql.TINYBLOB(),
    "blob": lambda _: mysql.BLOB(),
    "mediumblob": lambda _: mysql.MEDIUMBLOB(),
}

# ---- SQLite: https://www.sqlite.org/datatype3.html

_SQLITE: dict[str, Maker] = {
    **dict.fromkeys(INTEGERS, lambda _: sa.BIGINT()),
    "bigint": lambda read: Unsigned64() if read.unsigned else sa.BIGINT(),
    "year": lambda _: sa.SMALLINT(),
    "serial": lambda _: Unsigned64(),
    "bit": lambda read: Unsigned64() if _bits(read) == 64 else sa.BIGINT(),
    **dict.fromkeys(("float", "double"), lambda _: sa.REAL()),
    # Not DECIMAL: SQLite would convert the digits to a float. Not JSON: '5' would become a number.
    **dict.fromkeys(("decimal", "json", "time"), lambda _: sa.TEXT()),
    "date": lambda _: sa.DATE(),
    "datetime": lambda _: sa.DATETIME(),
    "timestamp": lambda _: sa.TIMESTAMP(),
    **dict.fromkeys(("char", "varchar"), lambda read: sa.VARCHAR(_size(read)) if read.sizes else sa.TEXT()),
    "boolean": lambda _: sa.BOOLEAN(),
    **dict.fromkeys(("binary", "varbinary", *_BLOBS), lambda _: sa.BLOB()),
}

_MAKERS: Mapping[str, Mapping[str, Maker]] = {
    "postgresql": _POSTGRESQL,
    "mysql": _MYSQL,
    "sqlite": _SQLITE,
    "duckdb": _DUCKDB,
}
_TEXTS: Mapping[str, Type] = {**dict.fromkeys(_MAKERS, sa.TEXT()), "mysql": _LONGTEXT}
