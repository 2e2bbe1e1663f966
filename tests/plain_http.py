"""HTTP to what runs on this machine. `httpx.get` reads all of the system's certificates at each call, in
50 ms of CPU; `plain_http.get` does not."""

from __future__ import annotations

import httpx

__all__ = ["get", "post", "put", "request"]

_client = httpx.Client(
    verify=False,
    trust_env=False,
    # What answers may be killed between two calls.
    limits=httpx.Limits(max_keepalive_connections=0),
)
request = _client.request
get = _client.get
post = _client.post
put = _client.put
