"""The `webhook` handler: reaching the service, and proving to each other who one is."""

from __future__ import annotations

import base64
import ssl
import subprocess
from pathlib import Path
from urllib.parse import unquote

import pytest
from servers.hook_server import Answer, HookServer, Received

from handlers import HandlerContext, TargetUnavailable
from handlers.clickhouse.client import ClickHouseClient, ClickHouseOptions
from handlers.elasticsearch.client import ElasticsearchOptions, SearchClient
from handlers.testing import make_batch, opened
from handlers.webhook.handler import WebhookHandler
from worker.commands.asking.orders import Unreachable, WorkerConnection
from worker.formats.schema_registry.client import Client, RegistryUnavailable
from worker.formats.schema_registry.settings import SchemaRegistrySettings
from worker.local.broker_settings import free_port


@pytest.fixture(scope="module")
def certificate(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with cert.pem, for 127.0.0.1 and signed by itself, and key.pem."""
    folder = tmp_path_factory.mktemp("certificate")
    subprocess.run(
        [
            *(
                "openssl",
                "req",
                "-x509",
                "-newkey",
                "ec",
                "-pkeyopt",
                "ec_paramgen_curve:prime256v1",
                "-nodes",
            ),
            *("-keyout", "key.pem", "-out", "cert.pem", "-days", "1", "-subj", "/CN=binlane"),
            *("-addext", "subjectAltName=IP:127.0.0.1"),
        ],
        cwd=folder,
        check=True,
        capture_output=True,
    )
    return folder


def trust_of(folder: Path, *, ask: bool = False) -> ssl.SSLContext:
    trust = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    trust.load_cert_chain(folder / "cert.pem", folder / "key.pem")
    if ask:
        trust.load_verify_locations(folder / "cert.pem")
        trust.verify_mode = ssl.CERT_REQUIRED
    return trust


def context(folder: Path) -> HandlerContext:
    return HandlerContext(worker="w", handler="webhook", folder=folder)


def test_a_certificate_that_nobody_vouches_for_is_refused(certificate: Path) -> None:
    with HookServer(trust_of(certificate)) as hook, opened(WebhookHandler(url=hook.url)) as handler:
        with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        assert hook.received == []


@pytest.mark.parametrize("scheme", ["https", "HTTPS", "hTTps"])
def test_every_client_looks_at_the_certificate_however_https_is_written(
    certificate: Path, scheme: str
) -> None:
    with HookServer(trust_of(certificate)) as hook:
        url = hook.url.replace("https", scheme)
        with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            WebhookHandler(url=url).check(context(certificate))
        clickhouse = ClickHouseClient(ClickHouseOptions.model_validate({"url": url}), certificate, 1)
        with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            clickhouse.query("SELECT 1")
        search = SearchClient(ElasticsearchOptions.model_validate({"url": url}), certificate, 1)
        with pytest.raises(TargetUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            search.request("GET", "/")
        registry = Client(SchemaRegistrySettings.model_validate({"url": url}), certificate)
        with pytest.raises(RegistryUnavailable, match="CERTIFICATE_VERIFY_FAILED"):
            registry.reach()
        with pytest.raises(Unreachable, match="CERTIFICATE_VERIFY_FAILED"):
            WorkerConnection(url).ask("GET", "api/status")
        assert hook.received == hook.refused == []


def test_a_certificate_that_nobody_would_look_at_is_told(certificate: Path) -> None:
    for read in (
        lambda: WebhookHandler(url="http://h/", tls={"ca": "cert.pem"}).open(context(certificate)),
        lambda: Client(
            SchemaRegistrySettings.model_validate({"url": "http://h", "tls": {"ca": "cert.pem"}}), certificate
        ),
    ):
        with pytest.raises(
            OSError, match=r"tls: http://h.* is plain HTTP and shows no certificate: write https://"
        ):
            read()


@pytest.mark.parametrize("tls", [{"ca": "cert.pem"}, {"verify": False}])
def test_a_certificate_may_be_trusted_or_not_looked_at(certificate: Path, tls: dict[str, object]) -> None:
    with (
        HookServer(trust_of(certificate)) as hook,
        opened(WebhookHandler(url=hook.url, tls=tls), certificate) as handler,
    ):
        handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
        assert len(hook.received) == 1


def test_a_service_may_ask_who_we_are(certificate: Path) -> None:
    ours = {"ca": "cert.pem", "certificate": "cert.pem", "key": "key.pem"}
    with HookServer(trust_of(certificate, ask=True)) as hook:
        with pytest.raises(TargetUnavailable):
            WebhookHandler(url=hook.url, tls={"ca": "cert.pem"}).check(context(certificate))
        WebhookHandler(url=hook.url, tls=ours).check(context(certificate))


@pytest.mark.parametrize("tls", [{"ca": "missing.pem"}, {"ca": "key.pem"}, {"certificate": "missing.pem"}])
def test_a_certificate_that_cannot_be_read_is_told(certificate: Path, tls: dict[str, object]) -> None:
    handler = WebhookHandler(url="https://127.0.0.1:1/", tls=tls)
    [(key, file)] = tls.items()
    with pytest.raises(OSError, match=rf"tls: a certificate cannot be read: {key} \({file}\): "):
        handler.open(context(certificate))


# ---- check


@pytest.mark.parametrize("status", [200, 204, 401, 404, 405, 501])
def test_check_takes_any_answer_to_options_and_sends_no_change(status: int, tmp_path: Path) -> None:
    with HookServer() as hook:
        hook.answer = lambda request: Answer(status)
        WebhookHandler(url=f"{hook.url}/in/{{table}}").check(context(tmp_path))
        (request,) = hook.received + hook.refused
        assert (request.method, request.path, request.body) == ("OPTIONS", "/in/", b"")


@pytest.mark.parametrize("status", [502, 503, 504])
def test_check_tells_a_service_that_is_down_behind_its_gateway(status: int, tmp_path: Path) -> None:
    with HookServer() as hook:
        hook.answer = lambda request: Answer(status)
        with pytest.raises(TargetUnavailable, match=f"{hook.url} answers {status}"):
            WebhookHandler(url=hook.url).check(context(tmp_path))


def test_check_tells_a_service_that_is_away_without_its_secrets(tmp_path: Path) -> None:
    port = free_port()
    handler = WebhookHandler(url=f"http://ann:hunter22@127.0.0.1:{port}/token", headers={"X": "hunter33"})
    with pytest.raises(TargetUnavailable, match=f"http://127.0.0.1:{port}: ConnectError") as caught:
        handler.check(context(tmp_path))
    assert "hunter" not in str(caught.value)
    assert "token" not in str(caught.value)


@pytest.mark.parametrize(
    ("path", "user"),
    [
        ("/services/T0000001/hunter22hunter22", ""),
        ("/{table}/hunter22hunter22", ""),
        ("/in/{table}?token=hunter22%2Bhunter22", ""),
        ("/in", "hunter22hunter22@"),
        ("/in", "usr:hunter22@"),
    ],
)
def test_a_service_that_repeats_its_url_does_not_bring_its_secrets_into_an_error(
    path: str, user: str
) -> None:
    """As Express does: `Cannot POST /services/…`."""

    def answer(request: Received) -> Answer:
        login = request.headers.get("authorization", " ").split()
        repeated = " ".join((request.path, unquote(request.path), *login, *map(decoded, login[1:])))
        return Answer(404, body=f"Cannot POST {repeated}".encode())

    def decoded(login: str) -> str:
        return base64.b64decode(login).decode()

    with HookServer() as hook:
        hook.answer = answer
        url = hook.url.replace("://", f"://{user}") + path
        with opened(WebhookHandler(url=url)) as handler, pytest.raises(TargetUnavailable) as caught:
            handler.handle(make_batch("shop.orders", [{"id": 1}], key="id"))
    assert "hunter" not in str(caught.value)
    assert "aHVudGVy" not in str(caught.value)
    assert "Cannot POST" in str(caught.value)
