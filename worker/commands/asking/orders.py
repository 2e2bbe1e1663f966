"""Requests to a running worker: the connection to its HTTP server, by URL or by its configuration, and
`binlane unblock`, `pause` and `resume`."""

from __future__ import annotations

import getpass
import re
import socket
import ssl
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal

import httpx
import msgspec

from worker.commands.output import Output
from worker.configuration import Configuration, load
from worker.observing.unblock_messages import LONGEST, Answer, PauseRequest, UnblockRequest, order_token_file
from worker.observing.visible_text import printable

HINT = "is the worker running, and is this its http.port?"

_EXAMPLE = "http://localhost:8080"
_REFUSALS = {httpx.codes.FORBIDDEN, httpx.codes.MISDIRECTED_REQUEST}
_LOOPBACK = {"localhost", "127.0.0.1", "::1"}
_ANY_ADDRESS = {"0.0.0.0": "127.0.0.1", "::": "::1"}


class Unreachable(Exception):
    """The worker cannot be reached. The text is one line for the user."""


class WorkerConnection:
    """A connection to one worker. Raises Unreachable if `url` is not valid."""

    def __init__(
        self,
        url: str,
        *,
        token: str | None = None,
        ca: Path | None = None,
        only: Path | None = None,
        seconds: float = 3.0,
    ) -> None:
        """`token`: its http.token. `ca`: a PEM file of trusted authorities. `only`: a PEM file with exactly
        the certificate that the worker must show, under any name. `seconds`: the timeout of a response."""
        address = url if "://" in url else f"http://{url}"
        try:
            parsed = httpx.URL(address.rstrip("/") + "/")
        except httpx.InvalidURL as error:
            raise Unreachable(f"{url} is not a URL ({error}); an example: {_EXAMPLE}") from error
        if parsed.scheme not in {"http", "https"} or not parsed.host:
            raise Unreachable(f"{url} is not an http or https URL; an example: {_EXAMPLE}")
        self._url = parsed
        self.address = str(parsed.copy_with(username=None, password=None)).rstrip("/")
        # A proxy for the internet does not lead to this machine.
        trust_env = parsed.host not in _LOOPBACK
        headers = {"Authorization": f"Bearer {token}"} if token else {}
        try:
            self._client = httpx.Client(
                timeout=httpx.Timeout(seconds, connect=2.0),
                trust_env=trust_env,
                headers=headers,
                # Loading the usual authorities is slow, and not needed without https.
                verify=_trusted(ca, only) if parsed.scheme == "https" or ca or only else False,
            )
        except OSError as error:
            raise Unreachable(f"--ca: {ca or only} contains no PEM certificates ({error})") from error
        except UnicodeEncodeError:
            raise Unreachable("the token has characters that are not allowed in a header") from None

    def __enter__(self) -> WorkerConnection:
        return self

    def __exit__(self, *_: object) -> None:
        self._client.close()

    def ask(self, method: str, path: str, **options: Any) -> httpx.Response:
        """Send a request for `path` ("api/status"), and return the response with any code. Raises
        Unreachable, also if the worker refuses."""
        try:
            response = self._client.request(method, self._url.join(path), **options)
        except httpx.TimeoutException as error:
            raise Unreachable(f"no answer from {self.address} in time; {HINT}") from error
        except httpx.HTTPError as error:
            reason = re.sub(r"^\[Errno -?\d+\] ", "", str(error)) or type(error).__name__
            raise Unreachable(f"no answer from {self.address}: {reason}; {HINT}") from error
        if response.status_code == httpx.codes.UNAUTHORIZED:
            raise Unreachable(f"{self.address} requires another token: set BINLANE_TOKEN to its http.token")
        if response.status_code in _REFUSALS:
            raise Unreachable(f"{self.address} refused: {response.text.strip()}")
        return response


def is_configuration(target: str) -> bool:
    """Whether a command's CONFIG|URL is a file."""
    return "://" not in target and (target.endswith((".yaml", ".yml")) or Path(target).is_file())


@contextmanager
def connected(
    target: str,
    *,
    token: str | None,
    ca: Path | None,
    seconds: float = 3.0,
    own_token: Callable[[Configuration, int], str | None] = lambda _configuration, _port: None,
) -> Iterator[WorkerConnection]:
    """Connect to the worker of `target` (CONFIG or URL).

    `token`, `ca`, `seconds`: see WorkerConnection. With CONFIG, its http.token comes first, then the result
    of `own_token` for the configuration and its port, then `token`. Raises ConfigurationError if the
    configuration cannot be used, and Unreachable without the configuration's secrets."""
    if not is_configuration(target):
        with WorkerConnection(target, token=token, ca=ca, seconds=seconds) as worker:
            yield worker
        return
    configuration, url, only = _address_of(Path(target))
    try:
        assert configuration.http is not None  # otherwise `_address_of` raised
        token = configuration.http.token or own_token(configuration, configuration.http.port) or token
        with WorkerConnection(url, token=token, ca=ca, only=only, seconds=seconds) as worker:
            yield worker
    except Unreachable as fault:
        raise Unreachable(configuration.secrets.redact(str(fault))) from None


def _address_of(config: Path) -> tuple[Configuration, str, Path | None]:
    """Return the configuration, its worker's URL on this machine, and the certificate that the worker shows.

    Raises ConfigurationError: the configuration cannot be used; Unreachable: it contains no address."""
    configuration = load(config, check_handlers=False)
    http = configuration.http
    if http is None:
        raise Unreachable(f"{config} has http: null, so its worker answers no requests")
    if http.port == 0:
        raise Unreachable(
            f"{config} has http.port: 0; give the URL, with the port of http_listening in the log"
        )
    host = _ANY_ADDRESS.get(http.host, http.host)
    scheme = "http" if http.tls is None else "https"
    certificate = None if http.tls is None else configuration.folder / http.tls.certificate
    return configuration, f"{scheme}://{f'[{host}]' if ':' in host else host}:{http.port}", certificate


def _trusted(ca: Path | None, only: Path | None) -> ssl.SSLContext | bool:
    if ca is None and only is None:
        return True
    context = ssl.create_default_context(cafile=ca or only)
    if ca is None:
        context.check_hostname = False
        context.verify_flags |= ssl.VERIFY_X509_PARTIAL_CHAIN  # it is trusted itself, whoever signed it
    return context


_ANSWER_SECONDS = 60.0
"""The worker waits up to half a minute for the result, and then commits."""
_read_answer = msgspec.json.Decoder(Answer).decode


def unblock(
    target: str,
    table: str,
    offset: int,
    action: Literal["skip", "dead_letter"],
    *,
    topic: str | None = None,
    partition: int | None = None,
    token: str | None = None,
    ca: Path | None = None,
) -> int:
    """Send the request to the worker of `target` (CONFIG or URL), and print its answer.

    Returns 0 if the record is set aside or its handlers accepted it after all, else 1. Raises
    ConfigurationError."""
    asked = UnblockRequest(
        table=table, offset=offset, action=action, by=_who(), topic=topic, partition=partition
    )
    return _send(target, asked, "unblock", _stopped(target, asked), token=token, ca=ca)


def pause(
    target: str, action: Literal["pause", "resume"], *, token: str | None, ca: Path | None, **what: Any
) -> int:
    """Pause or resume tables at the worker of `target` (CONFIG or URL), and print its answer. `what`: as in
    PauseRequest.

    Returns 0 if that is done, else 1. Raises ConfigurationError."""
    for name, value in what.items():
        if value is not None and not 0 < len(value) <= LONGEST:
            told = f"{name}: found {len(value)} characters; allowed: 1 to {LONGEST}"
            return Output(action).failed(told)
    asked = PauseRequest(action=action, by=_who(), **what)
    return _send(target, asked, action, "", token=token, ca=ca)


def _send(
    target: str, asked: UnblockRequest | PauseRequest, command: str, stopped: str, **access: Any
) -> int:
    """Send the request, and print the answer. `stopped`: what to do if no worker runs. Returns the exit
    code."""
    try:
        with connected(target, seconds=_ANSWER_SECONDS, own_token=_order_token, **access) as worker:
            answer = _answer(worker, asked)
    except Unreachable as fault:
        return Output(command).failed(f"{fault}. {stopped}" if stopped else fault)
    if answer.result in {"set_aside", "handled", "paused", "resumed"}:
        print(printable(answer.message))
        return 0
    return Output(command).failed(answer.message)


def _order_token(configuration: Configuration, port: int) -> str | None:
    """Read the token that is used without http.token; None: there is no file. Raises Unreachable."""
    file = order_token_file(configuration.checkpoint.directory, port)
    try:
        return file.read_text(encoding="ascii")
    except FileNotFoundError:
        return None
    except OSError as error:
        what = f"{file} cannot be read ({error.strerror})"
        raise Unreachable(f"{what}: run the command as the worker's user, or set http.token") from error


def _answer(worker: WorkerConnection, asked: UnblockRequest | PauseRequest) -> Answer:
    """Send the request. Raises Unreachable."""
    headers = {"Content-Type": "application/json"}
    path = "api/unblock" if isinstance(asked, UnblockRequest) else "api/pause"
    try:
        content = msgspec.json.encode(asked)
    except UnicodeEncodeError:
        return Answer(result="refused", message="the options must be UTF-8")
    response = worker.ask("POST", path, content=content, headers=headers)
    try:
        return _read_answer(response.content)
    except (msgspec.DecodeError, UnicodeDecodeError):
        text = " ".join(response.text.split())[:200]
        raise Unreachable(f"{worker.address} answered HTTP {response.status_code}: {text}") from None


def _stopped(target: str, asked: UnblockRequest) -> str:
    """Say what to do if no worker is running."""
    config = target if is_configuration(target) else "CONFIG"
    topic = "TOPIC" if asked.topic is None else asked.topic
    partition = "PARTITION" if asked.partition is None else asked.partition
    return (
        f"If the worker is stopped and binlane checkpoint show {config} shows that a start begins at this "
        f"record, skip it with: binlane checkpoint set {config} --topic {topic} --partition {partition} "
        f"--offset {asked.offset + 1}"
    )


def _who() -> str:
    """Return user@host, as far as they are known."""
    try:
        user = getpass.getuser()
    except (KeyError, OSError):  # a container's user id without a name
        user = "unknown"
    return f"{user}@{socket.gethostname()}"
