"""A Delta table's declarations about its columns: rows that it refuses, and values that it changes."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Mapping
from dataclasses import dataclass, field
from datetime import datetime
from decimal import Decimal
from zoneinfo import ZoneInfo

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.pandas.types import to_arrow_type
from pyspark.sql.types import IntegralType, StringType, StructField, StructType

from handlers.spark.rows.shape import Mode, Shape
from handlers.spark.table_ref import quoted

_NULL_TEXTS = ("", "__HIVE_DEFAULT_PARTITION__")
"""Texts that Delta keeps as NULL in a partition column."""
_FORGETS = "delta.setTransactionRetentionDuration"
_ESCAPED = re.compile(r"[\x01-\x1f\"#%'*/:=?\\\x7f{\[\]^]")
_LONGEST_NAME = 255
"""The longest folder name in bytes, in nearly every store."""
_CHECK = "delta.constraints."
_FILLED_IN = frozenset(("CURRENT_DEFAULT", "delta.generationExpression"))
"""Keys of a column's metadata: the table gives the column a value."""
_SIZED = re.compile(r"(char|varchar)\((\d+)\)")


@dataclass(frozen=True, slots=True)
class Declared:
    """The declarations of one version of a table. Column names are in lower case."""

    kinds: Mapping[str, str] = field(default_factory=dict, compare=False)
    """Every column's type as SQL writes it. A new column of the source changes no declaration."""
    partitions: frozenset[str] = frozenset()
    """The partition columns."""
    not_null: frozenset[str] = frozenset()
    longest: Mapping[str, int] = field(default_factory=dict)
    """Column of CHAR(n) or VARCHAR(n) -> n, in characters."""
    padded: frozenset[str] = frozenset()
    """Columns of CHAR(n): Spark pads their values with spaces."""
    checks: Mapping[str, str] = field(default_factory=dict)
    """Declaration -> the SQL condition that must be true of each row."""
    generated: Mapping[str, str] = field(default_factory=dict)
    """The same for generated columns. If the source does not have the column, its condition is true, except
    for values that a partition does not keep."""
    is_append_only: bool = False
    forgets: bool = False
    """Whether Delta forgets after a while which segments the table contains."""
    numbered: frozenset[str] = frozenset()
    """Columns GENERATED ALWAYS AS IDENTITY, which accept no values."""
    integers: Mapping[str, pa.DataType] = field(default_factory=dict)
    """Columns of whole numbers -> their type."""
    inner: str | None = None
    """A struct's field that must not be null and gets no value. Without it, Delta refuses every row."""
    zone: str = "UTC"
    """The time zone of Spark's sessions."""

    @classmethod
    def of(
        cls, columns: StructType, partitions: Collection[str], properties: Mapping[str, str], zone: str
    ) -> Declared:
        sizes = ((one, (one.metadata or {}).get("__CHAR_VARCHAR_TYPE_STRING", "")) for one in columns.fields)
        # CHAR or VARCHAR, and its size.
        sized = {one.name.lower(): found.groups() for one, size in sizes if (found := _SIZED.fullmatch(size))}
        checks = {
            f"CHECK {name.removeprefix(_CHECK)} ({condition})": condition
            for name, condition in properties.items()
            if name.startswith(_CHECK)
        }
        generated = {}
        for one in columns.fields:
            if (how := (one.metadata or {}).get("delta.generationExpression")) is None:
                continue
            told = f"{one.name} GENERATED AS ({how})"
            generated[told] = f"{quoted(one.name)} <=> ({how})"
            if one.name.lower() in map(str.lower, partitions) and isinstance(one.dataType, StringType):
                generated[f"{told} is not empty in PARTITIONED BY"] = _kept_by_partition(f"({how})")
        return cls(
            {one.name.lower(): one.dataType.simpleString() for one in columns.fields},
            frozenset(map(str.lower, partitions)),
            frozenset(one.name.lower() for one in columns.fields if not one.nullable),
            {name: int(size) for name, (_, size) in sized.items()},
            frozenset(name for name, (kind, _) in sized.items() if kind == "char"),
            checks,
            generated,
            properties.get("delta.appendOnly", "").lower() == "true",
            _FORGETS in properties,
            frozenset(
                one.name.lower()
                for one in columns.fields
                if (one.metadata or {}).get("delta.identity.allowExplicitInsert") is False
            ),
            {
                one.name.lower(): to_arrow_type(one.dataType)
                for one in columns.fields
                if isinstance(one.dataType, IntegralType)
            },
            next(filter(None, map(_inner, columns.fields)), None),
            zone,
        )

    def has_checks_beyond(self, shape: Shape) -> bool:
        """Whether a check may use columns that rows of this shape do not have."""
        beyond = self.kinds.keys() - set(map(str.lower, shape.schema.names))
        return any(name in check.lower() for check in self.checks.values() for name in beyond)

    @property
    def conditions(self) -> Mapping[str, str]:
        """The conditions of checks and generated columns."""
        return {**self.checks, **self.generated}

    def unfit_for(self, shape: Shape, mode: Mode) -> str | None:
        """Why a table with these columns cannot be kept like the source's. None if it can."""
        if self.forgets:
            return f"{_FORGETS} is set, so Delta forgets which segments it has: unset it"
        if self.inner is not None:
            return (
                f"column {self.inner!r} must not be null, so Delta refuses every row without its parent: "
                f"make it nullable (ALTER TABLE ... ALTER COLUMN {self.inner} DROP NOT NULL)"
            )
        # A keyless merge puts back equal rows that stay, with all their values.
        is_keyless = mode == "replica" and not shape.key
        numbered = sorted(
            self.numbered if is_keyless else self.numbered.intersection(map(str.lower, shape.schema.names))
        )
        if numbered:
            return (
                f"column {numbered[0]!r} is GENERATED ALWAYS AS IDENTITY, but rows are written with a value "
                "for it: create a table in which it is GENERATED BY DEFAULT AS IDENTITY, or a plain column"
            )
        if self.is_append_only and mode != "changelog":
            return f"delta.appendOnly is set, but mode {mode} must change rows: unset it"
        compared = {name.lower() for name in shape.key or shape.schema.names}
        padded = sorted(self.padded & (compared | self.partitions))
        if not padded or mode == "changelog":
            return None
        return (
            f"column {padded[0]!r} is CHAR: Spark pads its values with spaces, so no row is found by it. "
            f"Create a table in which it is STRING (CREATE TABLE ... AS SELECT rtrim({padded[0]}) ...)"
        )

    def all_conditions(self, columns: StructType) -> Iterator[str]:
        """Yield the SQL conditions that each row must meet. `columns`: of the table."""
        yield from self.conditions.values()
        for column in columns.fields:
            name, lower = quoted(column.name), column.name.lower()
            if lower in self.not_null:
                yield f"{name} IS NOT NULL"
            if lower in self.longest:
                yield f"({name} IS NULL OR length({name}) <= {self.longest[lower]})"
            if lower in self.partitions and isinstance(column.dataType, StringType):
                yield _kept_by_partition(name)

    def refused(self, name: str, every: pa.Array, own: int | None = None) -> tuple[int, str] | None:
        """Return the first value of a column that the table would refuse or change, and why. The values after
        the first `own` are in a struct, which only has the column's type."""
        lower, values, is_text = name.lower(), every[:own], pa.types.is_string(every.type)
        is_moment = getattr(values.type, "tz", None) is not None and self.zone != "UTC"
        if lower in self.partitions and (is_text or is_moment or pa.types.is_binary(values.type)):
            for place, value in enumerate(values.to_pylist()):
                if value is not None and not _is_kept_by_partition(lower, value, self.zone):
                    return place, (
                        "the table is partitioned by it, and Delta does not keep this value of such a column "
                        "(an empty one becomes NULL, a long one is no folder name, a time that clocks show "
                        "twice becomes the first): rebuild the table, partitioned by another column"
                    )
        if lower in self.longest and is_text:
            is_long = pc.greater(pc.utf8_length(values), self.longest[lower])
            if (place := pc.index(is_long, True).as_py()) >= 0:
                return place, (
                    f"the table's column has up to {self.longest[lower]} characters: make it longer "
                    f"(ALTER TABLE ... ALTER COLUMN ... TYPE)"
                )
        if lower in self.integers and pa.types.is_decimal(every.type):
            whole = self.integers[lower]
            most = Decimal(2 ** (whole.bit_width - 1))
            is_beyond = pc.or_(pc.greater_equal(every, most), pc.less(every, -most))
            if (place := pc.index(is_beyond, True).as_py()) >= 0:
                return place, (
                    f"the table's column is an {whole}: give it a larger type "
                    f"(ALTER TABLE ... ALTER COLUMN ... TYPE)"
                )
        return None


def _kept_by_partition(text: str) -> str:
    """The SQL condition that a partition keeps this text."""
    texts = ", ".join(f"'{each}'" for each in _NULL_TEXTS)
    return f"coalesce({text} NOT IN ({texts}), true)"


def _is_kept_by_partition(name: str, value: str | bytes | datetime, zone: str) -> bool:
    """Delta keeps these values as texts in folder names (`name=value`)."""
    if isinstance(value, datetime):
        try:
            return not value.astimezone(ZoneInfo(zone)).fold
        except (ValueError, KeyError, OverflowError):  # an offset; the last hours of the calendar
            return True
    try:
        text = value if isinstance(value, str) else value.decode()
    except UnicodeDecodeError:
        return False
    folder = f"{name}={_ESCAPED.sub('%XX', text)}"
    return text not in _NULL_TEXTS and "\0" not in text and len(folder.encode()) <= _LONGEST_NAME


def _inner(column: StructField) -> str | None:
    if isinstance(column.dataType, StructType) and _FILLED_IN.isdisjoint(column.metadata or ()):
        for one in column.dataType.fields:
            if (found := _inner(one) if one.nullable else one.name) is not None:
                return f"{column.name}.{found}"
    return None
