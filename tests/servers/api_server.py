"""Kubernetes' API server for tests, without what would start pods: it takes or refuses what it is given."""

from __future__ import annotations

import json
import shutil
import subprocess
from pathlib import Path
from typing import Any, ClassVar

import httpx
from checking import tool
from servers.server_process import HOST, PASSWORD, ProgramMissing, ServerProcess

from handlers.spark.runtime.jars import cache_folder
from worker.local.broker_settings import free_port

__all__ = ["ApiServer", "EtcdNode"]


class EtcdNode(ServerProcess):
    """What an API server keeps its resources in."""

    package: ClassVar[str] = "etcd-server"

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        peers = f"http://{HOST}:{free_port()}"
        return [
            self.program("etcd"),
            f"--data-dir={self.directory / 'data'}",
            *(f"--listen-client-urls={self.url}", f"--advertise-client-urls={self.url}"),
            *(f"--listen-peer-urls={peers}", f"--initial-advertise-peer-urls={peers}"),
            f"--initial-cluster=default={peers}",
        ]

    def ping(self) -> bool:
        return httpx.get(f"{self.url}/health", timeout=2).json()["health"] == "true"


class ApiServer(ServerProcess):
    """What `tools/setup.sh api-server` built, with the resources of KEDA and the Prometheus operator."""

    package: ClassVar[str] = "kube-apiserver"

    def __init__(self, etcd: EtcdNode) -> None:
        super().__init__()
        self._etcd = etcd
        self._built = cache_folder() / "api-server"

    @property
    def url(self) -> str:
        return f"https://{HOST}:{self.port}"

    def prepare(self) -> None:
        if not (self._built / "kube-apiserver").is_file():
            raise ProgramMissing("the API server is missing: tools/setup.sh api-server")
        # The cache may be in a folder that the server's account cannot enter.
        shutil.copy(self._built / "kube-apiserver", self.directory)
        self.run(["openssl", "genrsa", "-out", "accounts.key", "2048"])
        self.write("tokens.csv", f"{PASSWORD},admin,admin,system:masters\n")
        self.write("kubeconfig", json.dumps(self._client()))

    def command(self) -> list[str]:
        return [
            str(self.directory / "kube-apiserver"),
            f"--etcd-servers={self._etcd.url}",
            *(f"--bind-address={HOST}", f"--advertise-address={HOST}", f"--secure-port={self.port}"),
            f"--cert-dir={self.directory / 'certificates'}",
            *("--service-account-issuer=https://tests", "--service-cluster-ip-range=10.0.0.0/24"),
            f"--service-account-signing-key-file={self.directory / 'accounts.key'}",
            f"--service-account-key-file={self.directory / 'accounts.key'}",
            *(f"--token-auth-file={self.directory / 'tokens.csv'}", "--authorization-mode=RBAC"),
        ]

    def ping(self) -> bool:
        asked = httpx.get(
            f"{self.url}/readyz", headers={"Authorization": f"Bearer {PASSWORD}"}, verify=False, timeout=5
        )
        return asked.status_code == 200

    def start(self) -> None:
        super().start()
        definitions = str(self._built / "definitions")
        # On the server's side: they are too large for the annotation that the other way leaves.
        self.kubectl("apply", "--server-side", "--filename", definitions)
        self.kubectl("wait", "--for=condition=Established", "--timeout=60s", "--filename", definitions)

    def try_kubectl(self, *arguments: str, text: str | None = None) -> subprocess.CompletedProcess[str]:
        """kubectl as somebody who may do everything, to its end; `text` is its standard input."""
        command = [tool("kubectl"), "--kubeconfig", str(self.directory / "kubeconfig"), *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, check=False)

    def kubectl(self, *arguments: str, text: str | None = None) -> str:
        """What it prints. AssertionError with what it says if it fails, or the server warns."""
        done = self.try_kubectl(*arguments, text=text)
        assert done.returncode == 0, done.stderr
        assert "Warning" not in done.stderr, done.stderr
        return done.stdout

    def apply(self, folder: Path, *arguments: str) -> str:
        """As a user does it, with keys that the server does not know as errors."""
        return self.kubectl("apply", "--kustomize", str(folder), "--validate=strict", *arguments)

    def _client(self) -> dict[str, Any]:
        cluster = {
            "server": self.url,
            "certificate-authority": str(self.directory / "certificates" / "apiserver.crt"),
        }
        return {
            "apiVersion": "v1",
            "kind": "Config",
            "clusters": [{"name": "tests", "cluster": cluster}],
            "users": [{"name": "admin", "user": {"token": PASSWORD}}],
            "contexts": [{"name": "tests", "context": {"cluster": "tests", "user": "admin"}}],
            "current-context": "tests",
        }
