"""Access control: by token, TLS and host name. Probes are open to everyone and reveal almost nothing."""

from __future__ import annotations

import base64
import binascii
import hmac
import ipaddress
import socket
from collections.abc import Sequence
from dataclasses import dataclass, field

from starlette.datastructures import Headers
from starlette.responses import PlainTextResponse
from starlette.types import ASGIApp, Message, Receive, Scope, Send

from handlers.logs import get_logger

PROBES = frozenset({"/healthz", "/readyz", "/startupz"})
TURN = "binlane.turn"
"""In the scope: waits until the request may begin. False: its client left."""

_log = get_logger(__name__)

_HOST_HINT = "if this name is right, add it to http.allowed_hosts"
_MOST_AT_ONCE = 16
"""The most requests, except probes, that run at once. Each may wait for locks of the worker, and occupies one
of 40 threads. A scrape may begin beside as many more, so no other requests keep it away."""
_WANTED = [("WWW-Authenticate", "Bearer"), ("WWW-Authenticate", 'Basic realm="binlane", charset="UTF-8"')]
# Endings that nobody can register in public DNS. An attacker's page that resolves to this address (DNS
# rebinding) needs a name that can be registered.
_OWN_ENDINGS = (".localhost", ".local", ".internal", ".home.arpa", ".svc", ".test")


@dataclass(frozen=True)
class Access:
    """The conditions that a request must meet."""

    token: str | None = field(default=None, repr=False)
    """Accepted as a bearer token, or as the password of any user (browsers ask for one)."""
    tls: bool = False
    """Whether the request must use TLS."""
    order_token: str | None = field(default=None, repr=False)
    """Without `token`, requests that change something need this as a bearer token; None: they are refused."""
    hosts: Sequence[str] = ()
    """Additional host names of the worker: `binlane.example.org`, `*.example.org`, or `*` for any."""

    def refusal(self, scope: Scope) -> PlainTextResponse | None:
        """Return the response that refuses the request; None: it is allowed."""
        headers = Headers(scope=scope)
        if self.tls and scope["scheme"] != "https":
            return _refused(403, "use https for this address; only the probes are answered without it")
        if not self._goes_by(headers.get("host")):
            return _refused(421, f"the worker does not accept the name in Host: {_HOST_HINT}")
        if self.token is not None and not _brings(headers.get("authorization", ""), self.token):
            answer = _refused(401, "the worker requires http.token of its configuration")
            for name, value in _WANTED:
                answer.headers.append(name, value)
            return answer
        return None

    def refusal_of_change(self, scope: Scope) -> PlainTextResponse | None:
        """Return the response that refuses a change, if `refusal` allowed the request; None: it is allowed.

        No browser page may make changes. A foreign page could use the password that the browser stores, or an
        allowed machine (cross-site request forgery). Browsers send `Origin` with such requests. They send
        JSON only if the worker allows it, which it never does."""
        headers = Headers(scope=scope)
        if "origin" in headers or "sec-fetch-site" in headers:
            return _refused(403, "browser pages may not change anything: use the command")
        if headers.get("content-type", "").partition(";")[0].strip().lower() != "application/json":
            return _refused(415, "Content-Type must be application/json")
        given, token = headers.get("authorization", ""), self.token or self.order_token
        if token is not None and given.lower().startswith("bearer ") and _brings(given, token):
            return None
        if self.token is not None:
            return _refused(403, "requests that change something need http.token as a bearer token")
        return _refused(
            403,
            "without http.token, requests that change something are accepted only from the worker's user on "
            "its machine: run the command there with the configuration's file, in the worker's working "
            "directory (kubectl exec); or set http.token",
        )

    def _goes_by(self, host: str | None) -> bool:
        if host is None:  # HTTP/1.0: no current browser
            return True
        # Without the port, the brackets of IPv6, and the final dot of a full name.
        host, is_ipv6 = host.lower(), host.startswith("[")
        name = host[1:].partition("]")[0] if is_ipv6 else host.partition(":")[0].removesuffix(".")
        if _is_address(name) or "." not in name or name.endswith(_OWN_ENDINGS):
            return True
        names = [each.lower() for each in (socket.gethostname(), *self.hosts)]
        below = (each[1:] for each in names if each.startswith("*."))
        return name in names or "*" in names or name.endswith(tuple(below))


class Guard:
    """Middleware that refuses requests which are not allowed."""

    def __init__(self, app: ASGIApp, access: Access) -> None:
        self._app = app
        self._access = access
        self._running = 0
        self._told = False

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        if scope["type"] != "http" or scope["path"] in PROBES:
            await self._app(scope, receive, send)
            return
        refusal = self._access.refusal(scope)
        # Whoever is refused takes no turn from those who bring the token.
        if refusal is None and TURN in scope and not await scope[TURN]():
            return
        most = 2 * _MOST_AT_ONCE if scope["path"] == "/metrics" else _MOST_AT_ONCE
        if refusal is None and self._running >= most:
            refusal = _refused(503, f"{_MOST_AT_ONCE} requests are running: try again")
        if refusal is not None:
            if refusal.status_code == 421 and not self._told:
                self._told = True  # logged once, because anybody can send any name
                _log.warning("http_host_refused", host=Headers(scope=scope)["host"][:200], hint=_HOST_HINT)
            await refusal(scope, receive, send)
            return
        running = True

        def worked_out() -> None:
            nonlocal running
            if running:
                self._running -= 1
                running = False

        async def hand_over(message: Message) -> None:
            worked_out()  # a client that reads slowly must not block others
            await send(message)

        self._running += 1
        try:
            await self._app(scope, receive, hand_over)
        finally:
            worked_out()


def _refused(code: int, reason: str) -> PlainTextResponse:
    return PlainTextResponse(f"{reason}\n", status_code=code, headers={"Cache-Control": "no-store"})


def _brings(authorization: str, token: str) -> bool:
    kind, _, given = authorization.partition(" ")
    given = given.strip()
    if kind.lower() == "basic":
        try:
            _, _, given = base64.b64decode(given, validate=True).decode().partition(":")
        except (binascii.Error, UnicodeDecodeError):
            return False
    elif kind.lower() != "bearer":
        return False
    return hmac.compare_digest(given.encode("utf-8", "replace"), token.encode())


def _is_address(name: str) -> bool:
    try:
        ipaddress.ip_address(name.partition("%")[0])
    except ValueError:
        return False
    return True
