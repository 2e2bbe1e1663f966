"""Keys of the configuration whose feature this version does not have: refused, never ignored.

When a feature arrives, its line here goes.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

from worker.configuration.faults import KeyPath

__all__ = ["NOT_YET", "NotYet", "Refusal", "refusals"]


class NotYet(NamedTuple):
    """Values of a key that this version refuses. In `path`, `*` is any item or key."""

    path: tuple[str, ...]
    values: tuple[str, ...]
    """Empty: every value but null."""
    sentence: str


class Refusal(NamedTuple):
    path: KeyPath
    value: Any
    sentence: str


_HANDLER = ("tables", "*", "handlers", "*")

NOT_YET = (
    NotYet(
        (*_HANDLER, "mode"),
        ("replica", "history", "function"),
        "this version's Spark handler has the mode changelog only",
    ),
)


def refusals(data: Mapping[Any, Any]) -> Iterator[Refusal]:
    """What `data` (the file's mapping, not yet checked) asks for that this version does not have."""
    for rule in NOT_YET:
        for path, value in _found(data, rule.path):
            if value is None or (rule.values and value not in rule.values):
                continue
            if rule.path[-1] == "mode" and _parent(data, path).get("type") != "spark":
                continue
            yield Refusal(path, value, rule.sentence)


def _found(data: Any, pattern: tuple[str, ...]) -> Iterator[tuple[KeyPath, Any]]:
    if not pattern:
        yield (), data
        return
    inner: list[tuple[str | int, Any]] = []
    if isinstance(data, Mapping):
        inner = [(key, value) for key, value in data.items() if pattern[0] in ("*", key)]
    elif isinstance(data, list) and pattern[0] == "*":
        inner = list(enumerate(data))
    for key, value in inner:
        for rest, leaf in _found(value, pattern[1:]):
            yield (key, *rest), leaf


def _parent(data: Any, path: KeyPath) -> Any:
    for key in path[:-1]:
        data = data[key]
    return data
