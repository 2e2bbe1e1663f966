"""Options of handlers that speak HTTP."""

from __future__ import annotations

import httpx

from handlers.options.values import not_allowed

__all__ = ["header_text", "server_url"]


def server_url(url: str, example: str) -> str:
    """A server's URL, without a slash at its end. Raises PydanticCustomError, which does not repeat it."""
    allowed = f"a URL such as {example}, without user, password and query"
    try:
        read = httpx.URL(url)
    except httpx.InvalidURL:
        raise not_allowed(allowed) from None
    if read.scheme not in ("http", "https") or not read.host or read.userinfo or read.query:
        raise not_allowed(allowed)
    return url.rstrip("/")


def header_text(value: str | None, *, ascii_only: bool = True) -> str | None:
    """A header's value. Raises ValueError, which does not repeat it."""
    if value is not None and not (value.isprintable() and (value.isascii() or not ascii_only)):
        kind = "ASCII without line breaks" if ascii_only else "no line breaks"
        raise ValueError(f"it cannot stand in a header: {kind}")
    return value
