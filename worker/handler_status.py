"""What handlers tell of themselves (`Handler.status`), made safe to show."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from typing import Any

from handlers import Handler
from worker.backoff import describe

__all__ = ["OpenHandler", "statuses"]


@dataclass(frozen=True, slots=True, eq=False)
class OpenHandler:
    """A handler object between `open` and `close`."""

    name: str
    type: str
    """As the configuration has it."""
    lane: int | None
    """Of an object for one lane."""
    handler: Handler


def statuses(opened: Iterable[OpenHandler], redact: Callable[[str], str]) -> list[dict[str, Any]]:
    """`{"handler", "type", ("lane",) ...}` of each handler that has something to tell, without secrets.

    A status that raises is told as `{"error": ...}`: it must not hide what the worker itself knows.
    """
    found: list[dict[str, Any]] = []
    for each in list(opened):
        try:
            told = each.handler.status()
            plain = None if told is None else _plain(told, redact)
        except Exception as error:
            plain = {"error": redact(f"its status raised {describe(error)}")}
        if plain is None:
            continue
        own: dict[str, Any] = {"handler": each.name, "type": each.type}
        if each.lane is not None:
            own["lane"] = each.lane
        found.append(own | {key: value for key, value in plain.items() if key not in own})
    return found


def _plain(value: Any, redact: Callable[[str], str]) -> Any:
    """`value` as JSON can hold it; what it cannot hold as text."""
    if value is None or isinstance(value, bool | int | float):
        return value
    if isinstance(value, Mapping):
        return {redact(str(key)): _plain(item, redact) for key, item in value.items()}
    if isinstance(value, list | tuple | set | frozenset):
        return [_plain(item, redact) for item in value]
    return redact(str(value))
