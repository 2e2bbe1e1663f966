"""The options of all targets that store rows with versions."""

from __future__ import annotations

from functools import partial
from typing import Self

from pydantic import ConfigDict, Field, field_validator, model_validator

from handlers.options.section import Options, TlsOptions, header_text, server_url


class VersionedOptions(Options):
    """Options for the server, for what may be created and removed there, and for which changes win."""

    model_config = ConfigDict(hide_input_in_errors=True)

    url: str
    """The HTTP address of the server or cluster: https://HOST:PORT."""
    username: str | None = Field(default=None, min_length=1)
    """The user, with `password`."""
    password: str | None = Field(default=None, min_length=1, repr=False)
    """The user's password."""
    tls: TlsOptions = Field(default=TlsOptions())
    """Certificates."""
    create: bool = True
    """Create missing databases, tables, indexes, columns and fields."""
    truncate: bool = True
    """Whether TRUNCATE removes the table's rows."""
    drop_tables: bool = False
    """Whether DROP TABLE removes the table's rows."""
    epoch: int = Field(default=0, ge=0, le=100)
    """Increase it by one to let new writes override all existing rows."""
    topic_again: dict[str, list[str]] = Field(default={})
    """Id of a topic that is in use again after a fail-over to another cluster and back -> the ids that it
    follows."""

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        return server_url(url, "a URL such as https://HOST:PORT, without user, password and query")

    _fits_a_header = field_validator("username", "password")(partial(header_text, ascii_only=False))

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("set both username and password")
        return self
