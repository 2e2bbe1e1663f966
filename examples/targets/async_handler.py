"""A handler with coroutines: it sends each row to an HTTP service, up to 500 requests at once.

`python async_handler.py` starts a slow service to try it with.
"""

from __future__ import annotations

import json

import httpx

from binlane import Batch, Handler, HandlerContext, PartialFailure, Rejected, TargetUnavailable


class Notify(Handler):
    """POST each change as JSON. The service may get a change twice, but never two of a row at once."""

    def __init__(self, *, url: str, timeout: float = 10.0, connections: int = 500) -> None:
        self._url = url
        self._timeout = timeout
        self._connections = connections

    async def open(self, context: HandlerContext) -> None:
        # Made on the event loop where `handle` runs, too.
        limits = httpx.Limits(max_connections=self._connections)
        self._client = httpx.AsyncClient(timeout=self._timeout, limits=limits)

    async def handle(self, batch: Batch) -> None:
        for place, change in enumerate(batch.changes):  # one after the other: they may be of one row
            what = {"table": batch.table, "op": change.op, "key": change.key, "row": change.after}
            try:
                answer = await self._client.post(self._url, content=json.dumps(what, default=str))
            except httpx.TransportError as error:
                raise PartialFailure(place, TargetUnavailable(f"{self._url}: {error!r}")) from error
            if answer.is_client_error:
                raise Rejected(f"{self._url} answered {answer.status_code}", at=place)
            answer.raise_for_status()  # any other error is tried again

    async def close(self) -> None:
        await self._client.aclose()


if __name__ == "__main__":
    import asyncio
    import sys

    import uvicorn
    from starlette.applications import Starlette
    from starlette.requests import Request
    from starlette.responses import Response
    from starlette.routing import Route

    async def receive(request: Request) -> Response:
        body = await request.body()
        await asyncio.sleep(0.1)
        print(body.decode(), flush=True)
        return Response(status_code=204)

    port = int(sys.argv[1]) if len(sys.argv) > 1 else 8000
    routes = [Route("/changes", receive, methods=["POST"])]
    uvicorn.run(Starlette(routes=routes), port=port, log_level="warning")
