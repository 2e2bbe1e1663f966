"""What must never be shown: values that came from variables and files, and those of secret keys."""

from __future__ import annotations

import re
from collections.abc import Iterable

__all__ = ["MASK", "Secrets", "is_secret_key"]

MASK = "***"

# Shorter texts stand in too many harmless words to be taken out of them.
_SHORTEST = 4

_SECRET_KEY = re.compile(
    r"password|passwd|passphrase|secret|token|credential|private|api_?key|access_?key|jaas"
    r"|oauthbearer\.config|ssl\.key\.pem|ssl\.keystore|webhook_url",
    re.IGNORECASE,
)
_HARMLESS_KEY = re.compile(r"\.location$|token\.endpoint\.url$", re.IGNORECASE)


def is_secret_key(key: str) -> bool:
    """Whether the value of such a key is a secret by its name (`sasl.password`, `api_key`)."""
    return _SECRET_KEY.search(key) is not None and _HARMLESS_KEY.search(key) is None


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
