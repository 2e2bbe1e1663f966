"""The HTTP application. The page is one file that requests data only from its own origin."""

from __future__ import annotations

import base64
import hashlib
import threading
import time
from collections.abc import Awaitable, Callable
from dataclasses import KW_ONLY, dataclass
from functools import cache
from importlib.resources import files
from typing import Any

import msgspec
from prometheus_client.exposition import choose_encoder
from starlette.applications import Starlette
from starlette.concurrency import run_in_threadpool
from starlette.middleware import Middleware
from starlette.requests import Request
from starlette.responses import HTMLResponse, PlainTextResponse, Response
from starlette.routing import Route

from worker.http.access import Access, Guard
from worker.http.stream import Feed
from worker.http.watch import Sources, TablesQuery, Watch, encoded
from worker.observing.metrics import Metrics
from worker.observing.status import WorkerStatus
from worker.observing.unblock_messages import Answer, PauseRequest, UnblockRequest

Reason = str | None
"""Why a check failed; None: it passed."""

Change = Callable[[Any, str], Answer]
_Endpoint = Callable[[Request], Awaitable[Response]]

_MOST_ASKED = 16_384
"""The most bytes of a request's body."""
_SCRIPTS = ("text", "charts", "tables", "parts", "main")
"""In this order, because each uses names of the earlier ones."""
_READERS = {kind: msgspec.json.Decoder(kind).decode for kind in (TablesQuery, UnblockRequest, PauseRequest)}
"""Made here: msgspec crashes if two threads are the first to read a type."""
_OPEN = "application/openmetrics-text"
_PLAIN, _OPEN_METRICS = choose_encoder(""), choose_encoder(f"{_OPEN}; version=1.0.0")
"""All forms of `/metrics`. No client makes others wait for a form of its own. No name needs escaping."""
_NO_STORE = {"Cache-Control": "no-store", "X-Content-Type-Options": "nosniff"}
SHARE = 0.05
"""The share of one processor that one kind of answer may use."""
_MOST_WAITING = 12
"""Fewer than the requests that may run at once: who waits for one of many variants leaves room for others."""


@dataclass(eq=False)
class Renderings:
    """Renders one kind of answer, and repeats the last one until the next is due. Thread-safe."""

    _: KW_ONLY
    share: float = SHARE
    clock: Callable[[], float] = time.monotonic
    processor_time: Callable[[], float] = time.thread_time
    wait: Callable[[float], None] = time.sleep

    def __post_init__(self) -> None:
        # Guards the fields below. One thread renders, the others wait for its answer.
        self._lock = threading.Lock()
        self._places = threading.BoundedSemaphore(_MOST_WAITING)
        self._variant: object = None
        self._answer = b""
        self._due = float("-inf")

    def variant(self, render: Callable[[], bytes], variant: object) -> bytes | None:
        """Return one of many kinds of answer. None: as many as may wait for theirs."""
        if not self._places.acquire(blocking=False):
            return None
        try:
            return self.answer(render, variant)
        finally:
            self._places.release()

    def answer(self, render: Callable[[], bytes], variant: object = None) -> bytes:
        """Return the last answer, or a new one when it is due. A new variant waits until then.

        Raises what `render` raises, which counts as an answer."""
        with self._lock:
            early = self._due - self.clock()
            if early > 0 and variant == self._variant and self._answer:
                return self._answer
            if early > 0:
                self.wait(early)
            self._answer = b""
            began = self.processor_time()
            try:
                self._answer = render()
            finally:
                self._variant = variant
                self._due = self.clock() + (self.processor_time() - began) / self.share
            return self._answer


def build_app(
    status: Callable[[], WorkerStatus],
    health: Callable[[], Reason],
    ready: Callable[[], Reason],
    metrics: Metrics,
    started: Callable[[], Reason] = lambda: None,
    *,
    unblock: Change | None = None,
    pause: Change | None = None,
    access: Access | None = None,
    sources: Sources | None = None,
) -> Starlette:
    """Build the application: `/`, `/api/status`, `/healthz`, `/readyz`, `/startupz`, `/metrics`, and
    `/api/unblock` and `/api/pause` (POST). The page's own requests are answered from `sources`:
    `/api/events`, `/api/live`, `/api/tables`, `/api/table`, `/api/history`, `/api/configuration`.

    `status` and the scrape may wait for locks of busy threads, so they run on their own threads. `health`,
    `ready` and `started` run on the server's thread and must return at once, so a probe never waits for a
    scrape. `access` checks all requests except probes (default: the machine's own names). Changes are checked
    further by `Access.refusal_of_change`. `unblock` and `pause` receive the request and the client's address,
    and may take half a minute; None: refused."""
    allowed = access or Access()
    watch = Watch(sources or Sources(status))
    expositions = {content_type: Renderings(share=SHARE / 2) for _, content_type in (_PLAIN, _OPEN_METRICS)}
    found, live, tables, history, settings = (Renderings() for _ in range(5))
    feed = Feed(watch.live, lambda: watch.every)

    def page(_: Request) -> Response:
        html, policy = _page()
        return HTMLResponse(html, headers={**_NO_STORE, "Content-Security-Policy": policy})

    def api_tables(request: Request) -> Response:
        try:
            query = msgspec.convert(dict(request.query_params), TablesQuery, strict=False)
        except msgspec.ValidationError as error:
            return PlainTextResponse(f"{error}\n", status_code=400, headers=_NO_STORE)
        return _data(tables.variant(lambda: watch.tables(query), query))

    def api_table(request: Request) -> Response:
        name = request.query_params.get("table", "")
        return _data(tables.variant(lambda: watch.table(name), name))

    async def api_events(request: Request) -> Response:
        return Response() if request.method == "HEAD" else feed.answer(request)

    def scrape(request: Request) -> Response:
        _, wanted = choose_encoder(request.headers.get("accept", ""))
        encode, content_type = _OPEN_METRICS if wanted.startswith(_OPEN) else _PLAIN
        body = expositions[content_type].answer(lambda: encode(metrics.registry))
        return Response(body, headers={**_NO_STORE, "Content-Type": content_type, "Vary": "Accept"})

    def change(kind: type[UnblockRequest | PauseRequest], carry_out: Change | None) -> _Endpoint:
        async def endpoint(request: Request) -> Response:
            refusal = allowed.refusal_of_change(request.scope)
            if refusal is not None:
                return refusal
            if carry_out is None:
                return _answer(Answer(result="refused", message="the worker is starting: try again"))
            body = await _body(request)
            try:
                asked = _READERS[kind](b"" if body is None else body)
            except (msgspec.DecodeError, UnicodeDecodeError) as error:  # the latter: text that is not UTF-8
                return PlainTextResponse(f"{error}\n", status_code=400, headers=_NO_STORE)
            client = request.client.host if request.client is not None else "unknown"
            return _answer(await run_in_threadpool(carry_out, asked, client))

        return endpoint

    application = Starlette(
        routes=[
            Route("/", page),
            Route("/api/status", lambda _: _data(found.answer(lambda: encoded(status())))),
            Route("/api/unblock", change(UnblockRequest, unblock), methods=["POST"]),
            Route("/api/pause", change(PauseRequest, pause), methods=["POST"]),
            Route("/api/events", api_events, methods=["GET"]),
            Route("/api/live", lambda _: _data(live.answer(watch.live))),
            Route("/api/tables", api_tables),
            Route("/api/table", api_table),
            Route("/api/history", lambda _: _data(history.answer(watch.history))),
            Route("/api/configuration", lambda _: _data(settings.answer(watch.settings))),
            Route("/healthz", _probe_of(health)),
            Route("/readyz", _probe_of(ready)),
            Route("/startupz", _probe_of(started)),
            Route("/metrics", scrape),
        ],
        middleware=[Middleware(Guard, access=allowed)],
    )
    # A redirect to the path without its final slash would leave a proxy's prefix, or lead to http.
    application.router.redirect_slashes = False
    return application


async def _body(request: Request) -> bytes | None:
    """Read the body. Return None if it is larger than any valid request."""
    body = b""
    async for piece in request.stream():
        body += piece
        if len(body) > _MOST_ASKED:
            return None
    return body


def _answer(answer: Answer) -> Response:
    code = 409 if answer.result == "refused" else 202 if answer.result == "ordered" else 200
    return Response(
        msgspec.json.encode(answer), status_code=code, media_type="application/json", headers=_NO_STORE
    )


def _data(body: bytes | None) -> Response:
    """`body`: JSON. None: others' answers are being made."""
    if body is None:
        return PlainTextResponse("others ask for tables: try again\n", status_code=503, headers=_NO_STORE)
    return Response(body, media_type="application/json", headers=_NO_STORE)


def _probe_of(ask: Callable[[], Reason]) -> _Endpoint:
    async def probe(_: Request) -> Response:
        reason = ask()
        code = 200 if reason is None else 503
        return PlainTextResponse(f"{reason or 'ok'}\n", status_code=code, headers=_NO_STORE)

    return probe


@cache
def _page() -> tuple[str, str]:
    """Return the page and its policy: only its own style, its own script, and requests to its own origin.

    Table names and errors are foreign text. The script writes them only as text, and the policy blocks
    everything else."""
    folder = files("worker.http") / "page"
    style = (folder / "style.css").read_text("utf-8")
    script = "".join((folder / f"{name}.js").read_text("utf-8") for name in _SCRIPTS)
    html = (folder / "page.html").read_text("utf-8")
    html = html.replace("/* style */", style).replace("/* script */", script)
    policy = "; ".join(
        (
            "default-src 'none'",
            "connect-src 'self'",
            "img-src data:",
            f"style-src '{_digest(style)}'",
            f"script-src '{_digest(script)}'",
            "base-uri 'none'",
            "form-action 'none'",
            "frame-ancestors 'self'",
        )
    )
    return html, policy


def _digest(text: str) -> str:
    """Hash an inline block by https://www.w3.org/TR/CSP3/: exactly the text between the tags."""
    return "sha256-" + base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
