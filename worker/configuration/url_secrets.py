"""What is secret in a URL: passwords, users that are tokens, and of a webhook all but where it is."""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Iterator
from urllib.parse import unquote, urlsplit

# Up to the last @ before white space or the next URL: of one that is not escaped as it should be, too.
_PASSWORD = re.compile(r"//([^/?#@:\s]*):((?:(?!://)\S)*)@")
_PORT = re.compile(r"[0-9]{1,5}[/?#,]")
_HTTP = re.compile(r"https?:$", re.IGNORECASE)
_HOST = re.compile(r"[\w.-]+(?::[0-9]|\.[A-Za-z]{2,}(?:[/?#,;]|$))")
_USER = re.compile(r"([A-Za-z][\w+.-]*)://([^/?#@:\s]+)(?::(?:x-oauth-basic)?)?@")
# What stands before the @ there is a name: a database's user, a container.
_NAMED = re.compile(r"jdbc|postgres|mysql|mariadb|abfs|wasb|s?ftp|ssh|hdfs|s3|gs|spark|sc$", re.IGNORECASE)
_OF_ALL = frozenset(("admin", "anonymous", "default", "guest", "root"))
_PARAMETER = re.compile(
    r"[?&](?:key|code|sign|signature|hmac|auth|token|password|secret)=([^&#\s\"']+)", re.IGNORECASE
)
_PIECE = re.compile(r"[^/?&=#{}]+")
_SHORTEST_PATH, _SHORTEST_MIXED, _SHORTEST_PIECE = 8, 16, 32
"""Characters from which they are looked for in texts: what is shorter may be a table's name. Mixed: of digits
and letters."""


def secrets_in_urls(text: str) -> Iterator[str]:
    """The secrets of all URLs in the text, as they stand there: passwords; users without a password, which
    are tokens but for databases and stores; parameters such as `key`, `code` and `signature`.

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
    """What a client sends behind `Authorization: Basic` for the user and password of each URL in the text.

    >>> list(basic_in_urls("https://shop:hunter%202@host"))
    ['c2hvcDpodW50ZXIgMg==']
    """
    for found in _PASSWORD.finditer(text):
        if found[1] and found[2] and not _is_port(text, found):
            pair = f"{unquote(found[1])}:{unquote(found[2])}"
            yield b64encode(pair.encode("utf-8", "replace")).decode()


def _is_port(text: str, found: re.Match[str]) -> bool:
    """Whether that is a port and a path with an @ in it, as only addresses of the web have."""
    if not found[1] or not _PORT.match(found[2]) or not _HTTP.search(text, 0, found.start()):
        return False
    return _HOST.match(text, found.end()) is None


def origin_of(url: str) -> str | None:
    """Scheme, host and port; None: it has none of them.

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
    """What may be a secret in the path and the query of a webhook's URL: both as they stand, and their pieces
    that are no words.

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
