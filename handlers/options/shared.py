"""The base class of all sections, and options that several targets share."""

from __future__ import annotations

import ast
import inspect
import textwrap
from functools import partial
from itertools import pairwise
from typing import Annotated, Any, Literal, Self
from urllib.parse import SplitResult, urlsplit

from pydantic import BaseModel, ConfigDict, Field, GetJsonSchemaHandler, field_validator, model_validator
from pydantic_core import CoreSchema

from handlers.options.values import not_allowed


class Section(BaseModel):
    """A mapping of the configuration, with known keys and immutable values.

    The docstring after each key is the key's description in the JSON Schema."""

    model_config = ConfigDict(strict=True, frozen=True, extra="forbid")

    @classmethod
    def __get_pydantic_json_schema__(
        cls, core_schema: CoreSchema, handler: GetJsonSchemaHandler, /
    ) -> dict[str, Any]:
        # pydantic's use_attribute_docstrings would read the source of every model at each start.
        schema = handler(core_schema)
        properties = handler.resolve_ref_schema(schema)["properties"]
        told = _docstrings(cls)
        for name, field in cls.model_fields.items():
            found = properties.get(field.alias or name)
            # As pydantic does: do not repeat a description that the referenced schema already has.
            if found is not None and told[name] != handler.resolve_ref_schema(found).get("description"):
                found["description"] = told[name]
        return schema


class Options(Section):
    """A section of a handler. Its values are converted if pydantic can do so."""

    model_config = ConfigDict(strict=False)


def _docstrings(model: type[Section]) -> dict[str, str]:
    """Return each key's docstring, including the keys of base classes."""
    found: dict[str, str] = {}
    for each in reversed(model.__mro__):
        if each not in (Section, Options) and issubclass(each, Section):
            [source] = ast.parse(textwrap.dedent(inspect.getsource(each))).body
            assert isinstance(source, ast.ClassDef)
            for key, behind in pairwise(source.body):
                match key, behind:
                    case (
                        ast.AnnAssign(target=ast.Name(id=name)),
                        ast.Expr(value=ast.Constant(value=str(text))),
                    ):
                        found[name] = " ".join(text.split())
    return found


class HistoryOptions(Section):
    """Whether a target keeps rows or their versions. A part of a handler's options."""

    mode: Literal["replica", "history"] = "replica"
    """`replica`: the source's rows. `history`: every version of each row, with its period of validity."""
    start_column: Annotated[str, Field(min_length=1)] = "__START_AT"
    """With mode: history, the column with the source time from which a version is valid, in UTC."""
    end_column: Annotated[str, Field(min_length=1)] = "__END_AT"
    """With mode: history, the column with the time at which the next version began; NULL: it is the current
    one."""

    @model_validator(mode="after")
    def _two_columns(self) -> Self:
        if self.start_column.lower() == self.end_column.lower():
            raise ValueError("start_column and end_column need two names")
        return self

    @property
    def period(self) -> tuple[str, str] | None:
        """The columns with the start and the end of versions. None: it keeps replicas."""
        return (self.start_column, self.end_column) if self.mode == "history" else None


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
