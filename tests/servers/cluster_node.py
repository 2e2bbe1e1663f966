"""What a cluster does with what its API server was given: this starts the pods as processes of this machine.

It is the controllers of Deployments, StatefulSets and Jobs, and the kubelet of one node, as far as a walk
through docs/deployment.md needs them. A pod has the paths of its volumes and the variables of its manifest.
It has the network of this machine.
"""

from __future__ import annotations

import base64
import hashlib
import json
import ssl
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
from servers.api_server import ApiServer
from servers.cluster_pod import ClusterPod
from servers.server_process import HOST, PASSWORD

__all__ = ["ClusterNode"]

Manifest = dict[str, Any]

_KINDS = {
    "apis/apps/v1/%sdeployments": "Deployment",
    "apis/apps/v1/%sstatefulsets": "StatefulSet",
    "apis/batch/v1/%sjobs": "Job",
}
_LOOK_SECONDS = 0.3


class ClusterNode:
    """`folder`: where pods have their volumes. `root`: the folder of binlane. Use it as a context."""

    def __init__(self, server: ApiServer, folder: Path, root: Path) -> None:
        self._client = httpx.Client(
            base_url=server.url, headers={"Authorization": f"Bearer {PASSWORD}"}, verify=False, timeout=20
        )
        self._folder = folder
        self._root = root
        self._pods: dict[str, ClusterPod] = {}
        self._stopping = threading.Event()
        self._logs = ThreadingHTTPServer((HOST, 0), self._handler())
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        made = server.directory / "certificates"
        context.load_cert_chain(made / "apiserver.crt", made / "apiserver.key")
        self._logs.socket = context.wrap_socket(self._logs.socket, server_side=True)
        self._threads = [threading.Thread(target=each) for each in (self._logs.serve_forever, self._run)]
        self.fault: Exception | None = None

    def __enter__(self) -> ClusterNode:
        self._send("POST", "api/v1/nodes", {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "one"}})
        endpoint = {"kubeletEndpoint": {"Port": self._logs.server_port}}
        addresses = [{"type": "InternalIP", "address": HOST}]
        self._status("api/v1/nodes/one", {"addresses": addresses, "daemonEndpoints": endpoint})
        for thread in self._threads:
            thread.start()
        return self

    def __exit__(self, *told: object) -> None:
        self._stopping.set()
        self._threads[1].join()
        self._logs.shutdown()
        self._logs.server_close()
        self._send("DELETE", "api/v1/nodes/one")
        for pod in self._pods.values():
            pod.process.kill()
            pod.process.wait()
        self._client.close()

    def addresses(self, namespace: str) -> list[str]:
        """Of the metrics of the workers that run in a namespace."""
        return [
            f"{HOST}:{each.container['ports'][0]['containerPort']}"
            for each in list(self._pods.values())
            if each.namespace == namespace and "ports" in each.container and each.process.poll() is None
        ]

    def exit_codes(self, namespace: str) -> list[int]:
        """Of the workers that ran in a namespace and have ended."""
        ended = [
            each.process.poll()
            for each in list(self._pods.values())
            if each.namespace == namespace and "ports" in each.container
        ]
        return [code for code in ended if code is not None]

    # ---- controllers ----

    def _run(self) -> None:
        try:
            while not self._stopping.wait(_LOOK_SECONDS):
                pods = self._list("api/v1/pods")
                owners = {""}
                for kind in _KINDS:
                    for each in self._list(kind % ""):
                        owners.add(each["metadata"]["uid"])
                        self._follow(kind, each, pods)
                for each in pods:
                    if _owner(each) not in owners:
                        self._remove(each)
                    self._serve(each)
        except Exception as fault:
            self.fault = fault
            raise

    def _follow(self, kind: str, workload: Manifest, pods: list[Manifest]) -> None:
        """One pod of its template. That of another template goes first."""
        meta, spec = workload["metadata"], workload["spec"]
        digest = hashlib.sha256(json.dumps(spec["template"], sort_keys=True).encode()).hexdigest()[:10]
        own = [each for each in pods if _owner(each) == meta["uid"]]
        for each in own:
            if not each["metadata"]["name"].endswith(digest):
                self._remove(each)
        if not own and not workload.get("status", {}).get("conditions"):
            owner = {"uid": meta["uid"], "name": meta["name"], "controller": True}
            owner |= {"apiVersion": kind.partition("%")[0][5:-1], "kind": _KINDS[kind]}
            pod = {**spec["template"], "kind": "Pod", "apiVersion": "v1"}
            pod["metadata"] = {
                **pod["metadata"],
                "name": f"{meta['name']}-{digest}",
                "ownerReferences": [owner],
            }
            pod["spec"] |= {"volumes": [*pod["spec"]["volumes"], *_claimed(spec)]}
            self._send("POST", f"api/v1/namespaces/{meta['namespace']}/pods", pod)
        ready = sum(_is_ready(each) for each in own if each["metadata"]["name"].endswith(digest))
        place = f"{kind % ('namespaces/' + meta['namespace'] + '/')}/{meta['name']}"
        if _KINDS[kind] == "Job":
            ended = [each["status"]["phase"] for each in own if each["status"]["phase"] in _ENDED]
            if ended and not workload["status"].get("conditions"):
                self._status(place, _job_status(ended[0] == "Succeeded"))
        else:
            replicas = dict.fromkeys(_COUNTS, ready)
            self._status(place, {"observedGeneration": meta["generation"], **replicas})

    def _remove(self, pod: Manifest) -> None:
        if "deletionTimestamp" not in pod["metadata"]:
            self._send("DELETE", _path(pod))

    # ---- the kubelet ----

    def _serve(self, pod: Manifest) -> None:
        meta, uid = pod["metadata"], pod["metadata"]["uid"]
        running = self._pods.get(uid)
        if "deletionTimestamp" in meta:
            if running is not None and running.process.poll() is None:
                running.stop()
            else:
                self._send("DELETE", _path(pod), {"gracePeriodSeconds": 0})
        elif running is None:
            if "nodeName" not in pod["spec"]:
                to = {"metadata": {"name": meta["name"]}, "target": {"kind": "Node", "name": "one"}}
                self._send("POST", f"{_path(pod)}/binding", {"apiVersion": "v1", "kind": "Binding", **to})
            self._pods[uid] = ClusterPod(self._folder / uid, self._root, pod, self._volumes(pod))
        elif pod["status"]["phase"] not in _ENDED:
            code = running.process.poll()
            phase = "Running" if code is None else _ENDED[code != 0]
            ready = str(code is None and running.ready())
            conditions = [{"type": "Ready", "status": ready}]
            if (phase, conditions) != (pod["status"]["phase"], _conditions(pod)):
                state = {"running": {}} if code is None else {"terminated": {"exitCode": code}}
                container = {"name": running.container["name"], "image": "", "imageID": "", "restartCount": 0}
                container |= {"ready": ready == "True", "state": state}
                told = {"phase": phase, "conditions": conditions, "containerStatuses": [container]}
                self._status(_path(pod), told)

    def _volumes(self, pod: Manifest) -> dict[str, Path]:
        found = {}
        for volume in pod["spec"]["volumes"]:
            place = found[volume["name"]] = self._folder / f"{pod['metadata']['uid']}-{volume['name']}"
            place.mkdir()
            space = f"api/v1/namespaces/{pod['metadata']['namespace']}"
            for kind, (plural, key) in _KEPT.items():
                kept = self._get(f"{space}/{plural}/{volume[kind][key]}")["data"] if kind in volume else {}
                for name, text in kept.items():
                    (place / name).write_bytes(base64.b64decode(text) if kind == "secret" else text.encode())
        return found

    def _handler(self) -> type[BaseHTTPRequestHandler]:
        pods = self._pods

        class Logs(BaseHTTPRequestHandler):
            """/containerLogs/NAMESPACE/POD/CONTAINER"""

            def do_GET(self) -> None:
                namespace, name = self.path.split("/")[2:4]
                told = [each for each in pods.values() if (each.namespace, each.name) == (namespace, name)]
                text = told[-1].log.read_bytes() if told else b""
                self.send_response(200 if told else 404)
                self.send_header("Content-Length", str(len(text)))
                self.end_headers()
                self.wfile.write(text)

            def log_message(self, *told: object) -> None:
                pass

        return Logs

    # ---- the API ----

    def _get(self, path: str) -> Manifest:
        found: Manifest = self._client.get(path).raise_for_status().json()
        return found

    def _list(self, path: str) -> list[Manifest]:
        found: list[Manifest] = self._get(path)["items"]
        return found

    def _send(self, method: str, path: str, body: Manifest | None = None) -> None:
        answer = self._client.request(method, path, json=body)
        if answer.status_code not in (404, 409):  # somebody else was quicker
            answer.raise_for_status()

    def _status(self, path: str, told: Manifest) -> None:
        merge = {"Content-Type": "application/merge-patch+json"}
        answer = self._client.patch(f"{path}/status", content=json.dumps({"status": told}), headers=merge)
        if answer.status_code != 404:
            assert answer.is_success, answer.text


_ENDED = ("Succeeded", "Failed")
_COUNTS = ("replicas", "updatedReplicas", "readyReplicas", "availableReplicas")
_KEPT = {"configMap": ("configmaps", "name"), "secret": ("secrets", "secretName")}


def _path(pod: Manifest) -> str:
    return f"api/v1/namespaces/{pod['metadata']['namespace']}/pods/{pod['metadata']['name']}"


def _owner(pod: Manifest) -> str:
    return str(next((each["uid"] for each in pod["metadata"].get("ownerReferences", [])), ""))


def _claimed(spec: Manifest) -> list[Manifest]:
    """The volumes of a StatefulSet's claims: folders here."""
    claims = spec.get("volumeClaimTemplates", [])
    return [{"name": each["metadata"]["name"], "emptyDir": {}} for each in claims]


def _conditions(pod: Manifest) -> list[Manifest]:
    found = pod["status"].get("conditions", [])
    return [{"type": each["type"], "status": each["status"]} for each in found if each["type"] == "Ready"]


def _is_ready(pod: Manifest) -> bool:
    return {"type": "Ready", "status": "True"} in _conditions(pod)


def _job_status(succeeded: bool) -> Manifest:
    now = "2030-01-01T00:00:00Z"
    kinds = ("SuccessCriteriaMet", "Complete") if succeeded else ("FailureTarget", "Failed")
    conditions = [{"type": each, "status": "True", "lastTransitionTime": now} for each in kinds]
    times = {"startTime": now, **({"completionTime": now} if succeeded else {})}
    return {**times, ("succeeded" if succeeded else "failed"): 1, "conditions": conditions}
