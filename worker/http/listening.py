"""Listen on the HTTP server's address, and explain failures."""

from __future__ import annotations

import errno
import socket


class ListenError(RuntimeError):
    """The address cannot be used. The text says why and which key to change."""


def listen(host: str, port: int) -> socket.socket:
    """Return a socket that listens on `host:port` (port 0: any free port). Raises ListenError."""
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        # A name with both kinds of address (localhost) means IPv4, which probes and scrapes use.
        family, _, _, _, address = min(found, key=lambda each: each[0] != socket.AF_INET)
        return socket.create_server((str(address[0]), port), family=family, backlog=128)
    except OSError as error:
        raise ListenError(_explain(error, host, port)) from error


def _explain(error: OSError, host: str, port: int) -> str:
    if error.errno == errno.EADDRINUSE:
        return (
            f"http.port: {port} on {host} is in use by another process; stop that process, choose another "
            "port, or set 0 for any free one"
        )
    if error.errno == errno.EACCES:
        return f"http.port: {port} on {host} needs rights that this process lacks; choose a port above 1023"
    if isinstance(error, socket.gaierror) or error.errno == errno.EADDRNOTAVAIL:
        return f"http.host: {host} is not an address of this machine; 0.0.0.0 listens on all of them"
    return f"http: cannot listen on {host}, port {port}: {error.strerror or error}"
