"""Find secrets in URLs: passwords, users that are tokens, and a webhook's URL except its origin."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

# Up to the last @ before white space or the next URL. This also finds passwords that are not escaped.
_PASSWORD = re.compile(r"//([^/?#@:\s]*):((?:(?!://)\S)*)@")
_PORT = re.compile(r"[0-9]{1,5}[/?#,]")
_HTTP = re.compile(r"https?:$", re.IGNORECASE)
_HOST = re.compile(r"[\w.-]+(?::[0-9]|\.[A-Za-z]{2,}(?:[/?#,;]|$))")
_USER = re.compile(r"([A-Za-z][\w+.-]*)://([^/?#@:\s]+)(?::(?:x-oauth-basic)?)?@")
# In these URLs, the text before the @ is a name: a database user or a container.
_NAMED = re.compile(r"jdbc|postgres|mysql|mariadb|abfs|wasb|s?ftp|ssh|hdfs|s3|gs|spark|sc$", re.IGNORECASE)
_OF_ALL = frozenset(("admin", "anonymous", "default", "guest", "root"))
_PARAMETER = re.compile(
    r"[?&](?:key|code|sign|signature|hmac|auth|token|password|secret)=([^&#\s\"']+)", re.IGNORECASE
)
_PIECE = re.compile(r"[^/?&=#{}]+")
_SHORTEST_PATH, _SHORTEST_MIXED, _SHORTEST_PIECE = 8, 16, 32
"""The fewest characters of a text that is redacted: shorter ones may be a table's name. Mixed: contains
digits and letters."""


def secrets_in_urls(text: str) -> Iterator[str]:
    """Yield the secrets of all URLs in the text, as written: passwords, parameters such as `key`, `code` and
    `signature`, and users without a password. Those are tokens, except in URLs of databases and stores.

    >>> list(secrets_in_urls("redis://:12345@cache https://ghp_abc@host/ https://f/x?code=a1&v=2"))
    ['12345', 'ghp_abc', 'a1']
    >>> list(secrets_in_urls("http://host:8080/shop@2 postgresql://reader@db/shop abfss://box@lake/x"))
    []
    """
    for found in _PASSWORD.finditer(text):
        if found[2] and not _is_port(text, found):
            yield found[2]
    for found in _USER.finditer(text):
        if not _NAMED.match(found[1]) and found[2] not in _OF_ALL:
            yield found[2]
    if "://" in text:
        yield from _PARAMETER.findall(text)


def basic_in_urls(text: str) -> Iterator[str]:
    """Yield what follows `Authorization: Basic` for the user and password of each URL in the text.

    >>> list(basic_in_urls("https://shop:hunter%202@host"))
    ['c2hvcDpodW50ZXIgMg==']
    """
    for found in _PASSWORD.finditer(text):
        if found[1] and found[2] and not _is_port(text, found):
            pair = f"{unquote(found[1])}:{unquote(found[2])}"
            yield b64encode(pair.encode("utf-8", "replace")).decode()


def _is_port(text: str, found: re.Match[str]) -> bool:
    """Whether the match is a port and a path with an @, which only HTTP URLs have."""
    if not found[1] or not _PORT.match(found[2]) or not _HTTP.search(text, 0, found.start()):
        return False
    return _HOST.match(text, found.end()) is None


def origin_of(url: str) -> str | None:
    """Return scheme, host and port; None if the URL lacks them.

    >>> origin_of("https://me:word@hooks.example:8443/services/T0/{table}?sig=x")
    'https://hooks.example:8443'
    """
    try:
        parts = urlsplit(url)
    except ValueError:
        return None
    host = parts.netloc.rpartition("@")[2]
    return f"{parts.scheme}://{host}" if parts.scheme and host else None


def secrets_beyond_origin(url: str) -> Iterator[str]:
    """Yield possible secrets in the path and query of a webhook's URL: both as written, and their pieces that
    are not words.

    >>> list(secrets_beyond_origin("https://hooks.example/x/0a1b2c3d4e5f6a7b/{table}?v=1"))
    ['/x/0a1b2c3d4e5f6a7b/{table}?v=1', '/x/0a1b2c3d4e5f6a7b/{table}', '0a1b2c3d4e5f6a7b']
    """
    origin, beyond = origin_of(url), url
    if origin is not None:
        host = origin.partition("://")[2]
        beyond = url[url.find(host, url.find("//")) + len(host) :]
    path = beyond.partition("#")[0].partition("?")[0]
    yield from (whole for whole in dict.fromkeys((beyond, path)) if len(whole) >= _SHORTEST_PATH)
    yield from filter(_is_no_word, _PIECE.findall(beyond))


def _is_no_word(piece: str) -> bool:
    is_mixed = any(map(str.isdigit, piece)) and any(map(str.isalpha, piece))
    return len(piece) >= (_SHORTEST_MIXED if is_mixed else _SHORTEST_PIECE)
