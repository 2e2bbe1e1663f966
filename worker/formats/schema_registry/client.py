"""A client of the schema registry, for the REST API of Confluent or Apicurio.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
https://www.apicur.io/registry/docs/apicurio-registry/3.0.x/assets-attachments/registry-rest-api.htm"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from handlers.api import TargetUnavailable
from handlers.http.client import Answer, AnswerTooLarge, HttpClient, basic_login, segment, trusted
from worker.formats.json_rows import object_in
from worker.formats.schema_registry.ids import SchemaId
from worker.formats.schema_registry.settings import SchemaRegistrySettings

T = TypeVar("T")

_MOST_BYTES = 8 << 20
"""Most bytes of one answer. A schema with some thousand columns has 1 MiB."""
_MOST_REFERENCES = 200
_MOST_NUMBER = 2**31 - 1
"""The largest id of Confluent. For a larger one, the registry answers as for an unknown path."""
_SERIALIZED = "?format=serialized"
"""Requests Protobuf's descriptors instead of its source text."""
_UNKNOWN = (40401, 40402, 40403)
"""Confluent's error codes: no such subject, version, schema."""
_NO_RESOURCE = "NotFoundException"
"""Apicurio's error name for an unknown path. ArtifactNotFoundException and similar names concern schemas."""


class RegistryUnavailable(Exception):
    """The registry does not answer, or cannot answer now. Retry later."""


class _NoResource(RegistryUnavailable):
    """Apicurio has no such path."""


class UnknownSchema(Exception):
    """The registry has no such schema."""


class UnusableSchema(ValueError):
    """The registry has the schema, but it is unusable: for example too large, or with circular references."""


class Registered(msgspec.Struct, frozen=True):
    """A schema from the registry."""

    kind: str
    """AVRO, JSON or PROTOBUF."""
    text: str
    references: tuple[str, ...] = ()
    """The texts of referenced schemas. Each follows its own references."""
    names: tuple[str, ...] = ()
    """The names under which schemas refer to them."""


class _Reference(msgspec.Struct, gc=False):
    name: str = ""
    subject: str = ""
    version: int | str = ""
    group: str | None = msgspec.field(name="groupId", default=None)
    artifact: str = msgspec.field(name="artifactId", default="")


class _Schema(msgspec.Struct, gc=False):
    """An answer of Confluent's API."""

    text: str = msgspec.field(name="schema")
    kind: str = msgspec.field(name="schemaType", default="AVRO")
    references: list[_Reference] | None = None


_read_schema = msgspec.json.Decoder(_Schema, strict=False).decode
_read_references = msgspec.json.Decoder(list[_Reference], strict=False).decode


class Client:
    """A client for one thread at a time. It calls only the configured URL and follows no redirects."""

    def __init__(self, settings: SchemaRegistrySettings, folder: Path) -> None:
        """`folder`: base of relative certificate paths. Raises OSError if a certificate is unreadable."""
        self._settings = settings
        self._url = settings.url
        headers, user = {"Accept": "application/json, */*"}, settings.basic_auth
        if settings.bearer_token is not None:
            headers["Authorization"] = f"Bearer {settings.bearer_token}"
        elif user is not None:
            headers["Authorization"] = f"Basic {basic_login(user.username, user.password)}"
        self._client = HttpClient(
            settings.url,
            trusted(settings.url, settings.tls, folder, where="schema_registry.tls"),
            timeout=settings.timeout,
            headers=headers,
            secrets=[None if user is None else user.password],
        )

    def close(self) -> None:
        self._client.close()

    def reach(self) -> str:
        """Send a request that every registry answers. Returns a phrase for a report. Raises
        RegistryUnavailable."""
        self._get("/schemas/types" if self._settings.api == "confluent" else "/system/info")
        return f"the API of {self._settings.api}"

    def schema(self, named: SchemaId) -> Registered:
        """The schema with this id. Raises RegistryUnavailable, UnknownSchema, UnusableSchema."""
        if self._settings.api == "confluent":
            return self._of_confluent(named)
        return self._of_apicurio(named)

    # ---- Confluent

    def _of_confluent(self, named: SchemaId) -> Registered:
        if named.kind == "global":  # this API reads them as content ids
            raise UnusableSchema("its schema has a global id of Apicurio: set schema_registry.api: apicurio")
        if named.kind != "guid" and int(named.text) > _MOST_NUMBER:
            raise UnusableSchema(f"not a schema id: the largest is {_MOST_NUMBER}")
        place = f"/schemas/{'guids' if named.kind == 'guid' else 'ids'}/{named.text}"
        found = self._read(_read_schema, place)
        text, form = found.text, ""
        if found.kind == "PROTOBUF":
            form = _SERIALIZED
            text = self._read(_read_schema, place + form).text

        def of_reference(each: _Reference) -> tuple[str, list[_Reference] | None]:
            place = f"/subjects/{segment(each.subject)}/versions/{segment(str(each.version))}{form}"
            found = self._read(_read_schema, place)
            return found.text, found.references

        return _registered(found.kind, text, found.references, of_reference)

    # ---- Apicurio

    def _of_apicurio(self, named: SchemaId) -> Registered:
        if named.kind == "guid":
            raise UnusableSchema("its schema has a Confluent GUID: set schema_registry.api: confluent")
        kind = self._settings.ids if named.kind == "number" else named.kind
        place = f"/ids/{kind}Ids/{named.text}"
        try:
            answer = self._answer(place)
        except _NoResource as fault:  # Apicurio's answer for an unknown id
            self.reach()
            raise UnknownSchema(str(fault)) from None
        language = answer.headers.get("X-Registry-ArtifactType") or _kind_of(answer.content)
        return _registered(language.upper(), answer.content.decode(), self._references(place), self._artifact)

    def _artifact(self, each: _Reference) -> tuple[str, list[_Reference] | None]:
        group, artifact, version = map(segment, (each.group or "default", each.artifact, str(each.version)))
        place = f"/groups/{group}/artifacts/{artifact}/versions/{version}"
        content = self._get(place if "/v2" in self._url else f"{place}/content")
        return content.decode(), self._references(place)

    def _references(self, place: str) -> list[_Reference]:
        """The references of the schema at this path. Empty for Apicurio before 2.2: it has none."""
        try:
            return self._read(_read_references, f"{place}/references")
        except _NoResource:
            return []

    # ---- HTTP

    def _read(self, read: Callable[[bytes], T], path: str) -> T:
        """Get and decode an answer. Raises RegistryUnavailable for others, such as a proxy's login page."""
        content = self._get(path)
        try:
            return read(content)
        except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
            raise RegistryUnavailable(
                f"the answer of {self._url} does not belong to the API of {self._settings.api}: {error}"
            ) from None

    def _get(self, path: str) -> bytes:
        return self._answer(path).content

    def _answer(self, path: str) -> Answer:
        try:
            answer = self._client.request("GET", self._url + path, most_bytes=_MOST_BYTES)
        except TargetUnavailable as error:
            raise RegistryUnavailable(str(error)) from None
        except AnswerTooLarge as error:
            raise UnusableSchema(f"the registry's answer: {error}") from None
        if answer.status == 200:
            return answer
        fields = object_in(answer.content) or {}  # another server's page is no object
        if answer.status == 404 and _says_unknown(fields):
            raise UnknownSchema(answer.text)
        hint = ""
        if answer.status == 404:
            hint = f"; is schema_registry.url the root of the REST API of {self._settings.api}?"
        elif answer.status in (401, 403):
            hint = "; see schema_registry.basic_auth and bearer_token"
        lacks_path = answer.status == 404 and fields.get("name") == _NO_RESOURCE
        raise (_NoResource if lacks_path else RegistryUnavailable)(f"{self._client.fault(answer)}{hint}")


def _registered(
    kind: str,
    text: str,
    references: list[_Reference] | None,
    fetch: Callable[[_Reference], tuple[str, list[_Reference] | None]],
) -> Registered:
    """The schema with all referenced schemas. `fetch`: returns a reference's text and own references."""
    texts: dict[tuple[str, ...], tuple[str, str]] = {}

    def follow(references: list[_Reference] | None, path: tuple[tuple[str, ...], ...]) -> None:
        for each in references or ():
            key = each.subject, each.group or "", each.artifact, str(each.version)
            if key in texts:
                continue
            if key in path or len(texts) + len(path) >= _MOST_REFERENCES:
                raise UnusableSchema(f"its references form a circle, or number more than {_MOST_REFERENCES}")
            found, more = fetch(each)
            follow(more, (*path, key))
            texts[key] = each.name, found

    follow(references, ())
    names = tuple(name for name, _ in texts.values())
    return Registered(kind, text, tuple(found for _, found in texts.values()), names)


def _says_unknown(fields: dict[str, Any]) -> bool:
    """Whether a 404 concerns a schema. Any server also sends 404 for an unknown path."""
    name = str(fields.get("name"))
    return fields.get("error_code") in _UNKNOWN or (name.endswith(_NO_RESOURCE) and name != _NO_RESOURCE)


def _kind_of(content: bytes) -> str:
    """Guess the kind of a schema, because only some versions of Apicurio send it in a header."""
    try:
        found: Any = msgspec.json.decode(content)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError):
        if content.lstrip().startswith(b"<"):
            raise RegistryUnavailable("the registry answered with a page, not with a schema") from None
        return "PROTOBUF"
    if isinstance(found, dict) and ("properties" in found or "$schema" in found or "oneOf" in found):
        return "JSON"
    return "AVRO"
