"""Options of HTTP clients."""

from __future__ import annotations

from urllib.parse import SplitResult, urlsplit

from pydantic import Field

from handlers.options.section import Options
from handlers.options.values import not_allowed


class TlsOptions(Options):
    """Options `tls:` for services with their own certificates. Paths start at the configuration's folder."""

    verify: bool = True
    """Whether to verify the service's certificate."""
    ca: str | None = Field(default=None, min_length=1)
    """A file of additional certificates (PEM) to trust."""
    certificate: str | None = Field(default=None, min_length=1)
    """binlane's certificate (PEM), for services that require one."""
    key: str | None = Field(default=None, min_length=1)
    """Its private key, unless the certificate's file contains it."""


def server_url(url: str, allowed: str) -> str:
    """Return a server's URL without a slash at its end.

    Raises PydanticCustomError, which says what is `allowed` and does not repeat the URL."""
    parts = http_parts(url)
    if parts is None or parts.username is not None or parts.query or parts.fragment or "\\" in url:
        raise not_allowed(allowed)
    return url.rstrip("/")


def http_parts(url: str) -> SplitResult | None:
    """Split a URL; None if it is not an HTTP URL."""
    try:
        parts = urlsplit(url)
        is_usable = parts.scheme in ("http", "https") and parts.hostname and parts.port != 0
    except ValueError:
        return None
    return parts if is_usable else None


def header_text(value: str | None, *, ascii_only: bool = True) -> str | None:
    """Return a header's value after a check. Raises ValueError, which does not repeat it."""
    if value is not None and not (value.isprintable() and (value.isascii() or not ascii_only)):
        kind = "ASCII without line breaks" if ascii_only else "no line breaks"
        raise ValueError(f"not allowed in a header: {kind}")
    return value
