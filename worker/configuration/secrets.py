"""What must never be shown: values that came from variables and files, and those of secret keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["MASK", "Secrets", "is_secret_key", "password_in"]

MASK = "***"

# Shorter texts stand in too many harmless words to be taken out of them.
_SHORTEST = 4

_SECRET_KEY = re.compile(
    r"password|passwd|passphrase|secret|token|credential|private|api_?key|access_?key|jaas"
    r"|oauthbearer\.config|ssl\.key\.pem|ssl\.keystore|webhook_url|authorization$|cookie$",
    re.IGNORECASE,
)
_HARMLESS_KEY = re.compile(r"\.location$|token\.endpoint\.url$", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Whether the value of such a key is a secret by its name (`sasl.password`, `api_key`)."""
    return _SECRET_KEY.search(key) is not None and _HARMLESS_KEY.search(key) is None


_PASSWORD = re.compile(r"//[^/?#@:]*:([^/?#]*)@")  # of a mistyped URL, too


def password_in(text: str) -> str | None:
    """The password of a URL that names one, as it stands there.

    >>> password_in("redis://shop:hunter2@cache:6379/0")
    'hunter2'
    """
    found = _PASSWORD.search(text)
    return found[1] if found else None


class Secrets:
    """The secret texts of one configuration."""

    def __init__(self, texts: Iterable[str] = ()) -> None:
        # Longest first: a secret may be a part of another one.
        known = sorted({text for text in texts if len(text) >= _SHORTEST}, key=len, reverse=True)
        self._pattern = re.compile("|".join(map(re.escape, known))) if known else None

    def redact(self, text: str) -> str:
        """The text with every secret replaced by `***`.

        >>> Secrets(["hunter2"]).redact("login failed: hunter2")
        'login failed: ***'
        """
        return self._pattern.sub(MASK, text) if self._pattern else text

    def __repr__(self) -> str:
        return "Secrets(***)"
