"""What must never be shown: values that came from variables and files, and those of secret keys."""

from __future__ import annotations

import itertools
import json
import re
import threading
from base64 import b64encode
from collections.abc import Iterable, Iterator, Sequence
from urllib.parse import quote, quote_plus, unquote

from worker.configuration.url_secrets import secrets_in_urls

MASK = "***"

# Shorter texts stand in too many harmless words to be taken out of them.
SHORTEST = 4
# Of a text of several lines: shorter ones are the braces of a JSON file and its like.
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
    # The last two are Azure's.
    "api access account shared encryption signing master client hmac ssh functions subscription".split()  # noqa: SIM905
)
"""Words that make a key a secret when they stand before the word "key"."""
_OF_SECRETS = (("masking",), ("schema_registry", "basic_auth"))
"""Mappings in whose place a secret is written by mistake."""
_OF_COLUMNS = ("rename", "mask", "cast", "add")
"""Keys of a table's `columns` below which columns stand."""


def is_secret_key(key: str) -> bool:
    """Whether the value of such a key is a secret by its name.

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
    """Whether what stands there, below keys and numbers, is a secret by where it stands.

    >>> [is_secret_place(path) for path in (("http", "token"), ("tracing", "headers", "x-team"), ("name",))]
    [True, True, False]
    >>> is_secret_place(("tables", 0, "columns", "mask", "password"))  # a column of that name
    False
    """
    if names_columns(path[:-1]):
        return False
    # Also of the headers that a handler sends, such as X-Auth: whatever their names are.
    if tuple(path) in _OF_SECRETS or tuple(path[:5:2]) == ("tables", "handlers", "headers"):
        return True
    return path[:2] == ("tracing", "headers") or any(is_secret_key(str(key)) for key in path[-1:])


def names_columns(path: Sequence[object]) -> bool:
    """Whether the keys there are names of columns, which may be `password` without a secret below.

    >>> [names_columns(("tables", 0, "columns", key)) for key in ("mask", "include")]
    [True, False]
    """
    return len(path) == 4 and (path[0], path[2]) == ("tables", "columns") and path[3] in _OF_COLUMNS


_SETTING = re.compile(r"""([\w.-]+)\s*=\s*("[^"]*"|'[^']*'|[^;&,\s]+)""")


def passwords_in(text: str) -> Iterator[str]:
    """The passwords that URLs (see `secrets_in_urls`) or a connection string hold, as they stand there.

    >>> list(passwords_in("redis://shop:hunter2@cache:6379/0"))
    ['hunter2']
    >>> list(passwords_in("amqp://a:one/1@x,amqp://b:two?2@y http://host:8080/shop@2"))
    ['one/1', 'two?2']
    >>> list(passwords_in("https://store/box?sv=1&sig=abc%3D;AccountKey=def=="))
    ['abc%3D', 'def==']
    """
    yield from secrets_in_urls(text)
    for key, value in _SETTING.findall(text):
        if is_secret_key(key):
            yield value[1:-1] if value[0] in "'\"" and len(value) > 1 else value


class Secrets:
    """The secret texts of one worker: those of its configuration, and of each that it takes over later."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        self._lock = threading.Lock()  # one learns at a time
        self._texts: frozenset[str] = frozenset()
        self._forms: list[str] = []
        self._pattern: re.Pattern[str] | None = None
        self._learn(texts)

    def learn(self, others: Secrets) -> None:
        """Take out their texts as well from now on, whoever holds `redact`. Any thread.

        What was secret stays so: errors that were met with an earlier password are shown for long.
        """
        self._learn(others._texts)

    def _learn(self, texts: Iterable[str]) -> None:
        with self._lock:
            known = self._texts | {text for text in texts if len(text) >= SHORTEST}
            if known == self._texts:
                return
            forms = {form for text in known for form in _forms(text) if len(form) >= SHORTEST}
            # Longest first: a secret may be a part of another one.
            self._forms = sorted(forms, key=lambda form: (-len(form), form))
            self._pattern = re.compile("|".join(map(re.escape, self._forms)))
            self._texts = known

    def redact(self, text: str) -> str:
        """The text with every secret replaced by `***`, also where it stands as in JSON, Python or a URL.

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
        """What stands before a cut, without the beginning of a secret at its end."""
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
    """How others may write it: whole, line by line, or on one line; and each of these escaped."""
    shapes = {text, text.strip(), " ".join(text.split())}
    if len(text.splitlines()) > 1:
        shapes |= {line.strip() for line in text.splitlines() if len(line.strip()) >= _SHORTEST_LINE}
    for shape in shapes:
        yield shape
        yield b64encode(
            shape.encode("utf-8", "surrogatepass")
        ).decode()  # a pair of user:password, as Basic has it
        yield from _in_urls(shape)
        # An error that quotes another one's JSON is written as JSON itself.
        for once in _quoted(shape):
            yield once
            yield from _quoted(once)


def _quoted(text: str) -> Iterator[str]:
    yield json.dumps(text)[1:-1]
    yield json.dumps(text, ensure_ascii=False)[1:-1]
    yield repr(text)[1:-1]
    # Beside a quotation mark of the other kind, Python escapes what it else leaves as it is.
    yield repr(text + "'\"")[1:-1].removesuffix("\\'\"")
    yield repr(text.encode("utf-8", "surrogatepass"))[2:-1]
    yield text.replace("'", "''")  # in SQL


def _in_urls(text: str) -> Iterator[str]:
    try:
        for form in (quote(text, safe=""), quote(text), quote_plus(text), unquote(text)):
            yield form
            yield re.sub("%[0-9A-F]{2}", lambda code: code[0].lower(), form)
    except UnicodeError:  # half a character, which no URL can hold
        return
