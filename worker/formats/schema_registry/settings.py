"""The `schema_registry:` section: where the schemas of records are that name theirs by an id."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from handlers.options.http_values import TlsOptions, server_url
from handlers.options.section import Section
from handlers.options.values import PositiveDuration, PositiveSize, duration, size, text

_URL = "a URL such as https://HOST:8081, without a user in it (basic_auth), a query or a fragment"

Url = Annotated[
    str,
    PlainValidator(lambda value: text(value, partial(server_url, allowed=_URL), _URL)),
    WithJsonSchema({"type": "string"}),
]


class BasicAuth(Section):
    """A user and its password."""

    username: str = Field(min_length=1)
    """The user, or the key of an API."""
    password: str
    """Its password, or the secret of that key."""


class SchemaRegistrySettings(Section):
    """The registry that has the schemas of Debezium's records in Avro, JSON Schema or Protobuf; see
    docs/schema-registry.md."""

    url: Url
    """Where the registry answers: of Confluent's API its root, of Apicurio's own .../apis/registry/v3."""
    api: Literal["confluent", "apicurio"] = "confluent"
    """Whose REST API it speaks; Apicurio has Confluent's, too, at .../apis/ccompat/v7."""
    ids: Literal["content", "global"] = "content"
    """Which of Apicurio's ids the records hold; its API alone tells them apart."""
    id_bytes: Literal[4, 8] = 4
    """How long the id in a record is: 4 of Confluent's and Apicurio's present converters, 8 of its earlier
    ones."""
    ids_in: Literal["value", "header"] = "value"
    """Where the ids are: before the bytes of keys and values, or in headers of the record (Confluent's
    HeaderSchemaIdSerializer, Apicurio's headers.enabled); records without such headers are read as ever."""
    basic_auth: BasicAuth | None = None
    """The user that asks."""
    bearer_token: str | None = Field(default=None, min_length=1)
    """A token, instead of a user."""
    tls: TlsOptions = TlsOptions()
    """Certificates."""
    max_memory: PositiveSize = size("160MiB")
    """How much memory schemas may take that are ready for records, about. If records need more of them, each
    that has no room is made ready again when a record needs it, which takes some milliseconds."""
    timeout: PositiveDuration = duration("10s")
    """How long to wait for a connection, and for each part of an answer."""

    @model_validator(mode="after")
    def _one_proof(self) -> Self:
        if self.basic_auth is not None and self.bearer_token is not None:
            raise PydanticCustomError(
                "not_allowed",
                "allowed: {allowed}",
                {"allowed": "basic_auth or bearer_token, not both", "nearest": None},
            )
        return self
