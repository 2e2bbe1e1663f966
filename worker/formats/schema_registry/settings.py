"""The `schema_registry:` section: where the schemas of records are that name theirs by an id."""

from __future__ import annotations

from typing import Annotated, Literal, Self
from urllib.parse import urlsplit

from pydantic import Field, PlainValidator, WithJsonSchema, model_validator
from pydantic_core import PydanticCustomError

from handlers.options.section import Section
from handlers.options.values import PositiveDuration, PositiveSize, duration, not_allowed, size, text

__all__ = ["RegistryTls", "SchemaRegistrySettings"]

_URL = "a URL such as https://HOST:8081, without a user in it (basic_auth), a query or a fragment"


def _url(value: str) -> str:
    try:
        parts = urlsplit(value)
        usable = bool(parts.scheme in ("http", "https") and parts.hostname and parts.port != 0)
    except ValueError:
        usable = False
    if not usable or parts.username is not None or parts.query or parts.fragment or "\\" in value:
        raise not_allowed(_URL)
    return value.rstrip("/")


Url = Annotated[
    str, PlainValidator(lambda value: text(value, _url, _URL)), WithJsonSchema({"type": "string"})
]


class RegistryTls(Section):
    """Certificates. Paths start at the configuration file's folder."""

    verify: bool = True
    """Whether the registry must prove who it is."""
    ca: str | None = Field(default=None, min_length=1)
    """A file of certificates (PEM) to trust beside the usual ones."""
    certificate: str | None = Field(default=None, min_length=1)
    """Our own certificate (PEM), for a registry that asks for one."""
    key: str | None = Field(default=None, min_length=1)
    """Its private key, if the certificate's file does not hold it."""


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
    tls: RegistryTls = Field(default_factory=RegistryTls)
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
