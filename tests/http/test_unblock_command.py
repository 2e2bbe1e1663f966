"""`binlane unblock`: how it reaches a worker, who it says it is, and what it answers."""

from __future__ import annotations

import contextlib
import getpass
import socket
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from configuration.shorthand import KAFKA, TABLES
from example_worker import status_at
from servers.own_authority import OwnAuthority

from worker.certificate import Certificate
from worker.cli.process import _exit_code
from worker.http.access import Access
from worker.http.app import build_app
from worker.http.server import HttpServer
from worker.observing.metrics import Metrics
from worker.observing.unblock_messages import UnblockAnswer, UnblockRequest, order_token_file

TOKEN, ORDERS = "a-token-of-the-tests", "a-token-of-the-workers-folder"

Asked = list[tuple[UnblockRequest, str]]
Serve = Callable[..., HttpServer]


@pytest.fixture
def asked() -> Asked:
    """What the worker was asked."""
    return []


@pytest.fixture
def serve(asked: Asked) -> Iterator[Serve]:
    """serve(answer, certificate=None, token=None): a worker that answers so."""
    with contextlib.ExitStack() as stack:

        def serve(
            answer: UnblockAnswer, certificate: Certificate | None = None, token: str | None = None
        ) -> HttpServer:
            def unblock(request: UnblockRequest, client: str) -> UnblockAnswer:
                asked.append((request, client))
                return answer

            access = Access(token, certificate is not None, ORDERS)
            app = build_app(
                lambda: status_at(1),
                lambda: None,
                lambda: None,
                Metrics(),
                unblock=unblock,
                access=access,
            )
            server = HttpServer(app, "127.0.0.1", 0, certificate=certificate)
            server.start()
            stack.callback(server.stop)
            return server

        yield serve


DONE = UnblockAnswer(result="set_aside", message="cdc.shop[0] offset 17 is set aside: skipped")
HANDLED = UnblockAnswer(result="handled", message="its handlers accepted it")
REFUSED = UnblockAnswer(result="refused", message="it is not what \x1b[2J blocks\n shop.orders")
ORDERED = UnblockAnswer(result="ordered", message="it is not finished yet")


def run(target: str, *more: str) -> int:
    return _exit_code(["unblock", target, "--table", "shop.orders", "--offset", "17", *more])


def config(folder: Path, http: str) -> str:
    path = folder / "shop.yaml"
    path.write_text(f"{KAFKA}{TABLES}http: {http}\ncheckpoint: {{directory: {folder}}}\n")
    return str(path)


def test_the_worker_is_told_who_asks_for_what(
    serve: Serve, asked: Asked, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(DONE)
    capsys.readouterr()
    where = ("--topic", "cdc.shop", "--partition", "3", "--token", ORDERS)
    assert run(f"127.0.0.1:{server.port}", "--dead-letter", *where) == 0
    [(request, client)] = asked
    by = f"{getpass.getuser()}@{socket.gethostname()}"
    assert request == UnblockRequest(
        table="shop.orders", offset=17, action="dead_letter", by=by, topic="cdc.shop", partition=3
    )
    assert client == "127.0.0.1"
    assert capsys.readouterr().out == f"{DONE.message}\n"


@pytest.mark.parametrize(("answer", "code"), [(DONE, 0), (HANDLED, 0), (REFUSED, 1), (ORDERED, 1)])
def test_the_exit_code_says_whether_the_record_is_out_of_the_way(
    serve: Serve, capsys: pytest.CaptureFixture[str], answer: UnblockAnswer, code: int
) -> None:
    server = serve(answer)
    capsys.readouterr()
    assert run(f"http://127.0.0.1:{server.port}", "--skip", "--token", ORDERS) == code
    told = capsys.readouterr()
    assert (told.out if code == 0 else told.err).count("\n") == 1
    assert "\x1b" not in told.err


@pytest.mark.parametrize("more", [(), ("--skip", "--dead-letter")])
def test_what_becomes_of_the_record_must_be_said(
    serve: Serve, asked: Asked, capsys: pytest.CaptureFixture[str], more: tuple[str, ...]
) -> None:
    assert run(f"127.0.0.1:{serve(DONE).port}", *more) == 2
    assert "give either --skip or --dead-letter" in capsys.readouterr().err
    assert asked == []


def test_a_configuration_says_where_its_worker_is_and_brings_the_token(
    serve: Serve, asked: Asked, tmp_path: Path
) -> None:
    server = serve(DONE, token=TOKEN)
    assert run(config(tmp_path, f"{{port: {server.port}, token: {TOKEN}}}"), "--skip") == 0
    assert len(asked) == 1


def test_the_certificate_of_the_configuration_is_trusted_whatever_its_name(
    serve: Serve, asked: Asked, tmp_path: Path
) -> None:
    # As of a service of another name, signed by nobody whom this machine knows.
    authority = OwnAuthority(tmp_path)
    own = authority.server("server", "192.0.2.1")
    server = serve(DONE, certificate=Certificate(*own))
    tls = f"tls: {{certificate: {own.certificate}, key: {own.key}}}"
    order_token_file(tmp_path, server.port).write_text(ORDERS)
    assert run(config(tmp_path, f"{{port: {server.port}, {tls}}}"), "--skip") == 0
    assert len(asked) == 1


def test_another_worker_at_that_port_is_not_told_the_token(
    serve: Serve, asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    authority = OwnAuthority(tmp_path)
    own, other = authority.server("server"), authority.server("other")
    server = serve(DONE, certificate=Certificate(*other), token=TOKEN)
    tls = f"tls: {{certificate: {own.certificate}, key: {own.key}}}"
    assert run(config(tmp_path, f"{{port: {server.port}, token: {TOKEN}, {tls}}}"), "--skip") == 1
    assert "CERTIFICATE_VERIFY_FAILED" in capsys.readouterr().err
    assert asked == []


@pytest.mark.parametrize(
    ("http", "told"), [("null", "http: null"), ("{port: 0}", "http.port: 0; give the URL")]
)
def test_a_configuration_that_does_not_say_where_is_told(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], http: str, told: str
) -> None:
    assert run(config(tmp_path, http), "--skip") == 1
    assert told in capsys.readouterr().err


def test_the_configuration_leads_to_the_token_that_the_worker_wrote(
    serve: Serve, asked: Asked, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    server = serve(DONE)
    path = config(tmp_path, f"{{port: {server.port}}}")
    assert run(path, "--skip") == 1
    assert "accepted only from the worker's user on its machine" in capsys.readouterr().err
    order_token_file(tmp_path, server.port).mkdir()  # as good as one of another user, also for root
    assert run(path, "--skip") == 1
    assert "run the command as the worker's user" in capsys.readouterr().err
    order_token_file(tmp_path, server.port).rmdir()
    order_token_file(tmp_path, server.port).write_text(ORDERS)
    assert run(path, "--skip") == 0
    assert len(asked) == 1


def test_the_workers_own_token_goes_before_that_of_the_environment(
    serve: Serve, asked: Asked, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(DONE)
    order_token_file(tmp_path, server.port).write_text(ORDERS)
    monkeypatch.setenv("BINLANE_TOKEN", "of another worker")
    assert run(config(tmp_path, f"{{port: {server.port}}}"), "--skip") == 0
    assert len(asked) == 1


def test_without_the_token_the_worker_does_nothing(
    serve: Serve, asked: Asked, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    server = serve(DONE, token=TOKEN)
    assert run(f"127.0.0.1:{server.port}", "--skip") == 1
    assert "requires another token" in capsys.readouterr().err
    monkeypatch.setenv("BINLANE_TOKEN", TOKEN)
    assert run(f"127.0.0.1:{server.port}", "--skip") == 0
    assert len(asked) == 1


def test_where_no_worker_answers_it_says_what_a_stopped_one_needs(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    path = config(tmp_path, "{port: 1}")
    assert run(path, "--skip", "--topic", "cdc.shop", "--partition", "2") == 1
    told = capsys.readouterr().err
    assert "no answer from http://127.0.0.1:1" in told
    assert f"binlane checkpoint set {path} --topic cdc.shop --partition 2 --offset 18" in told
