"""A certificate authority of the tests' own, and what it signs."""

from __future__ import annotations

import ipaddress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import NamedTuple

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import ExtendedKeyUsageOID, NameOID

__all__ = ["OwnAuthority", "Pair"]

_Key = ec.EllipticCurvePrivateKey


class Pair(NamedTuple):
    """Two PEM files."""

    certificate: Path
    key: Path


class OwnAuthority:
    """Signs certificates for a day; `certificate` is what its clients trust."""

    def __init__(self, folder: Path, name: str = "tests' own authority") -> None:
        self._folder = folder
        self._key = ec.generate_private_key(ec.SECP256R1())
        self._name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)])
        signed = self._sign(name, self._key, [(x509.BasicConstraints(ca=True, path_length=0), True)])
        self.certificate = folder / "ca.pem"
        self.certificate.write_bytes(signed)

    def server(self, file: str = "server", address: str = "127.0.0.1") -> Pair:
        """For a server at this IP address."""
        names = x509.SubjectAlternativeName([x509.IPAddress(ipaddress.ip_address(address))])
        return self._pair(file, address, [(names, False)])

    def client(self, name: str) -> Pair:
        """For a client of this name."""
        usage = x509.ExtendedKeyUsage([ExtendedKeyUsageOID.CLIENT_AUTH])
        return self._pair(name, name, [(usage, False)])

    def _pair(self, file: str, name: str, extensions: list[tuple[x509.ExtensionType, bool]]) -> Pair:
        key = ec.generate_private_key(ec.SECP256R1())
        pair = Pair(self._folder / f"{file}.pem", self._folder / f"{file}-key.pem")
        pair.certificate.write_bytes(self._sign(name, key, extensions))
        pair.key.write_bytes(
            key.private_bytes(
                serialization.Encoding.PEM,
                serialization.PrivateFormat.PKCS8,
                serialization.NoEncryption(),
            )
        )
        return pair

    def _sign(self, name: str, key: _Key, extensions: list[tuple[x509.ExtensionType, bool]]) -> bytes:
        now = datetime.now(UTC)
        builder = (
            x509.CertificateBuilder()
            .subject_name(x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, name)]))
            .issuer_name(self._name)
            .public_key(key.public_key())
            .serial_number(x509.random_serial_number())
            .not_valid_before(now - timedelta(hours=1))
            .not_valid_after(now + timedelta(days=1))
        )
        for extension, critical in extensions:
            builder = builder.add_extension(extension, critical=critical)
        return builder.sign(self._key, hashes.SHA256()).public_bytes(serialization.Encoding.PEM)
