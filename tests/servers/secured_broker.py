"""A real Kafka that is reached in three secured ways, with certificates of an authority of its own."""

from __future__ import annotations

from pathlib import Path
from types import TracebackType
from typing import Any, Self

from confluent_kafka.admin import (
    AdminClient,
    ScramCredentialInfo,
    ScramMechanism,
    UserScramCredentialUpsertion,
)
from servers.own_authority import OwnAuthority

from worker.local.broker import Broker
from worker.local.broker_settings import HOST, NODE, free_port

__all__ = ["SecuredBroker"]

_PROTOCOLS = {"TLS": "SSL", "MTLS": "SSL", "SCRAM": "SASL_SSL"}
_MECHANISM = "SCRAM-SHA-512"


class SecuredBroker:
    """Kafka with a listener for each of `TLS`, `MTLS` (clients show a certificate) and `SCRAM` (over TLS).

    `broker` is its open door, for what a test itself has to do there.
    """

    def __init__(self, folder: Path) -> None:
        self.authority = OwnAuthority(folder)
        self.user, self.password = "shop", "scram-of-the-tests"
        server, client = self.authority.server(), self.authority.client("shop")
        self.client = client
        keystore = folder / "keystore.pem"
        keystore.write_bytes(server.key.read_bytes() + server.certificate.read_bytes())
        self._ports = {name: free_port() for name in _PROTOCOLS}
        port, controller = free_port(), f"{HOST}:{free_port()}"
        clients = {"PLAINTEXT": port, **self._ports}
        advertised = [f"{name}://{HOST}:{number}" for name, number in clients.items()]
        protocols = {"CONTROLLER": "PLAINTEXT", "PLAINTEXT": "PLAINTEXT", **_PROTOCOLS}
        scram = "org.apache.kafka.common.security.scram.ScramLoginModule required;"
        self.broker = Broker(
            port=port,
            overrides={
                "listeners": ",".join([*advertised, f"CONTROLLER://{controller}"]),
                "advertised.listeners": ",".join(advertised),
                "controller.quorum.voters": f"{NODE}@{controller}",
                "listener.security.protocol.map": ",".join(f"{a}:{b}" for a, b in protocols.items()),
                "inter.broker.listener.name": "PLAINTEXT",
                "ssl.keystore.type": "PEM",
                "ssl.keystore.location": str(keystore),
                "ssl.truststore.type": "PEM",
                "ssl.truststore.location": str(self.authority.certificate),
                "listener.name.mtls.ssl.client.auth": "required",
                "listener.name.scram.sasl.enabled.mechanisms": _MECHANISM,
                f"listener.name.scram.{_MECHANISM.lower()}.sasl.jaas.config": scram,
            },
        )

    def address(self, way: str) -> str:
        """`127.0.0.1:PORT` of `TLS`, `MTLS` or `SCRAM`."""
        return f"{HOST}:{self._ports[way]}"

    def properties(self, way: str) -> dict[str, Any]:
        """What `kafka.properties` must say to be let in there."""
        found = {
            "security.protocol": _PROTOCOLS[way].lower(),
            "ssl.ca.location": str(self.authority.certificate),
        }
        if way == "MTLS":
            found["ssl.certificate.location"] = str(self.client.certificate)
            found["ssl.key.location"] = str(self.client.key)
        if way == "SCRAM":
            found |= {"sasl.mechanism": _MECHANISM, "sasl.username": self.user}
            found["sasl.password"] = self.password
        return found

    def __enter__(self) -> Self:
        self.broker.__enter__()
        admin = AdminClient({"bootstrap.servers": self.broker.bootstrap_servers})
        credential = ScramCredentialInfo(ScramMechanism.SCRAM_SHA_512, 4096)
        upsertion = UserScramCredentialUpsertion(self.user, credential, self.password.encode())
        for answer in admin.alter_user_scram_credentials([upsertion]).values():
            answer.result(20)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.broker.close()
