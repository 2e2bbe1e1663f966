"""List the effective configuration, with defaults and without secrets."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
from pydantic import BaseModel

from handlers.options.values import DURATION_PATTERN, SIZE_PATTERN, format_duration, format_size
from worker.configuration.faults import KeyPath, key_path
from worker.configuration.model import Configuration
from worker.configuration.secret_values import is_webhook
from worker.configuration.secrets import (
    MASK,
    is_secret_key,
    is_secret_place,
    names_columns,
    origin_of,
    passwords_in,
)
from worker.configuration.table_rules import HandlerEntry

_MOST = 2_000
"""The most settings that are listed."""
_LONGEST = 500


class Setting(msgspec.Struct, frozen=True):
    """One key of the configuration."""

    key: str
    """The key path, such as `tables[2].retry.max_delay`."""
    value: str
    """The value as a file would spell it; `***` if it is hidden."""
    given: bool
    """Whether the file contains the key. Otherwise the value is the default."""


def shown_settings(configuration: Configuration) -> list[Setting]:
    """Return all keys in the order of docs/configuration.md, at most 2,000.

    Hidden are values of secret keys and values from files. In `kafka.properties`, `spark` and handlers,
    values from variables are hidden too. So are headers, passwords and tokens in URLs and connection strings,
    and a webhook's URL except scheme, host and port."""
    found: list[Setting] = []
    for path, value, given in _of_model(configuration, (), given=True):
        if len(found) == _MOST:
            found.append(Setting("...", "further keys are not shown", given=True))
            break
        found.append(
            Setting(_clean(configuration, key_path(path)), _value(configuration, path, value), given)
        )
    return found


def _of_model(model: BaseModel, path: KeyPath, *, given: bool) -> Iterator[tuple[KeyPath, Any, bool]]:
    for name, field in type(model).model_fields.items():
        value = getattr(model, name)
        own = given and name in model.model_fields_set
        if isinstance(model, HandlerEntry) and name == "options":  # options are written beside the type
            yield from _of_value(value, path, own)
        else:
            yield from _of_value(
                _written(type(model), field.alias or name, value), (*path, field.alias or name), own
            )


def _of_value(value: Any, path: KeyPath, given: bool) -> Iterator[tuple[KeyPath, Any, bool]]:
    if isinstance(value, BaseModel):
        yield from _of_model(value, path, given=given)
    elif isinstance(value, Mapping) and value:
        for key, inner in value.items():
            yield from _of_value(inner, (*path, str(key)), given)
    elif isinstance(value, list | tuple) and any(isinstance(each, BaseModel | Mapping) for each in value):
        for number, inner in enumerate(value):
            yield from _of_value(inner, (*path, number), given)
    elif path:
        yield path, value, given


def _written(model: type[BaseModel], key: str, value: Any) -> Any:
    """Format a duration or a size as text."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        kinds = _patterns(model).get(key, ())
        if DURATION_PATTERN in kinds:
            return format_duration(value)
        if SIZE_PATTERN in kinds:
            return format_size(int(value))
    return value


@cache
def _patterns(model: type[BaseModel]) -> dict[str, tuple[str, ...]]:
    properties = model.model_json_schema().get("properties", {})
    return {
        key: tuple(each.get("pattern", "") for each in (schema, *schema.get("anyOf", ())))
        for key, schema in properties.items()
    }


def _value(configuration: Configuration, path: KeyPath, value: Any) -> str:
    if value is None:
        return "null"
    keys = (
        str(key) for place, key in enumerate(path) if isinstance(key, str) and not names_columns(path[:place])
    )
    if path in configuration.hidden or is_secret_place(path) or any(map(is_secret_key, keys)):
        return MASK
    if _is_address_of_webhook(configuration, path):
        origin = origin_of(str(value))
        return MASK if origin is None else _clean(configuration, origin)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(configuration, each) for each in value)}]"
    return _text(configuration, value)


def _is_address_of_webhook(configuration: Configuration, path: KeyPath) -> bool:
    match path:
        case ("tables", int(rule), "handlers", int(handler), "url"):
            return is_webhook(configuration.tables[rule].handlers[handler].type)
    return False


def _text(configuration: Configuration, value: Any) -> str:
    if isinstance(value, bool):
        return str(value).lower()
    if isinstance(value, Mapping):
        return "{}" if not value else _clean(configuration, str(dict(value)))
    if isinstance(value, BaseModel | Path):
        value = str(value)
    return _clean(configuration, str(value))


def _clean(configuration: Configuration, text: str) -> str:
    text = configuration.secrets.redact(text)
    for password in passwords_in(text):  # passwords too short for `redact`
        if password and password != MASK:
            for before, after in ((":", "@"), ("//", "@"), ("//", ":"), ("=", "")):
                text = text.replace(f"{before}{password}{after}", f"{before}{MASK}{after}")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"
