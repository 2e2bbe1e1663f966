"""S3 for tests: moto's, over HTTP, in a thread of this process."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Any

import plain_http
from moto.core import DEFAULT_ACCOUNT_ID
from moto.s3.models import s3_backends
from moto.server import DomainDispatcherApplication, create_backend_app
from obstore.store import S3Store
from servers.server_process import HOST
from werkzeug.serving import make_server

__all__ = ["S3Server"]

_KEY = "test"


class S3Server:
    """Keeps what it was given until it is closed. One request at a time: moto looks and puts in two steps.

    A test may let it do worse, as other stores do, or as a network does; `honest` ends that.
    """

    def __init__(self) -> None:
        self.honest()
        self._lock = threading.Lock()
        self._moto: Any = DomainDispatcherApplication(create_backend_app)
        self._server = make_server(HOST, 0, self._serve, threaded=True)
        self._thread = threading.Thread(target=self._server.serve_forever, name="s3", daemon=True)
        self._buckets = 0

    def honest(self) -> None:
        self.ignores_conditions = False
        """As stores do that know no If-None-Match: they take every put."""
        self.lost_answers = 0
        """So many puts are done, and then answered with an error of the server."""
        self.conflicts = 0
        """So many puts are not done, and answered as S3 does when two meet: 409."""
        self.is_away = False
        """Answers nothing but 503."""
        self.puts: list[str] = []
        """The path of each, as it came."""

    @property
    def environment(self) -> dict[str, str]:
        """What a client's environment must say to reach it."""
        return {
            "AWS_ENDPOINT_URL": f"http://{HOST}:{self._server.server_port}",
            "AWS_ACCESS_KEY_ID": _KEY,
            "AWS_SECRET_ACCESS_KEY": _KEY,
            "AWS_REGION": "us-east-1",
        }

    def new_bucket(self) -> str:
        """Its name."""
        self._buckets += 1
        name = f"lake-{self._buckets}"
        plain_http.put(f"{self.environment['AWS_ENDPOINT_URL']}/{name}").raise_for_status()
        return name

    def fill(self, bucket: str, names: Iterable[str]) -> None:
        """Objects of one byte, put at once."""
        with self._lock:
            backend: Any = s3_backends[DEFAULT_ACCOUNT_ID]["aws"]
            for name in names:
                backend.put_object(bucket, name, b"x")

    def client(self, bucket: str) -> S3Store:
        """For a look past what is tested."""
        return S3Store(
            bucket,
            endpoint=self.environment["AWS_ENDPOINT_URL"],
            access_key_id=_KEY,
            secret_access_key=_KEY,
            region="us-east-1",
            client_options={"allow_http": True},
        )

    def start(self) -> None:
        self._thread.start()

    def close(self) -> None:
        self._server.shutdown()
        self._server.server_close()
        self._thread.join()

    def _serve(self, environ: dict[str, Any], respond: Callable[..., Any]) -> Iterable[bytes]:
        with self._lock:
            if self.is_away:
                environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
                return _answered(respond, "503 Slow Down")
            is_put = environ["REQUEST_METHOD"] == "PUT" and "HTTP_X_AMZ_COPY_SOURCE" not in environ
            if is_put:
                self.puts.append(environ["PATH_INFO"])
                if self.ignores_conditions:
                    environ.pop("HTTP_IF_NONE_MATCH", None)
                if self.conflicts:
                    self.conflicts -= 1
                    environ["wsgi.input"].read(int(environ["CONTENT_LENGTH"]))
                    return _answered(respond, "409 Conflict")
            answer = b"".join(self._moto(environ, respond if not (is_put and self.lost_answers) else _nobody))
            if is_put and self.lost_answers:
                self.lost_answers -= 1
                return _answered(respond, "500 Internal Server Error")
            return [answer]


def _nobody(*_: Any, **__: Any) -> Callable[[bytes], object]:
    return lambda _: None


def _answered(respond: Callable[..., Any], status: str) -> Iterable[bytes]:
    respond(status, [("Content-Length", "0")])
    return [b""]
