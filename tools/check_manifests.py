"""Check k8s/ (the base and every overlay) and the example deployment, as `kubectl kustomize` renders them.

Kubernetes' own schemas are applied strictly, as are strict models of KEDA's and the Prometheus operator's
resources. Each configuration must pass `binlane check`, and pods must have what binlane needs.
"""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import kubernetes_validate  # type: ignore[import-untyped]  # it has no types
import yaml
from checking import configuration_faults, image_user, longest_stop, read, tool
from custom_resources import custom_faults, is_custom

from worker.configuration import Configuration
from worker.configuration.doubts import single_worker
from worker.running.handler_set import OPENING_SECONDS

__all__ = ["EXAMPLE", "check_folder", "check_manifests", "check_rendered", "folders", "render"]

EXAMPLE = Path("examples", "kubernetes-shop")
"""A complete deployment, built from the base and components."""

MEBIBYTES = 2048 + 384 + 256 + 150
"""A pod's default memory: Spark's heap, Java's other memory, `lanes.max_bytes`, and a fixed part."""

LOG_MEBIBYTES = 512
"""On the node's disk beside a pod's volumes: its container's log. The kubelet keeps 50 MiB by default."""

Manifest = dict[str, Any]


def folders(root: Path) -> list[Path]:
    """Return the folders that can be applied: the base, and each overlay."""
    return [root / "k8s" / "base", *sorted((root / "k8s" / "overlays").iterdir())]


def render(folder: Path) -> list[Manifest]:
    """Render the folder with `kubectl kustomize`. Raises ValueError with its error output if it fails."""
    command = [tool("kubectl"), "kustomize", str(folder)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr.strip().replace("\n", " "))
    return [one for one in yaml.safe_load_all(done.stdout) if one]


def check_manifests(root: Path) -> Iterator[str]:
    """Yield the faults of all folders that can be applied, as `folder: what`."""
    for folder in (*folders(root), root / EXAMPLE):
        yield from check_folder(root, folder)


def check_folder(root: Path, folder: Path) -> Iterator[str]:
    place = str(folder.relative_to(root))
    try:
        manifests = render(folder)
    except ValueError as error:
        yield f"{place}: cannot be rendered: {error}"
        return
    yield from check_rendered(root, place, manifests)


def check_rendered(root: Path, place: str, manifests: list[Manifest]) -> Iterator[str]:
    """Yield the faults of what was rendered, by kustomize or by Helm, as `place: what`."""
    faults = [f"{place}: {fault}" for manifest in manifests for fault in _schema_faults(manifest)]
    yield from faults
    if faults:
        return
    for manifest in manifests:
        if manifest["kind"] in ("Deployment", "StatefulSet"):
            named = f"{manifest['kind']}/{manifest['metadata']['name']}"
            yield from (f"{place}: {named}: {fault}" for fault in _workload_faults(root, manifest, manifests))


def _schema_faults(manifest: Manifest) -> Iterator[str]:
    where = f"{manifest.get('kind')}/{manifest.get('metadata', {}).get('name')}"
    if is_custom(manifest):
        yield from (f"{where}: {fault}" for fault in custom_faults(manifest))
        return
    try:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{where}: {'.'.join(str(part) for part in error.path)}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"{where}: no such kind in {manifest.get('apiVersion')}"


def _workload_faults(root: Path, workload: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    pod = workload["spec"]["template"]["spec"]
    container = pod["containers"][0]
    yield from _pod_faults(root, pod, container)
    account = pod.get("serviceAccountName")
    if account not in [one["metadata"]["name"] for one in manifests if one["kind"] == "ServiceAccount"]:
        yield f"serviceAccountName {account} is not among the manifests"
    yield from _selector_faults(workload, manifests)

    config = Path(container["args"][-1])
    source = _mounted_config_map(pod, container, config.parent, manifests)
    if source is None or config.name not in source["data"]:
        yield f"{config} comes from no ConfigMap of the manifests"
        return
    text = source["data"][config.name]
    values = {one["name"]: one.get("value", one["name"]) for one in container.get("env", [])}
    path = _file_with(root, text)
    faults = configuration_faults(root, path, values)
    yield from faults
    if faults:
        return
    configuration = read(text, path.parent)
    # An overlay has its own configuration. One with Spark, which takes longest to stop, must fit too.
    stop = max(
        longest_stop(configuration), longest_stop(read((root / "deploy" / "binlane.yaml").read_text()))
    )
    if pod.get("terminationGracePeriodSeconds", 30) < stop:
        yield f"terminationGracePeriodSeconds must be at least {stop:g} to hold a stop"
    yield from _start_faults(container, configuration)
    yield from _count_faults(workload, manifests, configuration)
    yield from (f"{config.name}: {fault}" for fault in _first_look_faults(root, configuration))


def _pod_faults(root: Path, pod: Manifest, container: Manifest) -> Iterator[str]:
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe not in container:
            yield f"{probe} is missing"
    if str(pod.get("securityContext", {}).get("runAsUser")) != image_user(root / "Dockerfile"):
        yield "runAsUser is not the user of the Dockerfile"
    if not container.get("securityContext", {}).get("readOnlyRootFilesystem"):
        yield "readOnlyRootFilesystem must be true"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield "resources.limits.memory is missing"
    if _mebibytes(container.get("resources", {}).get("requests", {}).get("memory", "")) < MEBIBYTES:
        yield f"resources.requests.memory must be {MEBIBYTES}Mi at least, to hold Spark's heap"
    emptied = [each["emptyDir"].get("sizeLimit", "") for each in pod["volumes"] if "emptyDir" in each]
    disk = container.get("resources", {}).get("limits", {}).get("ephemeral-storage")
    if disk is not None and _mebibytes(disk) < (least := sum(map(_mebibytes, emptied)) + LOG_MEBIBYTES):
        yield f"resources.limits.ephemeral-storage must be {least}Mi at least, or the pod is evicted"


def _selector_faults(workload: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    """Check that selectors select the workload's pods. A NetworkPolicy may also select executors."""
    labels = workload["spec"]["template"]["metadata"]["labels"].items()
    maps = [one["data"] for one in manifests if one["kind"] == "ConfigMap" and "executor.yaml" in one["data"]]
    executors = [yaml.safe_load(each["executor.yaml"])["metadata"]["labels"].items() for each in maps]
    for one in manifests:
        spec = one.get("spec", {})
        if one["kind"] == "Service":
            chosen = spec["selector"]
        elif one["kind"] in ("PodDisruptionBudget", "PodMonitor", "ServiceMonitor"):
            chosen = spec["selector"]["matchLabels"]
        elif one["kind"] == "NetworkPolicy":
            chosen = spec["podSelector"]["matchLabels"]
            if any(chosen.items() <= each for each in executors):
                continue
        else:
            continue
        if not chosen.items() <= labels:
            yield f"{one['kind']}/{one['metadata']['name']} chooses none of its pods"


def _start_faults(container: Manifest, configuration: Configuration) -> Iterator[str]:
    probe = container.get("startupProbe", {})
    if probe.get("httpGet", {}).get("path") != "/startupz":
        yield "startupProbe must ask /startupz, which fails until the handlers are open"
    patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    start = configuration.start_timeout + OPENING_SECONDS
    if patience < start:
        yield f"startupProbe must have {start:g} s at least to hold a start, and has {patience}"


def _count_faults(
    workload: Manifest, manifests: list[Manifest], configuration: Configuration
) -> Iterator[str]:
    spec, kind = workload["spec"], workload["kind"]
    scaled = [one["spec"] for one in manifests if one["kind"] == "ScaledObject"]
    for each in scaled:
        target = each["scaleTargetRef"]
        if (target.get("kind", "Deployment"), target["name"]) != (kind, workload["metadata"]["name"]):
            yield "is not what the ScaledObject scales"
        if "replicas" in spec:
            yield "replicas must not be set beside a ScaledObject: each apply would set them back"
    reason = single_worker(configuration)
    most = max((each["maxReplicaCount"] for each in scaled), default=spec.get("replicas", 1))
    # A StatefulSet's pod has ended before another takes its name. A Deployment does not wait for that.
    promised = configuration.spark.get("single_writer") is True
    recreated = spec.get("strategy", {}).get("type") == "Recreate"
    if reason is not None and not (most == 1 and (kind == "StatefulSet" or (recreated and not promised))):
        wanted = "a StatefulSet" if promised else "a StatefulSet, or a Deployment with the strategy Recreate"
        yield f"{reason}: it must be {wanted}, with one replica"


def _first_look_faults(root: Path, configuration: Configuration) -> Iterator[str]:
    """A log-only deployment must not log rows, nor leave an offset in the group of a later target."""
    entries = [entry for rule in configuration.tables for entry in rule.handlers]
    if any(entry.type != "log" for entry in entries):
        return
    if any(entry.options.get("each") != "batch" for entry in entries):
        yield "log must have each: batch, or rows come into the log"
    group = configuration.kafka.group_id
    texts = {path.name: path.read_text() for path in (root / "deploy").glob("*.yaml")}
    used = [name for name, text in texts.items() if read(text).kafka.group_id == group]
    if used:
        yield f"its group, {group}, is that of deploy/{used[0]}, which would begin where this one stands"


def _file_with(root: Path, text: str) -> Path:
    """Find the source file of a ConfigMap, whose name `binlane check` prints."""
    found = [*sorted((root / "k8s").rglob("*.yaml")), *(root / EXAMPLE).rglob("*.yaml")]
    return next(path for path in found if path.read_text() == text)


def _mebibytes(quantity: str) -> int:
    found = re.fullmatch("([0-9]+)([MG])i", quantity)
    return int(found[1]) * {"M": 1, "G": 1024}[found[2]] if found else 0


def _mounted_config_map(
    pod: Manifest, container: Manifest, folder: Path, manifests: list[Manifest]
) -> Manifest | None:
    mounts = {mount["mountPath"]: mount["name"] for mount in container.get("volumeMounts", [])}
    volumes = {volume["name"]: volume for volume in pod.get("volumes", [])}
    name = volumes.get(mounts.get(str(folder)), {}).get("configMap", {}).get("name")
    found = [one for one in manifests if one["kind"] == "ConfigMap" and one["metadata"]["name"] == name]
    return found[0] if found else None
