"""The fast path to a JSON record's database and table: a decoder that reads nothing else."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import msgspec

from worker.formats.interface import Route
from worker.formats.own_json.paths import Constant, InValue, Source


def route_of(database: Source, table: Source) -> Callable[[bytes], Route]:
    """Make a function value -> route. It refuses every value if the route needs more than the value."""
    found = _reader(("database", database), ("table", table))
    return _refuse if found is None else found


def _refuse(_value: bytes) -> Route:
    raise LookupError("the value does not tell; the slow path does")


def _reader(*sources: tuple[str, Source]) -> Callable[[bytes], Route] | None:
    """Make a decoder of nested structs with only these fields. The outermost struct is a Route."""
    namespace: dict[str, Any] = {"alone": False}
    tree: dict[str, Any] = {}
    for attribute, source in sources:
        if isinstance(source, Constant):
            namespace[attribute] = source.text
        elif isinstance(source, InValue) and source.path:
            fields = _plant(tree, source.path)
            if fields is None:
                return None
            namespace[attribute] = property(_getter(fields))
        else:
            return None
    decode: Callable[[bytes], Route] = msgspec.json.Decoder(_struct(tree, namespace)).decode
    return decode


def _plant(tree: dict[str, Any], path: tuple[str, ...]) -> tuple[str, ...] | None:
    """Add a path to the tree. Returns its fields, outermost first, or None if it conflicts with another."""
    fields: list[str] = []
    for place, name in enumerate(path):
        last = place == len(path) - 1
        child = tree.setdefault(name, str if last else {})
        if (child is str) != last:
            return None
        fields.append(f"field{list(tree).index(name)}")
        tree = child
    return tuple(fields)


def _getter(fields: tuple[str, ...]) -> Callable[[Any], str]:
    def get(found: Any) -> str:
        for field in fields:
            found = getattr(found, field)
        text: str = found
        return text

    return get


def _struct(tree: dict[str, Any], namespace: dict[str, Any]) -> Any:
    return msgspec.defstruct(
        "JsonRecord",
        [
            (f"field{place}", str if child is str else _struct(child, {}))
            for place, child in enumerate(tree.values())
        ],
        rename={f"field{place}": name for place, name in enumerate(tree)},
        namespace=namespace,
        gc=False,
    )
