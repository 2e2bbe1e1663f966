"""A small object store in this process. It speaks S3, keeps objects in memory, and counts requests."""

from __future__ import annotations

import hashlib
import re
import threading
import time
from bisect import bisect_left, insort
from collections import Counter
from email.utils import formatdate
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from types import TracebackType
from typing import Any, Self
from urllib.parse import parse_qs, unquote, urlsplit
from xml.sax.saxutils import escape, unescape

__all__ = ["CountingStore"]

_HOST = "127.0.0.1"
_PAGE = 1_000
_NAMES = 'xmlns="http://s3.amazonaws.com/doc/2006-03-01/"'
_KEY = re.compile("<Key>(.*?)</Key>")


class CountingStore:
    """The part of S3 that `ObjectFiles` needs: conditional puts, ranges, lists by prefix and delimiter. Any
    bucket exists. A context manager."""

    def __init__(self) -> None:
        self.requests: Counter[str] = Counter()
        """By kind: put, get, head, list, delete."""
        self.lock = threading.Lock()  # guards all
        self.objects: dict[str, tuple[bytes, float]] = {}
        """Path with the bucket -> content and time of the put."""
        self.paths: list[str] = []
        """Sorted."""
        handler = type("Handler", (_Request,), {"store": self})
        self._server = ThreadingHTTPServer((_HOST, 0), handler)
        self._server.daemon_threads = True
        self._thread = threading.Thread(target=self._server.serve_forever, name="store", daemon=True)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._server.shutdown()
        self._server.server_close()

    @property
    def environment(self) -> dict[str, str]:
        """Environment variables with which a client reaches the store."""
        return {
            "AWS_ENDPOINT_URL": f"http://{_HOST}:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": "bench",
            "AWS_SECRET_ACCESS_KEY": "bench",
            "AWS_REGION": "us-east-1",
        }


class _Request(BaseHTTPRequestHandler):
    store: CountingStore
    protocol_version = "HTTP/1.1"
    disable_nagle_algorithm = True  # otherwise an answer's body waits for the client's acknowledgement
    wbufsize = -1

    def do_PUT(self) -> None:
        body = self.rfile.read(int(self.headers["Content-Length"]))
        path = self._path()
        with self.store.lock:
            self.store.requests["put"] += 1
            is_taken = path in self.store.objects
            if not (is_taken and self.headers["If-None-Match"] == "*"):
                self.store.objects[path] = (body, time.time())
                if not is_taken:
                    insort(self.store.paths, path)
                is_taken = False
        self._answer(412 if is_taken else 200, ETag=_tag(body))

    def do_GET(self) -> None:
        query = parse_qs(urlsplit(self.path).query)
        if "list-type" in query:
            self._list(query)
        else:
            self._read("get")

    def do_HEAD(self) -> None:
        self._read("head")

    def do_DELETE(self) -> None:
        with self.store.lock:
            self.store.requests["delete"] += 1
            self._forget(self._path())
        self._answer(204)

    def do_POST(self) -> None:
        """Remove objects. Clients send this request for one object as well."""
        body = self.rfile.read(int(self.headers["Content-Length"]))
        keys = [unescape(each) for each in _KEY.findall(body.decode())]
        with self.store.lock:
            self.store.requests["delete"] += 1
            for key in keys:
                self._forget(f"{self._path().rstrip('/')}/{key}")
        told = "".join(f"<Deleted><Key>{escape(key)}</Key></Deleted>" for key in keys)
        self._answer_xml(f"<DeleteResult {_NAMES}>{told}</DeleteResult>")

    def log_message(self, format: str, *arguments: Any) -> None:
        """Log nothing: the client reports errors."""

    def _forget(self, path: str) -> None:
        if self.store.objects.pop(path, None) is not None:
            del self.store.paths[bisect_left(self.store.paths, path)]

    def _read(self, kind: str) -> None:
        with self.store.lock:
            self.store.requests[kind] += 1
            found = self.store.objects.get(self._path())
        if found is None:
            self._answer(404)
            return
        body, put_at = found
        told = {"ETag": _tag(body), "Last-Modified": formatdate(put_at, usegmt=True)}
        asked = self.headers["Range"]
        if asked is None:
            self._answer(200, body, **told)
            return
        first, _, last = asked.removeprefix("bytes=").partition("-")
        begin, end = int(first), min(int(last or len(body)), len(body) - 1)
        told["Content-Range"] = f"bytes {begin}-{end}/{len(body)}"
        self._answer(206, body[begin : end + 1], **told)

    def _list(self, query: dict[str, list[str]]) -> None:
        bucket = self._path().rstrip("/")
        prefix = f"{bucket}/{query.get('prefix', [''])[0]}"
        delimiter = query.get("delimiter", [""])[0]
        after = query.get("continuation-token", [f"{bucket}/{query.get('start-after', [''])[0]}\0"])[0]
        objects: list[str] = []
        folders: list[str] = []
        more = ""
        with self.store.lock:
            self.store.requests["list"] += 1
            paths = self.store.paths
            place = bisect_left(paths, max(prefix, after))
            while place < len(paths) and paths[place].startswith(prefix):
                path = paths[place]
                if len(objects) + len(folders) == _PAGE:
                    more = path
                    break
                key = path.removeprefix(f"{bucket}/")
                stop = path.find(delimiter, len(prefix)) if delimiter else -1
                if stop >= 0:
                    folder = path[: stop + 1]
                    folders.append(folder.removeprefix(f"{bucket}/"))
                    place = bisect_left(paths, f"{folder}\U0010ffff")
                    continue
                body, put_at = self.store.objects[path]
                moment = time.strftime("%Y-%m-%dT%H:%M:%S.000Z", time.gmtime(put_at))
                objects.append(
                    f"<Contents><Key>{escape(key)}</Key><LastModified>{moment}</LastModified>"
                    f"<ETag>{escape(_tag(body))}</ETag><Size>{len(body)}</Size></Contents>"
                )
                place += 1
        told = "".join(
            f"<CommonPrefixes><Prefix>{escape(each)}</Prefix></CommonPrefixes>" for each in folders
        )
        token = f"<NextContinuationToken>{escape(more)}</NextContinuationToken>" if more else ""
        self._answer_xml(
            f"<ListBucketResult {_NAMES}><IsTruncated>{'true' if more else 'false'}</IsTruncated>"
            f"{token}{''.join(objects)}{told}</ListBucketResult>"
        )

    def _path(self) -> str:
        return unquote(urlsplit(self.path).path)

    def _answer_xml(self, text: str) -> None:
        told = f'<?xml version="1.0"?>{text}'.encode()
        self._answer(200, told, **{"Content-Type": "application/xml"})

    def _answer(self, code: int, body: bytes = b"", **headers: Any) -> None:
        self.send_response_only(code)
        for name, value in headers.items():
            self.send_header(name, value)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        if self.command != "HEAD":
            self.wfile.write(body)
        self.wfile.flush()


def _tag(body: bytes) -> str:
    return f'"{hashlib.md5(body, usedforsecurity=False).hexdigest()}"'
