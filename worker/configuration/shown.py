"""List the effective configuration, with defaults and without secrets. Find the secret values of its file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import msgspec
from pydantic import BaseModel

from handlers.options.values import DURATION_PATTERN, SIZE_PATTERN, format_duration, format_size
from worker.configuration import secrets
from worker.configuration.document import Document, KeyPath, key_path
from worker.configuration.model import Configuration
from worker.configuration.table_rules import HANDLER_KEYS, HandlerEntry

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
        str(key)
        for place, key in enumerate(path)
        if isinstance(key, str) and not secrets.names_columns(path[:place])
    )
    if path in configuration.hidden or secrets.is_secret_place(path) or any(map(secrets.is_secret_key, keys)):
        return secrets.MASK
    match path:
        case ("tables", int(rule), "handlers", int(handler), "url") if is_webhook(
            configuration.tables[rule].handlers[handler].type
        ):
            origin = secrets.origin_of(str(value))
            return secrets.MASK if origin is None else _clean(configuration, origin)
    if isinstance(value, list | tuple):
        return f"[{', '.join(_text(configuration, each) for each in value)}]"
    return _text(configuration, value)


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
    for password in secrets.passwords_in(text):  # passwords too short for `redact`
        if password and password != secrets.MASK:
            for before, after in ((":", "@"), ("//", "@"), ("//", ":"), ("=", "")):
                text = text.replace(f"{before}{password}{after}", f"{before}{secrets.MASK}{after}")
    return text if len(text) <= _LONGEST else f"{text[: _LONGEST - 1]}…"


_SAY_THE_FORM = frozenset(("accept", "accept-encoding", "content-encoding", "content-type", "user-agent"))
"""Headers whose values are common words. They are never shown as values, but stay in other texts."""


def secret_texts(document: Document) -> Iterator[str]:
    """Yield texts that must not be logged: of secret keys, of secret files, of variables in free sections.

    Variables in binlane's own keys (a name, an address, a level) are not secret."""
    for path, replacement in document.replaced.items():
        if replacement.from_file or secrets.is_secret_place(path) or _is_free(path):
            yield from (value for value in replacement.values if value not in ("true", "false", "null"))
    yield from _by_name(document.data, ())
    match document.data.get("tracing"):
        case {"headers": dict(headers)}:
            yield from _of_headers(headers)
    for entry in (
        one for rule in _mappings(document.data.get("tables")) for one in _mappings(rule.get("handlers"))
    ):
        match entry.get("headers"):
            case dict(headers):
                yield from _of_headers(headers)
        if is_webhook(entry.get("type")) and isinstance(url := entry.get("url"), str):
            for text in secrets.secrets_beyond_origin(url):
                yield text
                yield unquote(text)


def hidden_paths(document: Document) -> Iterator[KeyPath]:
    """Yield the paths of values that are hidden entirely: from secret files and, in free sections, from
    variables. Values that contain more text are only hidden if the secret is too short to redact."""
    for path, replacement in document.replaced.items():
        secret = replacement.from_file or secrets.is_secret_place(path) or _is_free(path)
        if secret and (
            replacement.whole or any(len(value) < secrets.SHORTEST for value in replacement.values)
        ):
            yield path


def is_webhook(handler_type: object) -> bool:
    """Whether a handler of this type has a URL that is secret except for its origin."""
    return isinstance(handler_type, str) and "webhook" in handler_type.lower()


def _of_headers(headers: Mapping[Any, Any]) -> Iterator[str]:
    told = [value for name, value in headers.items() if str(name).lower() not in _SAY_THE_FORM]
    yield from _by_name(told, ("authorization",))


def _mappings(entries: object) -> Iterator[Mapping[Any, Any]]:
    if isinstance(entries, list):
        yield from (each for each in entries if isinstance(each, Mapping))


def _is_free(path: KeyPath) -> bool:
    return (
        path[:2] == ("kafka", "properties")
        or path[0] == "spark"
        or (len(path) > 4 and path[2] == "handlers" and path[4] not in HANDLER_KEYS)
    )


def _by_name(data: Any, path: KeyPath) -> Iterator[str]:
    if isinstance(data, Mapping):
        if data.keys() >= {"username", "password"}:
            yield f"{data['username']}:{data['password']}"  # basic authorization sends it in base64
        for name, value in data.items():
            yield from _by_name(value, (*path, str(name)))
    elif isinstance(data, list):
        for number, value in enumerate(data):
            yield from _by_name(value, (*path, number))
    elif isinstance(data, str | int) and not isinstance(data, bool) and _is_of_secret_key(path):
        yield str(data)
        # The kind of authorization may precede the secret: Bearer TOKEN.
        yield from str(data).split()[1:]
    elif isinstance(data, str):
        for password in secrets.passwords_in(data):
            yield password
            yield unquote(password)
        yield from secrets.basic_in_urls(data)


def _is_of_secret_key(path: KeyPath) -> bool:
    """Whether the last key of the path is the key of a secret. For a list item, its list's key counts."""
    place = max((number for number, key in enumerate(path) if isinstance(key, str)), default=-1)
    return place >= 0 and secrets.is_secret_key(str(path[place])) and not secrets.names_columns(path[:place])
