"""Who is answered: by token, over TLS, by which name; and that probes always are."""

from __future__ import annotations

import base64
import contextlib
import itertools
import socket
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path

import httpx
import pytest
from configuration.shorthand import KAFKA, TABLES
from example_worker import status_at
from servers.own_authority import OwnAuthority
from structlog.testing import capture_logs

from worker.certificate import Certificate
from worker.commands.asking.status import status
from worker.configuration import load
from worker.http.access import PROBES, Access
from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.running.worker import Worker

TOKEN = "a-token-of-the-tests"
GUARDED = ("/", "/api/status", "/metrics", "/nothing")

Serve = Callable[..., HttpServer]


@pytest.fixture
def serve() -> Iterator[Serve]:
    """serve(certificate=..., token=..., ...): a server of an example worker, with this access."""
    with contextlib.ExitStack() as stack:

        def serve(certificate: Certificate | None = None, **access: object) -> HttpServer:
            allowed = Access(tls=certificate is not None, **access)  # type: ignore[arg-type]
            app = build_app(lambda: status_at(1), lambda: None, lambda: None, Metrics(), access=allowed)
            server = HttpServer(app, "127.0.0.1", 0, certificate=certificate)
            server.start()
            stack.callback(server.stop)
            return server

        yield serve


@pytest.fixture
def authority(tmp_path: Path) -> OwnAuthority:
    return OwnAuthority(tmp_path)


def get(server: HttpServer, path: str, scheme: str = "http", **options: object) -> httpx.Response:
    verify = options.pop("verify", True)
    with httpx.Client(trust_env=False, timeout=10, verify=verify) as client:  # type: ignore[arg-type]
        return client.get(f"{scheme}://127.0.0.1:{server.port}{path}", **options)  # type: ignore[arg-type]


def basic(password: str) -> str:
    return "Basic " + base64.b64encode(f"anybody:{password}".encode()).decode()


WRONG = (
    "",
    "Bearer",
    "Bearer x",
    f"Bearer {TOKEN}x",
    f"Token {TOKEN}",
    TOKEN,
    basic("x"),
    "Basic ?",
    "Basic /w==",
)


def test_without_the_token_nothing_is_told(serve: Serve) -> None:
    server = serve(token=TOKEN)
    for path, brought in itertools.product(GUARDED, WRONG):
        answer = get(server, path, headers={"Authorization": brought} if brought else {})
        assert answer.status_code == 401, brought
        assert answer.headers.get_list("www-authenticate")[0] == "Bearer"
        assert answer.text == "the worker requires http.token of its configuration\n"


def test_with_the_token_all_is_told(serve: Serve) -> None:
    server = serve(token=TOKEN)
    for brought in (f"Bearer {TOKEN}", f"bearer  {TOKEN}", basic(TOKEN)):
        codes = [get(server, path, headers={"Authorization": brought}).status_code for path in GUARDED]
        assert codes == [200, 200, 200, 404]


def test_probes_need_no_token_no_tls_and_no_name(serve: Serve, authority: OwnAuthority) -> None:
    server = serve(Certificate(*authority.server()), token=TOKEN)
    trust = ssl.create_default_context(cafile=authority.certificate)
    for path in sorted(PROBES):
        assert get(server, path, headers={"Host": "evil.example"}).status_code == 200
        assert get(server, path, "https", verify=trust).status_code == 200


HOSTS = [
    ("127.0.0.1", 200),
    ("[::1]:8080", 200),
    ("10.1.2.3:8080", 200),
    ("localhost:9", 200),
    ("binlane", 200),
    ("binlane.shop.svc", 200),
    ("binlane.shop.svc.cluster.local:80", 200),
    ("status.example.org", 200),
    ("STATUS.example.org.:8080", 200),
    ("a.b.example.com", 200),
    ("example.com", 421),
    ("status.example.org.evil.example", 421),
    ("evil.example", 421),
    ("127.0.0.1.evil.example", 421),
    ("local", 200),
    ("evil.svc.example", 421),
    ("[evil.example]", 421),
    ("", 200),
]


def test_a_page_from_elsewhere_cannot_read_the_status_by_its_own_name(serve: Serve) -> None:
    server = serve(hosts=["status.example.org", "*.example.com"])
    with capture_logs() as logs:
        found = [(host, get(server, "/api/status", headers={"Host": host}).status_code) for host, _ in HOSTS]
    assert found == HOSTS
    assert [line["host"] for line in logs if line["event"] == "http_host_refused"] == ["example.com"]


def test_any_name_may_be_allowed(serve: Serve) -> None:
    assert get(serve(hosts=["*"]), "/api/status", headers={"Host": "evil.example"}).status_code == 200


def test_with_tls_nothing_is_told_without_it(serve: Serve, authority: OwnAuthority) -> None:
    server = serve(Certificate(*authority.server()))
    trust = ssl.create_default_context(cafile=authority.certificate)
    for path in GUARDED:
        answer = get(server, path)
        assert answer.status_code == 403
        assert answer.text.startswith("use https for this address")
        assert get(server, path, "https", verify=trust).status_code == (404 if path == "/nothing" else 200)


def test_a_client_of_another_authority_is_not_answered(
    serve: Serve, authority: OwnAuthority, tmp_path: Path
) -> None:
    (tmp_path / "other").mkdir()
    other = OwnAuthority(tmp_path / "other")
    trust = ssl.create_default_context(cafile=other.certificate)
    with pytest.raises(httpx.ConnectError, match="CERTIFICATE_VERIFY_FAILED"):
        get(serve(Certificate(*authority.server())), "/", "https", verify=trust)


def test_old_tls_is_refused(authority: OwnAuthority) -> None:
    assert Certificate(*authority.server()).context().minimum_version is ssl.TLSVersion.TLSv1_2


def test_a_renewed_certificate_is_shown_and_a_broken_one_is_not(
    serve: Serve, authority: OwnAuthority
) -> None:
    pair = authority.server()
    server = serve(Certificate(*pair))
    trust = ssl.create_default_context(cafile=authority.certificate)

    def shown() -> bytes:
        with (
            socket.create_connection(("127.0.0.1", server.port)) as plain,
            trust.wrap_socket(plain, server_hostname="127.0.0.1") as connection,
        ):
            found = connection.getpeercert(binary_form=True)
            assert found is not None
            return found

    first = shown()
    whole = pair.certificate.read_bytes()
    pair.certificate.write_text("broken")
    assert shown() == first
    pair.certificate.write_bytes(whole)
    authority.server()
    assert shown() != first


def worker_with(folder: Path, http: str) -> Worker:
    path = folder / "shop.yaml"
    path.write_text(f"{KAFKA}{TABLES}http: {{{http}, port: 0}}\n")
    return Worker(load(path))


@pytest.mark.parametrize(("host", "warns"), [("127.0.0.1", False), ("0.0.0.0", True)])
def test_an_address_open_to_others_is_told_in_one_line(tmp_path: Path, host: str, warns: bool) -> None:
    def warned(**keys: str) -> list[str]:
        worker = worker_with(tmp_path, ", ".join(f"{key}: '{value}'" for key, value in keys.items()))
        with capture_logs() as logs:
            worker._start_http()
        assert worker._http is not None
        worker._http.stop()
        return [line["log_level"] for line in logs if line["event"] == "http_open"]

    assert warned(host=host) == ["warning"] * warns
    assert warned(host=host, token=TOKEN) == []


def test_a_configured_certificate_and_token_are_asked_for(tmp_path: Path, authority: OwnAuthority) -> None:
    authority.server("tls")
    tls = "tls: {certificate: tls.pem, key: tls-key.pem}"
    worker = worker_with(tmp_path, f"host: 127.0.0.1, token: {TOKEN}, {tls}")
    worker._start_http()
    server = worker._http
    assert server is not None
    try:
        url = f"https://127.0.0.1:{server.port}"
        ca = authority.certificate
        assert get(server, "/healthz").status_code == 200
        assert status(url, token=TOKEN, ca=ca) == 0
        assert status(url, ca=ca) == 1
        assert status(url, token=TOKEN) == 1
        assert status(f"http://127.0.0.1:{server.port}", token=TOKEN) == 1
    finally:
        server.stop()
