"""Azure's blob storage for tests: Azurite, which `tools/setup.sh stores` fetches."""

from __future__ import annotations

import base64
import hashlib
import hmac
import shutil
import subprocess
import sys
import tempfile
from datetime import UTC, datetime
from pathlib import Path

import httpx
import plain_http
from servers.server_process import HOST, ProgramMissing
from servers.spark_cluster import eventually

from handlers.spark.runtime.jars import cache_folder
from worker.local import broker_guard
from worker.local.broker_settings import free_port

__all__ = ["ACCOUNT", "AzuriteServer"]

ACCOUNT = "devstoreaccount1"
# Azurite's own, the same everywhere.
_KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_STOP_SECONDS = 20


class AzuriteServer:
    """Keeps what it was given until it is closed, or this process ends."""

    def __init__(self) -> None:
        self._url = f"http://{HOST}:{free_port()}"
        self._folder = Path(tempfile.mkdtemp(prefix="binlane-azurite-"))
        self._guard: subprocess.Popen[bytes] | None = None
        self._containers = 0

    @property
    def environment(self) -> dict[str, str]:
        """What a client's environment must say to reach it."""
        return {"AZURE_STORAGE_USE_EMULATOR": "true", "AZURITE_BLOB_STORAGE_URL": self._url}

    def start(self) -> None:
        """Returns when it answers. Raises ProgramMissing."""
        program = (
            cache_folder() / "azurite" / "node_modules" / "azurite" / "dist" / "src" / "blob" / "main.js"
        )
        node = shutil.which("node")
        if node is None or not program.exists():
            raise ProgramMissing("Azurite is missing: tools/setup.sh stores")
        host, port = self._url.removeprefix("http://").split(":")
        guard = (sys.executable, "-I", "-S", broker_guard.__file__, str(_STOP_SECONDS), str(self._folder))
        options = ("--inMemoryPersistence", "--disableTelemetry", "--skipApiVersionCheck", "--silent")
        self._guard = subprocess.Popen(
            [*guard, node, str(program), "--blobHost", host, "--blobPort", port, *options],
            bufsize=0,
            cwd=self._folder,
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            start_new_session=True,
        )
        eventually(self._answers, "Azurite answers")

    def new_container(self) -> str:
        """Its name."""
        self._containers += 1
        name = f"lake-{self._containers}"
        date, version = datetime.now(UTC).strftime("%a, %d %b %Y %H:%M:%S GMT"), "2021-08-06"
        headers = f"x-ms-date:{date}\nx-ms-version:{version}"
        signed = "PUT" + "\n" * 12 + f"{headers}\n/{ACCOUNT}/{ACCOUNT}/{name}\nrestype:container"
        digest = hmac.new(base64.b64decode(_KEY), signed.encode(), hashlib.sha256).digest()
        answer = plain_http.put(
            f"{self._url}/{ACCOUNT}/{name}?restype=container",
            headers={
                "x-ms-date": date,
                "x-ms-version": version,
                "Authorization": f"SharedKey {ACCOUNT}:{base64.b64encode(digest).decode()}",
            },
        )
        answer.raise_for_status()
        return name

    def close(self) -> None:
        if self._guard is not None:
            assert self._guard.stdin is not None
            assert self._guard.stdout is not None
            self._guard.stdin.close()  # the guard ends it
            self._guard.wait(_STOP_SECONDS * 2)
            self._guard.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def _answers(self) -> bool:
        try:
            plain_http.get(self._url)
        except httpx.TransportError:
            return False
        return True
