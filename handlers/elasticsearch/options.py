"""The options of the `elasticsearch` handler."""

from __future__ import annotations

import re
from typing import Self

from pydantic import BaseModel, ConfigDict, Field, field_validator, model_validator

from handlers.options.http_values import TlsOptions, header_text, server_url
from handlers.options.templates import Template, TemplateError
from handlers.options.values import PositiveDuration, PositiveSize, duration, size

__all__ = ["ElasticsearchOptions"]

_NAMED = re.compile(r"[A-Za-z0-9._-]*")


class ElasticsearchOptions(BaseModel):
    """The keys of a `type: elasticsearch` (or `opensearch`) entry."""

    model_config = ConfigDict(extra="forbid", frozen=True, hide_input_in_errors=True)

    url: str = Field(description="Where the cluster, or what balances its load, is: https://HOST:9200.")
    username: str | None = Field(default=None, min_length=1, description="The user, with `password`.")
    password: str | None = Field(default=None, min_length=1, repr=False, description="The user's password.")
    api_key: str | None = Field(
        default=None, min_length=1, repr=False, description="An API key, encoded, instead of a user."
    )
    tls: TlsOptions = Field(default=TlsOptions(), description="Certificates.")
    index: str = Field(
        default="{database}.{table}",
        description="The table's index, or an alias of it; {database} and {table} are replaced, in lower "
        "case.",
    )
    create: bool = Field(
        default=True, description="Make missing indexes, and add missing fields to their mappings."
    )
    keep_deletes: PositiveDuration = duration(
        "1h",
        "`index.gc_deletes` of indexes that are made: how long a deleted row's version is remembered.",
    )
    truncate: bool = Field(default=True, description="Whether TRUNCATE removes the table's documents.")
    drop_tables: bool = Field(default=False, description="Whether DROP TABLE removes the table's documents.")
    epoch: int = Field(
        default=0,
        ge=0,
        le=100,
        description="One more: what is written from now on wins over all that is there.",
    )
    topic_again: dict[str, list[str]] = Field(
        default={},
        description="Id of a topic that is live again, after a fail-over to another cluster and back -> the "
        "ids that it follows.",
    )
    max_bytes: PositiveSize = size("8MiB", "Of one request; a larger row goes alone.")
    timeout: PositiveDuration = duration("60s", "How long to wait for a connection, and for an answer.")

    @field_validator("url")
    @classmethod
    def _url_is_usable(cls, url: str) -> str:
        return server_url(url, "a URL such as https://HOST:9200, without user, password and query")

    @field_validator("api_key", "username", "password")
    @classmethod
    def _fits_a_header(cls, value: str | None) -> str | None:
        return header_text(value, ascii_only=False)

    @field_validator("api_key")
    @classmethod
    def _is_encoded(cls, value: str | None) -> str | None:
        return header_text(value)

    @field_validator("index")
    @classmethod
    def _index_tells_tables_apart(cls, index: str) -> str:
        try:
            template = Template(index, row=False)
        except TemplateError as error:
            raise ValueError(str(error)) from None
        if not any(field.kind == "table" for field in template.fields):
            raise ValueError("every table would have the same index: it needs {table}")
        if not all(_NAMED.fullmatch(part) for part in template.parts if isinstance(part, str)):
            raise ValueError("besides {database} and {table}: letters, digits, '.', '_' and '-'")
        return index

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        if (self.username is None) != (self.password is None):
            raise ValueError("username and password belong together")
        if self.username is not None and self.api_key is not None:
            raise ValueError("either username and password, or api_key")
        return self
