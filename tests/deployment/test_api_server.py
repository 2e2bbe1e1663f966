"""What is in k8s/ on Kubernetes' own API server: it takes all of it, and pods made of it may start.

`make api-server` runs this: the server is built from its source, once, which takes ten minutes.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import EXAMPLE, folders, render
from helm_chart import rendered
from servers.api_server import ApiServer, EtcdNode
from test_chart import VALUES

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
ALL = folders(ROOT)
OVERLAYS = ALL[1:]
STRICT = ("enforce", "warn")
"""Of Kubernetes' own rules of what a pod may do, the strictest: a pod that does more is refused; of what
would make one the server warns, which fails a test."""


@pytest.fixture(scope="module")
def server() -> Iterator[ApiServer]:
    with ExitStack() as stack:
        etcd = EtcdNode()
        stack.callback(etcd.close)
        etcd.start()
        node = ApiServer(etcd)
        stack.callback(node.close)
        node.start()
        # No controller runs that would make them, and the overlay of KEDA names its namespace.
        for name in ("binlane", "default"):
            labels = {f"pod-security.kubernetes.io/{mode}": "restricted" for mode in STRICT}
            space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": name, "labels": labels}}
            node.kubectl("apply", "--server-side", "--filename=-", text=yaml.safe_dump(space))
        yield node


def name(folder: Path) -> str:
    return folder.name


@pytest.fixture
def empty(server: ApiServer) -> ApiServer:
    """Without what another test applied."""
    for folder in ALL:
        server.kubectl("delete", "--ignore-not-found", "--kustomize", str(folder))
    return server


@pytest.mark.parametrize("folder", ALL, ids=name)
def test_the_server_takes_it(empty: ApiServer, folder: Path) -> None:
    told = empty.apply(folder, "--dry-run=server")
    assert len(told.splitlines()) == len(render(folder))
    assert all(line.endswith("created (server dry run)") for line in told.splitlines())


@pytest.mark.parametrize("folder", OVERLAYS, ids=name)
def test_an_overlay_can_follow_what_is_applied_already(empty: ApiServer, folder: Path) -> None:
    """No field of it may not be changed."""
    namespace = next(iter({one["metadata"].get("namespace", "default") for one in render(folder)}))
    empty.kubectl("apply", "--namespace", namespace, "--kustomize", str(ALL[0]))
    told = empty.apply(folder, "--dry-run=server")
    assert "serviceaccount/binlane unchanged" in told or "serviceaccount/binlane configured" in told


@pytest.mark.parametrize("folder", ALL, ids=name)
def test_a_pod_of_it_is_admitted(empty: ApiServer, folder: Path) -> None:
    empty.apply(folder)
    workloads = ("Deployment", "StatefulSet", "Job")
    [workload] = [one for one in render(folder) if one["kind"] in workloads]
    namespace = workload["metadata"].get("namespace", "default")
    told = dry_run(empty, pod_of(workload), "--namespace", namespace)
    assert told == "pod/one created (server dry run)\n"


OF_A_SERVICE = ("--set=monitoring.enabled=true,monitoring.kind=ServiceMonitor",)


@pytest.mark.parametrize("values", [*VALUES.values(), OF_A_SERVICE], ids=[*VALUES, "service-monitor"])
def test_the_server_takes_the_chart(empty: ApiServer, helm: str, values: tuple[str, ...]) -> None:
    """Also the pod of `helm test`, under the strictest rules for pods."""
    manifests = rendered(helm, *values)
    arguments = ("--namespace=binlane", "--validate=strict", "--filename=-")
    # The server admits a pod only if its account exists.
    accounts = [one for one in manifests if one["kind"] == "ServiceAccount"]
    others = [one for one in manifests if one["kind"] != "ServiceAccount"]
    empty.kubectl("apply", *arguments, text=yaml.safe_dump_all(accounts))
    told = empty.kubectl("apply", "--dry-run=server", *arguments, text=yaml.safe_dump_all(others))
    assert len(told.splitlines()) == len(others)
    assert all(line.endswith("created (server dry run)") for line in told.splitlines())


def test_the_server_takes_the_example(server: ApiServer) -> None:
    space = {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": "shop"}}
    server.kubectl("apply", "--server-side", "--filename=-", text=yaml.safe_dump(space))
    told = server.apply(ROOT / EXAMPLE, "--dry-run=server")
    assert len(told.splitlines()) == len(render(ROOT / EXAMPLE))
    assert all(line.endswith("created (server dry run)") for line in told.splitlines())


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    """As its controller makes it."""
    template = workload["spec"]["template"]
    spec = dict(template["spec"])
    claims = [each["metadata"]["name"] for each in workload["spec"].get("volumeClaimTemplates", [])]
    volumes = [{"name": each, "persistentVolumeClaim": {"claimName": f"{each}-one"}} for each in claims]
    spec["volumes"] = [*spec["volumes"], *volumes]
    metadata = {**template["metadata"], "name": "one"}
    return {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "spec": spec}


def dry_run(server: ApiServer, manifest: dict[str, Any], *arguments: str) -> str:
    text = yaml.safe_dump(manifest)
    return server.kubectl("create", "--dry-run=server", "--filename=-", *arguments, text=text)


def test_sparks_driver_may_do_what_it_does_and_no_other_worker_may(empty: ApiServer) -> None:
    def may(verb: str, what: str) -> bool:
        account = "system:serviceaccount:default:binlane"
        asked = empty.try_kubectl("auth", "can-i", verb, what, f"--as={account}", "--namespace=default")
        assert asked.stdout.strip() in ("yes", "no"), asked.stderr
        return asked.stdout.strip() == "yes"

    empty.apply(ROOT / "k8s" / "overlays" / "monitoring")
    assert not may("list", "pods")
    empty.apply(ROOT / "k8s" / "overlays" / "spark-on-kubernetes")
    assert all(may(verb, "pods") for verb in ("create", "get", "list", "watch", "delete", "deletecollection"))
    assert all(may("create", what) for what in ("configmaps", "services", "persistentvolumeclaims"))
    assert not any(may("get", what) for what in ("secrets", "deployments.apps"))


def test_all_components_together_are_taken(empty: ApiServer, shipped: Path) -> None:
    own = shipped / "k8s" / "own"
    own.mkdir()
    shutil.copy(shipped / "k8s" / "base" / "binlane.yaml", own)
    components = ("monitoring", "keda", "network-policy", "spark-on-kubernetes", "statefulset")
    listed = {
        "namespace": "binlane",
        "resources": ["../base"],
        "components": [f"../components/{each}" for each in components],
        "configMapGenerator": [{"name": "binlane", "behavior": "replace", "files": ["binlane.yaml"]}],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(listed))
    told = empty.apply(own, "--dry-run=server")
    for kind in ("statefulset.apps", "scaledobject.keda.sh", "podmonitor.monitoring.coreos.com"):
        assert f"{kind}/binlane created (server dry run)" in told


@pytest.mark.parametrize(
    ("file", "change", "said"),
    [
        ("base/deployment.yaml", ("periodSeconds: 5", "periodSecond: 5"), 'unknown field "spec.template'),
        ("base/deployment.yaml", ("NonRoot: true", "NonRoot: false"), "would violate PodSecurity"),
        ("base/service.yaml", ("name: http", "name: HTTP"), "Invalid value"),
        ("components/keda/scaled-object.yaml", ("Count: 1", "Count: one"), "minReplicaCount"),
        ("components/keda/scaled-object.yaml", ("pollingI", "pollI"), 'unknown field "spec.pollInterval'),
        ("components/monitoring/pod-monitor.yaml", ("interval: 15s", "interval: 15"), "interval"),
    ],
)
def test_what_is_wrong_is_refused(
    empty: ApiServer, shipped: Path, file: str, change: tuple[str, str], said: str
) -> None:
    path = shipped / "k8s" / file
    text = path.read_text()
    assert change[0] in text
    path.write_text(text.replace(*change))
    with pytest.raises(AssertionError, match=said):
        empty.apply(shipped / "k8s" / "overlays" / "keda", "--dry-run=server")
