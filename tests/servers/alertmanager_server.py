"""Alertmanager for tests: groups within a second what it is given."""

from __future__ import annotations

import shutil
from typing import Any, ClassVar

import plain_http
import yaml
from servers.server_process import HOST, ServerProcess

__all__ = ["AlertmanagerNode", "quick"]


def quick(config: dict[str, Any], hook: str) -> dict[str, Any]:
    """The configuration with waits of a second. Each receiver is the path of its name at `hook`."""
    route = {**config["route"], "group_wait": "1s", "group_interval": "1s"}
    receivers = [
        {"name": each["name"], "webhook_configs": [{"url": f"{hook}/{each['name']}"}]}
        for each in config["receivers"]
    ]
    return {**config, "route": route, "receivers": receivers}


class AlertmanagerNode(ServerProcess):
    """An Alertmanager with this configuration."""

    package: ClassVar[str] = "prometheus-alertmanager"

    def __init__(self, config: dict[str, Any], port: int | None = None) -> None:
        super().__init__(port)
        self._config = config

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def command(self) -> list[str]:
        # Debian's name, and that of the project's own releases.
        program = shutil.which("alertmanager") or self.program("prometheus-alertmanager")
        return [
            program,
            f"--config.file={self.write('alertmanager.yml', yaml.safe_dump(self._config))}",
            f"--storage.path={self.directory / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
            "--cluster.listen-address=",
            "--log.level=warn",
        ]

    def ping(self) -> bool:
        return plain_http.get(f"{self.url}/-/ready", timeout=2).status_code == 200

    def send(self, alerts: list[dict[str, str]]) -> None:
        """Firing alerts with these labels, as Prometheus sends them. It sends each again every minute."""
        told = [{"labels": labels} for labels in alerts]
        plain_http.post(f"{self.url}/api/v2/alerts", json=told, timeout=10).raise_for_status()
