"""The certificate that the HTTP server shows, read anew when its files change."""

from __future__ import annotations

import ssl
from pathlib import Path

from handlers.logs import get_logger

_log = get_logger(__name__)


class CertificateError(ValueError):
    """`key` is the part of the configuration, `problem` a phrase that says what is wrong."""

    def __init__(self, key: str, problem: str) -> None:
        super().__init__(f"{key}: {problem}")
        self.key = key
        self.problem = problem


class Certificate:
    """A certificate (with those between it and its authority) and its private key, two PEM files.

    Belongs to one thread."""

    def __init__(self, certificate: Path, key: Path) -> None:
        """Raises CertificateError."""
        self._files = (certificate, key)
        self._seen = self._marks()
        self._context = _context(certificate, key)

    def context(self) -> ssl.SSLContext:
        """For the next connection. What cannot be used leaves the one before in its place, and is logged."""
        seen = self._marks()
        if seen != self._seen:
            self._seen = seen
            try:
                self._context = _context(*self._files)
            except CertificateError as error:
                _log.error("http_certificate_refused", error=str(error), hint="the previous one stays in use")
            else:
                _log.info("http_certificate_renewed", certificate=str(self._files[0]))
        return self._context

    def _marks(self) -> list[tuple[int, int, int] | None]:
        return [_mark(file) for file in self._files]


def _mark(file: Path) -> tuple[int, int, int] | None:
    try:
        found = file.stat()
    except OSError:
        return None
    return found.st_ino, found.st_mtime_ns, found.st_size


def _context(certificate: Path, key: Path) -> ssl.SSLContext:
    for name, file in (("certificate", certificate), ("key", key)):
        try:
            file.read_bytes()
        except OSError as error:
            raise CertificateError(
                f"http.tls.{name}", f"{file} cannot be read ({error.strerror or error})"
            ) from None
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.minimum_version = ssl.TLSVersion.TLSv1_2
    context.set_alpn_protocols(["http/1.1"])
    try:
        # Without the empty password a key that wants one would ask for it on the terminal.
        context.load_cert_chain(certificate, key, password="")
    except (ssl.SSLError, ValueError) as error:
        reason = getattr(error, "reason", None) or "not in PEM format"
        raise CertificateError(
            "http.tls", f"{certificate} and {key} are not a certificate and its unencrypted key ({reason})"
        ) from None
    return context
