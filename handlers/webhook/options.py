"""The options of the `webhook` handler."""

from __future__ import annotations

import re
from typing import Literal

import httpx
from pydantic import BaseModel, ConfigDict, Field, field_validator

from handlers.http.client import segment
from handlers.options.http_values import TlsOptions
from handlers.options.templates import Template
from handlers.options.values import PositiveDuration, duration, not_allowed

_URLS = "a URL such as https://HOST/path, which may contain {database} and {table}"
# https://www.rfc-editor.org/rfc/rfc9110#name-tokens, #name-field-values
_HEADER_NAME = re.compile(r"[A-Za-z0-9!#$%&'*+.^_`|~-]+")
_HEADER_VALUE = re.compile(r"[\x21-\x7e]([\x20-\x7e\t]*[\x21-\x7e])?")
_OWNED = frozenset(("content-length", "host", "transfer-encoding", "connection", "idempotency-key"))


class SignatureOptions(BaseModel):
    """Options `signature:`, with which the receiver verifies that a request is from binlane."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    secret: str = Field(min_length=1, description="The secret that both sides know.")
    header: str = Field(default="X-Binlane-Signature", description="The header of the signature.")
    timestamp_header: str = Field(
        default="X-Binlane-Timestamp", description="The header of the time, which is signed with the body."
    )

    @field_validator("header", "timestamp_header")
    @classmethod
    def _are_names(cls, name: str) -> str:
        return _header_name(name)


class WebhookOptions(BaseModel):
    """The keys of a `type: webhook` entry."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    url: str = Field(description="The URL to send to; {database} and {table} are replaced.")
    method: Literal["POST", "PUT", "PATCH"] = Field(default="POST", description="The HTTP method.")
    headers: dict[str, str] = Field(default={}, description="More headers, such as Authorization.")
    format: Literal["json", "ndjson"] = Field(
        default="json", description="A JSON object with a list of changes, or a change on each line."
    )
    max_changes: int = Field(default=500, ge=1, le=100_000, description="The most changes in one request.")
    timeout: PositiveDuration = duration(
        "30s", "How long to wait for a connection, and for each part of the answer."
    )
    signature: SignatureOptions | None = Field(default=None, description="Sign each request (HMAC-SHA256).")
    tls: TlsOptions = Field(default=TlsOptions(), description="Certificates.")

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        try:
            template = Template(url, row=False)
            whole, start = httpx.URL(address(template, "d", "t")), httpx.URL(literal_start(template))
        except httpx.InvalidURL:
            raise not_allowed(_URLS) from None
        # The name of a table must not choose the host.
        if whole.scheme not in ("http", "https") or not whole.host or start.netloc != whole.netloc:
            raise not_allowed(_URLS)
        return url

    @field_validator("headers")
    @classmethod
    def _headers_are_usable(cls, headers: dict[str, str]) -> dict[str, str]:
        for name, value in headers.items():
            if _header_name(name).lower() in _OWNED:
                raise ValueError(f"the handler sets {name} itself: remove it")
            if not _HEADER_VALUE.fullmatch(value):
                raise ValueError(f"the value of {name} is not allowed in a header (ASCII, no line breaks)")
        return headers


def literal_start(template: Template) -> str:
    """Return the part before the first placeholder."""
    first = template.parts[0] if template.parts else ""
    return first if isinstance(first, str) else ""


def address(template: Template, database: str, table: str) -> str:
    """Return the URL for a table, with its names percent-encoded."""
    return template.of_table(database, table, encode=segment)


def _header_name(name: str) -> str:
    if not _HEADER_NAME.fullmatch(name):
        raise ValueError(f"{name!r} is not a header name")
    return name
