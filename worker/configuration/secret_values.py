"""Find the secret values of a configuration file."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any
from urllib.parse import unquote

from worker.configuration import secrets
from worker.configuration.faults import KeyPath
from worker.configuration.file.document import Document
from worker.configuration.table_rules import HANDLER_KEYS

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
    for entry in _handlers(document.data):
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


def _handlers(data: Mapping[Any, Any]) -> Iterator[Mapping[Any, Any]]:
    for rule in _mappings(data.get("tables")):
        yield from _mappings(rule.get("handlers"))


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
