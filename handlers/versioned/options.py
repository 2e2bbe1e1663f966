"""The options of all targets that store rows with versions."""

from __future__ import annotations

from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from handlers.options.http_values import TlsOptions, header_text, server_url


class VersionedOptions(BaseModel):
    """Options for the server, for what may be created and removed there, and for which changes win."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(description="The HTTP address of the server or cluster: https://HOST:PORT.")
    username: str | None = Field(default=None, min_length=1, description="The user, with `password`.")
    password: str | None = Field(default=None, min_length=1, repr=False, description="The user's password.")
    tls: TlsOptions = Field(default=TlsOptions(), description="Certificates.")
    create: bool = Field(
        default=True, description="Create missing databases, tables, indexes, columns and fields."
    )
    truncate: bool = Field(default=True, description="Whether TRUNCATE removes the table's rows.")
    drop_tables: bool = Field(default=False, description="Whether DROP TABLE removes the table's rows.")
    epoch: int = Field(
        default=0,
        ge=0,
        le=100,
        description="Increase it by one to let new writes override all existing rows.",
    )
    topic_again: dict[str, list[str]] = Field(
        default={},
        description="Id of a topic that is in use again after a fail-over to another cluster and back -> the "
        "ids that it follows.",
    )

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        return server_url(url, "a URL such as https://HOST:PORT, without user, password and query")

    @field_validator("username", "password")
    @classmethod
    def _fits_a_header(cls, value: str | None) -> str | None:
        return header_text(value, ascii_only=False)

    @model_validator(mode="after")
    def _belong_together(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("set both username and password")
        return self
