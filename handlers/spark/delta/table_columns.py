"""The columns of a Delta table: their types, their names in files, and changes that leave the files alone.

By Delta's protocol: https://github.com/delta-io/delta/blob/master/PROTOCOL.md#column-mapping"""

from __future__ import annotations

import json
import uuid
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import msgspec
import pyarrow as pa

from handlers.spark.delta.log_actions import (
    PHYSICAL_NAME,
    SPELLED,
    Metadata,
    OnlySpark,
    arrow_type,
    physical_name,
)
from handlers.spark.rows.spark_types import can_widen
from handlers.spark.table_ref import NAMES_MAPPED, TYPES_WIDENED

ID = "delta.columnMapping.id"
LAST_ID = "delta.columnMapping.maxColumnId"
TYPE_CHANGES = "delta.typeChanges"
_FEATURES = {NAMES_MAPPED[0]: "columnMapping", TYPES_WIDENED[0]: "typeWidening"}

_Field = dict[str, Any]
"""A column in Delta's log."""


class ArrowColumns(NamedTuple):
    """A table's columns in Arrow."""

    named: pa.Schema
    """With the table's names."""
    filed: pa.Schema
    """With the names in files, and the ids that column mapping gives them."""


def arrow_columns(table: str, metadata: Metadata) -> ArrowColumns:
    """Raises OnlySpark for types and names that Arrow does not have."""
    named, filed = [], []
    for each in metadata.fields:
        if not _is_simple(each["type"]):
            raise OnlySpark(table, f"has renamed or declared parts in {each['name']}")
        type_ = arrow_type(table, each["type"])
        named.append(pa.field(each["name"], type_, each["nullable"]))
        filed.append(_filed(each, type_))
    return ArrowColumns(pa.schema(named), pa.schema(filed))


def _is_simple(kind: Any) -> bool:
    """Whether the parts of a type may be null, and have the same names in files. Parquet's ids of column
    mapping are only written for those of structs."""
    if isinstance(kind, str):
        return True
    if kind["type"] == "struct":
        return all(
            part["nullable"] and physical_name(part) == part["name"] and _is_simple(part["type"])
            for part in kind["fields"]
        )
    is_nullable = kind.get("containsNull", True) and kind.get("valueContainsNull", True)
    return is_nullable and not any(ID in part["metadata"] for part in _parts(kind))


def _filed(column: _Field, type_: pa.DataType) -> pa.Field:
    if pa.types.is_struct(type_):
        parts = zip(column["type"]["fields"], type_, strict=True)
        type_ = pa.struct([_filed(part, own.type) for part, own in parts])
    found = column["metadata"].get(ID)
    told = None if found is None else {"PARQUET:field_id": str(found)}
    return pa.field(physical_name(column), type_, column["nullable"], told)


def every(fields: Iterable[_Field]) -> Iterator[_Field]:
    """Yield columns, and the fields inside of them."""
    for each in fields:
        yield each
        yield from every(_parts(each["type"]))


def _parts(kind: Any) -> list[_Field]:
    if isinstance(kind, str):
        return []
    if kind["type"] == "struct":
        return list(kind["fields"])
    inner = ("elementType",) if kind["type"] == "array" else ("keyType", "valueType")
    return [part for name in inner for part in _parts(kind[name])]


@dataclass(slots=True)
class ColumnChange:
    """A table's columns and properties, while a statement changes them as Spark does. Each change raises
    ValueError if the table does not allow it: another writer may have changed it since the caller's look."""

    fields: list[_Field]
    properties: dict[str, str]
    features: set[str] = field(default_factory=set)
    """The features of Delta's protocol that the change needs."""

    @classmethod
    def of(cls, metadata: Metadata) -> ColumnChange:
        return cls(metadata.fields, dict(metadata.configuration))

    def applied(self, metadata: Metadata) -> Metadata:
        schema = json.dumps({"type": "struct", "fields": self.fields}, ensure_ascii=False)
        return msgspec.structs.replace(metadata, schema_string=schema, configuration=self.properties)

    def set(self, name: str, value: str) -> None:
        """Set a table property."""
        self.properties[name] = value
        if feature := _FEATURES.get(name):
            self.features.add(feature)
        if name == NAMES_MAPPED[0]:
            self._number(lambda column: column)

    def add(self, name: str, type_: str | Mapping[str, Any], after: str | None = None) -> None:
        """Add a column after another, before all if `after` is empty, or as the last one. `type_`: in Spark's
        spelling, or as the log has it."""
        self._check_free(name)
        place = len(self.fields) if after is None else self._place(after) + 1 if after else 0
        kind = _logged(type_) if isinstance(type_, str) else type_
        self.fields.insert(place, {"name": name, "type": kind, "nullable": True, "metadata": {}})
        if "timestamp_ntz" in str(kind):
            self.features.add("timestampNtz")
        if is_mapped(self.properties):
            self._number(lambda _: f"col-{uuid.uuid4()}")

    def drop(self, names: Collection[str]) -> None:
        self.fields = [each for each in self.fields if each["name"] not in names]
        if not self.fields:
            raise ValueError("no column is left")

    def rename(self, name: str, new: str) -> None:
        self._check_free(new)
        self.fields[self._place(name)]["name"] = new

    def widen(self, name: str, type_: str) -> None:
        """`type_`: in Spark's spelling."""
        column, kind = self.fields[self._place(name)], _logged(type_)
        own = next((each for each, told in SPELLED.items() if told == column["type"]), str(column["type"]))
        if not can_widen(own, type_):
            raise ValueError(f"{name} is {own}")
        change = {"toType": kind, "fromType": column["type"]}
        column["metadata"][TYPE_CHANGES] = [*column["metadata"].get(TYPE_CHANGES, ()), change]
        column["type"] = kind

    def move(self, name: str, after: str) -> None:
        """Move a column after another, or before all if `after` is empty."""
        column = self.fields.pop(self._place(name))
        self.fields.insert(self._place(after) + 1 if after else 0, column)

    def _check_free(self, name: str) -> None:
        if any(each["name"].lower() == name.lower() for each in self.fields):  # as in Spark
            raise ValueError(f"{name} exists")

    def _place(self, name: str) -> int:
        return [each["name"] for each in self.fields].index(name)

    def _number(self, name_of: Callable[[str], str]) -> None:
        """Give an id and a name in files to each column that has none."""
        last = int(self.properties.get(LAST_ID, "0"))
        for each in every(self.fields):
            if ID not in each["metadata"]:
                last += 1
                each["metadata"] |= {ID: last, PHYSICAL_NAME: name_of(each["name"])}
        self.properties[LAST_ID] = str(last)


def is_mapped(properties: Mapping[str, str]) -> bool:
    """Whether a table's columns have other names in files."""
    return properties.get(NAMES_MAPPED[0], "none") != "none"


def _logged(type_: str) -> Any:
    """Return a type in Spark's spelling as Delta's log has it. Raises ValueError for one with fields."""
    if type_.startswith("array<"):
        return {"type": "array", "elementType": _logged(type_[6:-1]), "containsNull": True}
    if "<" in type_:
        raise ValueError(f"{type_} has fields")
    return SPELLED.get(type_, type_)
