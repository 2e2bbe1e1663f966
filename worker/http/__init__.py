"""The worker over HTTP: status page and JSON, probes, metrics; who may ask for what."""

from worker.http.app import build_app
from worker.http.server import HttpServer, ListenError

__all__ = ["HttpServer", "ListenError", "build_app"]
