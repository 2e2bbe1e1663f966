"""A pod's one container, as a process of this machine."""

from __future__ import annotations

import shlex
import subprocess
import sys
from pathlib import Path
from typing import Any

import httpx
import plain_http
from servers.server_process import HOST

__all__ = ["ClusterPod"]

_SHARED = {"/tmp"}
"""Folders that the machine has already, and the pod may keep."""


class ClusterPod:
    """The process of one pod, its volumes and its log."""

    def __init__(self, folder: Path, root: Path, manifest: dict[str, Any], volumes: dict[str, Path]) -> None:
        self.name: str = manifest["metadata"]["name"]
        self.namespace: str = manifest["metadata"]["namespace"]
        [self.container] = manifest["spec"]["containers"]
        folder.mkdir()
        self.log = folder / "log"
        self._is_stopping = False
        places = {each["mountPath"]: volumes[each["name"]] for each in self.container["volumeMounts"]}
        lines = [
            "set -e",
            f"mkdir {folder}/etc",
            f"mount --rbind /etc {folder}/etc",
            "mount -t tmpfs tmpfs /etc",
            f"ln -s {folder}/etc/* /etc/",
            "mount -t tmpfs tmpfs /var/lib",
        ]
        for place, volume in places.items():
            if place not in _SHARED:
                lines += [f"mkdir -p {place}", f"mount --bind {volume} {place}"]
        command = [sys.executable, "-m", "binlane", *self.container["args"]]
        lines.append(f"exec {shlex.join(command)}")
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                ["unshare", "--map-root-user", "--mount", "sh", "-c", "\n".join(lines)],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                cwd=root,
                env={"PATH": "/usr/bin:/bin:/usr/sbin:/sbin", **self._variables(manifest)},
                start_new_session=True,
            )

    def _variables(self, manifest: dict[str, Any]) -> dict[str, str]:
        found = {}
        for each in self.container.get("env", []):
            field = each.get("valueFrom", {}).get("fieldRef", {}).get("fieldPath", "")
            found[each["name"]] = each.get("value") or manifest["metadata"].get(field.rpartition(".")[2], "")
        return found

    def stop(self) -> None:
        """Once: a second signal would end the worker at once."""
        if not self._is_stopping:
            self._is_stopping = True
            self.process.terminate()

    def ready(self) -> bool:
        probe = self.container.get("readinessProbe")
        if probe is None:
            return self.process.poll() is None
        [port] = [each["containerPort"] for each in self.container["ports"] if each["name"] == "http"]
        path = probe["httpGet"]["path"]
        try:
            answer = plain_http.get(f"http://{HOST}:{port}{path}", timeout=2)
        except httpx.HTTPError:
            return False
        return answer.status_code == 200
