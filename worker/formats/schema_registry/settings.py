"""The `schema_registry:` section: the registry for records that name their schemas by id."""

from __future__ import annotations

from functools import partial
from typing import Annotated, Literal, Self

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator

from handlers.options.shared import Section, TlsOptions, server_url
from handlers.options.values import PositiveDuration, PositiveSize, duration, not_allowed, size, text

_URL = "a URL such as https://HOST:8081, without a user in it (basic_auth), a query or a fragment"

Url = Annotated[
    str,
    PlainValidator(lambda value: text(value, partial(server_url, allowed=_URL), _URL)),
    WithJsonSchema({"type": "string"}),
]


class BasicAuth(Section):
    """A user and its password."""

    username: str = Field(min_length=1)
    """The user, or an API key."""
    password: str
    """The user's password, or the API key's secret."""


class SchemaRegistrySettings(Section):
    """The registry with the schemas of Debezium's records in Avro, JSON Schema or Protobuf; see
    docs/schema-registry.md."""

    url: Url
    """The registry's URL: the root of Confluent's API, or .../apis/registry/v3 of Apicurio's own API."""
    api: Literal["confluent", "apicurio"] = "confluent"
    """The registry's REST API. Apicurio also has Confluent's API, at .../apis/ccompat/v7."""
    ids: Literal["content", "global"] = "content"
    """The kind of Apicurio ids in the records. Only Apicurio's own API distinguishes the kinds."""
    id_bytes: Literal[4, 8] = 4
    """Bytes of the id in a record: 4 with Confluent's and Apicurio's present converters, 8 with Apicurio's
    earlier ones."""
    ids_in: Literal["value", "header"] = "value"
    """The place of the ids: before the bytes of keys and values, or in headers of the record (Confluent's
    HeaderSchemaIdSerializer, Apicurio's headers.enabled). Records without such headers are read as usual."""
    basic_auth: BasicAuth | None = None
    """The user for requests."""
    bearer_token: str | None = Field(default=None, min_length=1)
    """A token, instead of a user."""
    tls: TlsOptions = TlsOptions()
    """Certificates."""
    max_memory: PositiveSize = size("160MiB")
    """The approximate memory for prepared schemas. A schema that does not fit is prepared again when a record
    needs it, which takes some milliseconds."""
    timeout: PositiveDuration = duration("10s")
    """The timeout for a connection, and for each part of an answer."""

    @model_validator(mode="after")
    def _one_proof(self) -> Self:
        if self.basic_auth is not None and self.bearer_token is not None:
            raise not_allowed("basic_auth or bearer_token, not both")
        return self
