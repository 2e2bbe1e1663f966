"""Redact secrets: values from variables and files, values of secret keys, and those in URLs."""

from __future__ import annotations

import itertools
import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, quote_plus, unquote, urlsplit

MASK = "***"

# Shorter texts occur in too many harmless words to be redacted.
SHORTEST = 4
# In a text of several lines, shorter lines are braces of JSON and similar.
_SHORTEST_LINE = 8

_SECRET_KEY = re.compile(
    r"password|passwd|passphrase|secret|token|credential|private|jaas"
    r"|oauthbearer\.config|ssl\.key\.pem|ssl\.keystore|webhook_url|authorization$|cookie$",
    re.IGNORECASE,
)
_CUT = re.compile(r"(\.\.\.|…)")
_HARMLESS_KEY = re.compile(r"\.location$|token\.endpoint\.url$", re.IGNORECASE)
_WORD = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|[0-9]+")
_SECRET_WORDS = frozenset(
    "pass pwd pw psk sas sig bearer passcode apikey accesskey accountkey sharedkey".split()  # noqa: SIM905
)
_BEFORE_KEY = frozenset(
    # The last two are used by Azure.
    "api access account shared encryption signing master client hmac ssh functions subscription".split()  # noqa: SIM905
)
"""Words that make a key secret if they precede the word "key"."""
_OF_SECRETS = (("masking",), ("schema_registry", "basic_auth"))
"""Mappings that people replace with the secret itself by mistake."""
_OF_COLUMNS = ("rename", "mask", "cast", "add")
"""Keys of a table's `columns` whose keys are column names."""
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


def is_secret_key(key: str) -> bool:
    """Whether a key's name says that its value is secret.

    >>> [is_secret_key(key) for key in ("sasl.password", "X-API-Key", "DB_PASS", "key", "by.pass")]
    [True, True, True, False, True]
    """
    if _HARMLESS_KEY.search(key):
        return False
    if _SECRET_KEY.search(key):
        return True
    words = [word.lower() for word in _WORD.findall(key)]
    pairs = itertools.pairwise(words)
    return not _SECRET_WORDS.isdisjoint(words) or any(
        second == "key" and first in _BEFORE_KEY for first, second in pairs
    )


def is_secret_place(path: Sequence[object]) -> bool:
    """Whether the value at this path is secret because of its place.

    >>> [is_secret_place(path) for path in (("http", "token"), ("tracing", "headers", "x-team"), ("name",))]
    [True, True, False]
    >>> is_secret_place(("tables", 0, "columns", "mask", "password"))  # a column
    False
    """
    if names_columns(path[:-1]):
        return False
    # Headers that a handler sends count too, such as X-Auth, whatever their names are.
    if tuple(path) in _OF_SECRETS or tuple(path[:5:2]) == ("tables", "handlers", "headers"):
        return True
    return path[:2] == ("tracing", "headers") or any(is_secret_key(str(key)) for key in path[-1:])


def names_columns(path: Sequence[object]) -> bool:
    """Whether the keys at this path are column names: a column may be called `password` without being secret.

    >>> [names_columns(("tables", 0, "columns", key)) for key in ("mask", "include")]
    [True, False]
    """
    return len(path) == 4 and (path[0], path[2]) == ("tables", "columns") and path[3] in _OF_COLUMNS


_SETTING = re.compile(r"""([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|[^;&,\s]+)""")


def passwords_in(text: str) -> Iterator[str]:
    """Yield the passwords in URLs (see `_secrets_in_urls`) or in a connection string, as they are written.

    >>> list(passwords_in("redis://shop:hunter2@cache:6379/0"))
    ['hunter2']
    >>> list(passwords_in("amqp://a:one/1@x,amqp://b:two?2@y http://host:8080/shop@2"))
    ['one/1', 'two?2']
    >>> list(passwords_in("https://store/box?sv=1&sig=abc%3D;AccountKey=def=="))
    ['abc%3D', 'def==']
    """
    yield from _secrets_in_urls(text)
    for key, value in _SETTING.findall(text):
        if is_secret_key(key):
            yield value[1:-1] if value[0] in "'\"" and len(value) > 1 else value


class Secrets:
    """The secret texts of one worker: those of its configuration, and of each one that it reloads later."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()  # serializes `_learn`
        self._texts: frozenset[str] = frozenset()
        self._forms: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._learn(texts)

    def learn(self, others: Secrets) -> None:
        """Also redact the texts of `others` from now on. Any thread may call this.

        Earlier secrets stay: errors that contain an earlier password may be shown much later."""
        self._learn(others._texts)

    def _learn(self, texts: Iterable[str]) -> None:
        with self._lock:
            known = self._texts | {text for text in texts if len(text) >= SHORTEST}
            if known == self._texts:
                return
            forms = {form for text in known for form in _forms(text) if len(form) >= SHORTEST}
            # Longest first, because a secret may be part of another one.
            self._forms = sorted(forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))
            self._texts = known

    def redact(self, text: str) -> str:
        """Replace every secret with `***`, including its JSON, Python and URL forms.

        >>> Secrets(["hunter2"]).redact("login failed: hunter2")
        'login failed: ***'
        >>> Secrets(['hunt"er2']).redact(json.dumps({"error": 'no user hunt"er2'}))
        '{"error": "no user ***"}'
        """
        pattern = self._pattern
        if pattern is None:
            return text
        text = pattern.sub(MASK, text)
        parts = _CUT.split(text)
        for before in range(0, len(parts) - 1, 2):
            if len(parts[before]) < SHORTEST:
                continue
            parts[before] = self._without_beginning(parts[before])
        return "".join(parts)

    def _without_beginning(self, told: str) -> str:
        """Redact the beginning of a secret at the end of `told`, which precedes a cut."""
        for form in self._forms:
            place = told.find(form[:SHORTEST], max(0, len(told) - len(form)))
            while place >= 0:
                if form.startswith(told[place:]):
                    return f"{told[:place]}{MASK}"
                place = told.find(form[:SHORTEST], place + 1)
        return told

    def __repr__(self) -> str:
        return "Secrets(***)"


def _forms(text: str) -> Iterator[str]:
    """Yield how others may write it: whole, by line, or on one line, and each of these escaped."""
    shapes = {text, text.strip(), " ".join(text.split())}
    if len(text.splitlines()) > 1:
        shapes |= {line.strip() for line in text.splitlines() if len(line.strip()) >= _SHORTEST_LINE}
    for shape in shapes:
        yield shape
        yield b64encode(
            shape.encode("utf-8", "surrogatepass")
        ).decode()  # the pair user:password of basic authorization
        yield from _in_urls(shape)
        # An error that quotes the JSON of another error is JSON itself.
        for once in _quoted(shape):
            yield once
            yield from _quoted(once)


def _quoted(text: str) -> Iterator[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    # If a text contains both kinds of quotation marks, Python also escapes the single ones.
    yield repr(text + "'\"")[1:-1].removesuffix("\\'\"")
    yield repr(text.encode("utf-8", "surrogatepass"))[2:-1]
    yield text.replace("'", "''")  # in SQL


def _in_urls(text: str) -> Iterator[str]:
    try:
        for form in (quote(text, safe=""), quote(text), quote_plus(text), unquote(text)):
            yield form
            yield re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form)
    except UnicodeError:  # a lone surrogate, which no URL can contain
        return


def _secrets_in_urls(text: str) -> Iterator[str]:
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
