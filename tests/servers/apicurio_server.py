"""A real schema registry: Apicurio's, in memory, which `tools/setup.sh registry` puts together."""

from __future__ import annotations

import json
import uuid
from typing import Any, ClassVar

import httpx
from servers.server_process import HOST, ProgramMissing, ServerProcess

from handlers.spark.runtime.jars import cache_folder
from handlers.spark.runtime.versions import find_java

__all__ = ["ApicurioServer"]


class ApicurioServer(ServerProcess):
    """Forgets all that it was given when it stops."""

    package: ClassVar[str] = "apicurio-registry"
    unprivileged: ClassVar[bool] = False
    start_seconds: ClassVar[float] = 180

    def __init__(self) -> None:
        super().__init__()
        self._client = httpx.Client(timeout=30, trust_env=False)

    @property
    def url(self) -> str:
        """Of Confluent's API."""
        return f"http://{HOST}:{self.port}/apis/ccompat/v6"

    @property
    def own_url(self) -> str:
        """Of its own API."""
        return f"http://{HOST}:{self.port}/apis/registry/v2"

    def command(self) -> list[str]:
        program = cache_folder() / "registry" / "registry-1-runner.jar"
        if not program.exists():
            raise ProgramMissing("Apicurio's registry is missing: tools/setup.sh registry")
        quick = ("-Xmx600m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC")
        return [str(find_java().executable), *quick, "-jar", str(program)]

    def environment(self) -> dict[str, str]:
        return {"QUARKUS_HTTP_HOST": HOST, "QUARKUS_HTTP_PORT": str(self.port)}

    def ping(self) -> bool:
        return self._client.get(f"{self.own_url}/system/info").status_code == 200

    def close(self) -> None:
        super().close()
        self._client.close()

    def register(self, schema: Any) -> int:
        """An artifact of its own; its content id, which is the id by Confluent's API."""
        return self.create(f"schema-{uuid.uuid4()}", schema)[1]

    def create(self, artifact: str, schema: Any) -> tuple[int, int]:
        """An artifact in Avro by its own API: its global id, its content id."""
        answer = self._client.post(
            f"{self.own_url}/groups/default/artifacts",
            params={"ifExists": "RETURN_OR_UPDATE"},
            content=json.dumps(schema),
            headers={
                "Content-Type": "application/json",
                "X-Registry-ArtifactType": "AVRO",
                "X-Registry-ArtifactId": artifact,
            },
        )
        assert answer.status_code == 200, answer.text
        told = answer.json()
        return told["globalId"], told["contentId"]
