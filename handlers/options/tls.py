"""`tls:` of what speaks HTTP."""

from __future__ import annotations

import ssl
from pathlib import Path
from typing import Protocol

import httpx
from pydantic import BaseModel, ConfigDict, Field

__all__ = ["Tls", "TlsOptions", "trusted"]


class Tls(Protocol):
    """What a section of certificates says: see TlsOptions."""

    @property
    def verify(self) -> bool: ...
    @property
    def ca(self) -> str | None: ...
    @property
    def certificate(self) -> str | None: ...
    @property
    def key(self) -> str | None: ...


class TlsOptions(BaseModel):
    """`tls:` for services with certificates of their own. Paths start at the configuration file's folder."""

    model_config = ConfigDict(extra="forbid", frozen=True)

    verify: bool = Field(default=True, description="Whether the service must prove who it is.")
    ca: str | None = Field(
        default=None, min_length=1, description="A file of certificates (PEM) to trust beside the usual ones."
    )
    certificate: str | None = Field(
        default=None, min_length=1, description="Our own certificate (PEM), for services that ask for one."
    )
    key: str | None = Field(
        default=None, min_length=1, description="Its private key, if the certificate's file does not hold it."
    )


def trusted(url: str, tls: Tls, folder: Path, *, where: str = "tls") -> ssl.SSLContext | bool:
    """What a client of `url` is to trust, and to show. False for plain HTTP: to read the usual certificates
    takes a while, and nobody shows any there. `where`: the section's place. Raises OSError for a certificate
    that cannot be read, or that would never be looked at."""
    if httpx.URL(url).scheme != "https":  # however it is written
        if tls.ca is not None or tls.certificate is not None:
            raise OSError(f"{where}: nobody shows a certificate at {url}, it is plain HTTP: write https://")
        return False
    made = httpx.create_ssl_context(verify=tls.verify)
    read = f"ca ({tls.ca})"
    try:
        if tls.ca is not None:
            made.load_verify_locations(folder / tls.ca)
        if tls.certificate is not None:
            key = None if tls.key is None else folder / tls.key
            read = f"certificate ({tls.certificate})" + ("" if key is None else f" with key ({tls.key})")
            made.load_cert_chain(folder / tls.certificate, key)
    except (OSError, ssl.SSLError) as error:
        raise OSError(f"{where}: a certificate cannot be read: {read}: {error}") from None
    return made
