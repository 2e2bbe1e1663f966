"""The options of the `elasticsearch` handler."""

from __future__ import annotations

import re
from typing import Self

from pydantic import Field, field_validator, model_validator

from handlers.options.section import header_text
from handlers.options.templates import Template
from handlers.options.values import PositiveDuration, PositiveSize, duration, size
from handlers.versioned.options import VersionedOptions

_NAMED = re.compile(r"[A-Za-z0-9._-]*")


class ElasticsearchOptions(VersionedOptions):
    """The keys of a `type: elasticsearch` (or `opensearch`) entry."""

    api_key: str | None = Field(default=None, min_length=1, repr=False)
    """An API key, encoded, instead of a user."""
    index: str = "{database}.{table}"
    """The table's index or its alias; {database} and {table} are replaced, in lower case."""
    keep_deletes: PositiveDuration = duration("1h")
    """`index.gc_deletes` of created indexes: how long a deleted row's version is remembered."""
    max_bytes: PositiveSize = size("8MiB")
    """The most bytes of one request. A larger row is sent alone."""
    timeout: PositiveDuration = duration("60s")
    """The timeout for a connection, and for an answer."""

    _is_encoded = field_validator("api_key")(header_text)

    @field_validator("index")
    @classmethod
    def _index_tells_tables_apart(cls, index: str) -> str:
        template = Template(index, row=False)
        if not any(field.kind == "table" for field in template.fields):
            raise ValueError("every table would have the same index: add {table}")
        if not all(_NAMED.fullmatch(part) for part in template.parts if isinstance(part, str)):
            raise ValueError("besides {database} and {table}: letters, digits, '.', '_' and '-'")
        return index

    @model_validator(mode="after")
    def _one_login(self) -> Self:
        if self.username is not None and self.api_key is not None:
            raise ValueError("either username and password, or api_key")
        return self
