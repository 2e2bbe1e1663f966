"""What differs between two configurations, and which of it a running worker can take over."""

from __future__ import annotations

from dataclasses import dataclass

from pydantic import BaseModel

from worker.configuration.model import Configuration

LIVE = (
    "batch",
    "checkpoint.interval",
    "dead_letter.max_ratio",
    "lanes.count",
    "lanes.max_bytes",
    "lanes.max_records",
    "lanes.work_stealing",
    "logging.level",
    "masking",
    "max_ahead",
    "revoke_timeout",
    "shutdown_timeout",
    "start_timeout",
    "stuck_after",
    "tables",
)
"""Key paths that a running worker takes over, with all below them; every other change needs a restart."""


@dataclass(frozen=True, slots=True)
class Changes:
    """Key paths whose values differ, sorted."""

    live: tuple[str, ...]
    """Of LIVE."""
    restart: tuple[str, ...]
    """The others."""

    def __bool__(self) -> bool:
        return bool(self.live or self.restart)


def compare(old: Configuration, new: Configuration) -> Changes:
    """What `new` has otherwise than `old`. Values are never part of the answer: they may be secret."""
    paths = sorted(set(_differing(old, new, "")))
    live = [path for path in paths if any(path == key or path.startswith(f"{key}.") for key in LIVE)]
    return Changes(tuple(live), tuple(path for path in paths if path not in live))


def merge(old: Configuration, new: Configuration) -> Configuration:
    """What a running worker goes on with: `new` where that can be, else `old`.

    With the secrets of `old`, which all its parts hold; they are to learn those of `new`.
    """
    updates: dict[str, object] = {}
    for path in LIVE:
        section, _, key = path.partition(".")
        wanted = getattr(new, section)
        if not key:
            updates[section] = wanted
            continue
        present = updates.get(section, getattr(old, section))
        if isinstance(present, BaseModel) and isinstance(wanted, BaseModel):
            updates[section] = present.model_copy(update={key: getattr(wanted, key)})
    return old.model_copy(update=updates).read_from(new.path, old.secrets, old.hidden | new.hidden)


def _differing(old: object, new: object, path: str) -> list[str]:
    if isinstance(old, BaseModel) and isinstance(new, BaseModel) and type(old) is type(new):
        return [
            found
            for name, field in type(old).model_fields.items()
            for found in _differing(
                getattr(old, name), getattr(new, name), f"{path}.{field.alias or name}".lstrip(".")
            )
        ]
    return [] if _plain(old) == _plain(new) else [path]


def _plain(value: object) -> object:
    """Without what models prepare for themselves, which is never the same twice."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.model_dump() if isinstance(value, BaseModel) else value
