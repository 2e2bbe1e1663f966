"""A schema registry with as much of Confluent's REST API as reading takes, in this process.

https://docs.confluent.io/platform/current/schema-registry/develop/api.html
"""

from __future__ import annotations

import json
import re
import threading
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any, Protocol
from urllib.parse import unquote, urlsplit

__all__ = ["Registry", "SchemaRegistry", "guid_of", "schema_registry"]


class Registry(Protocol):
    """What writers of records need of a registry."""

    @property
    def url(self) -> str: ...

    def register(self, schema: Any) -> int:
        """The id by which records name it."""


def guid_of(number: int) -> uuid.UUID:
    """The GUID of the schema with this id."""
    return uuid.uuid5(uuid.NAMESPACE_OID, str(number))


@dataclass
class SchemaRegistry:
    """What it knows, and how it answers."""

    url: str = ""
    schemas: dict[int, dict[str, Any]] = field(default_factory=dict)
    """Id -> its answer."""
    subjects: dict[tuple[str, int], int] = field(default_factory=dict)
    status: int = 200
    """Any other: all it answers."""
    headers: dict[str, str] = field(default_factory=dict)
    """Of each answer."""
    needs: str | None = None
    """The Authorization that has to come."""
    asked: list[str] = field(default_factory=list)
    """The paths, in their order."""

    def register(
        self,
        schema: Any,
        kind: str = "AVRO",
        *,
        subject: str = "",
        references: Sequence[Mapping[str, Any]] = (),
        number: int | None = None,
        serialized: str | None = None,
    ) -> int:
        """Its id: the same for the same schema. `serialized`: what `?format=serialized` gives."""
        text = schema if isinstance(schema, str) else json.dumps(schema)
        told: dict[str, Any] = {"schema": text}
        if kind != "AVRO":
            told["schemaType"] = kind
        if references:
            told["references"] = list(references)
        if serialized is not None:
            told["serialized"] = serialized
        known = next((each for each, other in self.schemas.items() if other == told), None)
        number = number or known or max(self.schemas, default=0) + 1
        self.schemas[number] = told
        if subject:
            version = 1 + max((v for s, v in self.subjects if s == subject), default=0)
            self.subjects[subject, version] = number
        return number

    def answer(self, path: str) -> tuple[int, Any]:
        path, _, query = path.partition("?")
        status, told = self._answer(path)
        if status == 200 and query == "format=serialized" and "serialized" in told:
            told = {**told, "schema": told["serialized"]}
        return status, {k: v for k, v in told.items() if k != "serialized"} if type(told) is dict else told

    def _answer(self, path: str) -> tuple[int, Any]:
        if self.status != 200:
            return self.status, {"error_code": self.status, "message": "as the test wants it"}
        if path == "/schemas/types":
            return 200, ["JSON", "PROTOBUF", "AVRO"]
        found = re.fullmatch(r"/schemas/(ids|guids)/([0-9a-f-]+)", path)
        if found is not None:
            known = self.schemas.get(
                int(found[2])
                if found[1] == "ids"
                else next((number for number in self.schemas if str(guid_of(number)) == found[2]), 0)
            )
            return (200, known) if known else (404, {"error_code": 40403, "message": "Schema not found"})
        found = re.fullmatch(r"/subjects/([^/]+)/versions/(\d+)", path)
        if found is not None:
            number = self.subjects.get((found[1], int(found[2])))
            if number is None:
                return 404, {"error_code": 40402, "message": "Version not found."}
            return 200, {"id": number, "subject": found[1], "version": int(found[2]), **self.schemas[number]}
        return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}

    def take(self, path: str, told: dict[str, Any]) -> tuple[int, Any]:
        """What a serializer registers."""
        found = re.fullmatch(r"/subjects/([^/]+)/versions", path)
        if found is None:
            return 404, {"error_code": 404, "message": "HTTP 404 Not Found"}
        text, kind = told["schema"], told.get("schemaType", "AVRO")
        references = told.get("references") or ()
        serialized = text if kind == "PROTOBUF" else None
        number = self.register(
            text if serialized is None else f"// {text}",
            kind,
            subject=unquote(found[1]),
            references=references,
            serialized=serialized,
        )
        version = max(v for s, v in self.subjects if s == unquote(found[1]))
        return 200, {"id": number, "guid": str(guid_of(number)), "version": version, **told}


@contextmanager
def schema_registry(port: int = 0) -> Iterator[SchemaRegistry]:
    known = SchemaRegistry()

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # else the body waits for the head to be acknowledged

        def do_GET(self) -> None:
            known.asked.append(self.path)
            self._send(*known.answer(self.path))

        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            self._send(*known.take(urlsplit(self.path).path, told))

        def _send(self, status: int, told: Any) -> None:
            if known.needs is not None and self.headers.get("Authorization") != known.needs:
                status, told = 401, {"error_code": 401, "message": "Unauthorized"}
            body = told if isinstance(told, bytes) else json.dumps(told).encode()
            self.send_response(status)
            for name, value in known.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, format: str, *args: Any) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    server.daemon_threads = True
    thread = threading.Thread(target=server.serve_forever, args=(0.02,), daemon=True)
    thread.start()
    known.url = f"http://127.0.0.1:{server.server_port}"
    try:
        yield known
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
