"""Compare two configurations, and find the changes that a running worker can apply."""

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
"""Key paths that a running worker applies, with all keys below them. Other changes need a restart."""


@dataclass(frozen=True, slots=True)
class Changes:
    """The key paths whose values differ, sorted."""

    live: tuple[str, ...]
    """Paths in LIVE, or below one."""
    restart: tuple[str, ...]
    """All other paths."""

    def __bool__(self) -> bool:
        return bool(self.live or self.restart)


def compare(old: Configuration, new: Configuration) -> Changes:
    """Return the key paths whose values differ. The values themselves may be secret and are left out."""
    paths = sorted(set(_differing(old, new, "")))
    live = [path for path in paths if any(path == key or path.startswith(f"{key}.") for key in LIVE)]
    return Changes(tuple(live), tuple(path for path in paths if path not in live))


def merge(old: Configuration, new: Configuration) -> Configuration:
    """Return the configuration to continue with: LIVE keys from `new`, all others from `old`.

    It keeps the `Secrets` object of `old`, which all parts share. The caller adds the secrets of `new` to it.
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
    """Dump models to plain values: their private attributes always differ."""
    if isinstance(value, list):
        return [_plain(item) for item in value]
    return value.model_dump() if isinstance(value, BaseModel) else value
