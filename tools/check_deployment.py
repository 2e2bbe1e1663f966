"""Checks the files that deploy binlane, without a cluster, a Docker daemon or a network.

    python tools/check_deployment.py [ROOT]

Exit 0: nothing found. Exit 1: one line for each fault, `file: what`. Dockerfile: hadolint. Manifests: the
kustomize base is rendered and validated against Kubernetes' own schemas, strictly. Compose and Prometheus
files: strict models of what they use, and `docker compose config` and promtool where they are installed.
Every binlane configuration among them: `binlane check`.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, TypeVar

import kubernetes_validate  # type: ignore[import-untyped]  # it ships no types
import yaml
from deployment_models import AlertRules, Compose, Prometheus, Service
from pydantic import BaseModel, ValidationError

from handlers.options.units import parse_duration
from worker.configuration import Configuration
from worker.configuration.checks.doubts import single_worker
from worker.observing.metric_definitions import DEFINITIONS
from worker.running.ending import grace_seconds, stop_seconds
from worker.running.handlers.handler_set import OPENING_SECONDS, HandlerSet

__all__ = ["check", "main", "render"]

MEBIBYTES = 2048 + 384 + 256 + 150
"""What a pod needs by default: Spark's heap, what Java takes beside it, `lanes.max_bytes`, a fixed part."""

Manifest = dict[str, Any]
Model = TypeVar("Model", bound=BaseModel)


def main(arguments: list[str]) -> int:
    root = Path(arguments[0] if arguments else Path(__file__).parents[1])
    faults = list(check(root))
    for fault in faults:
        print(fault, file=sys.stderr)  # noqa: T201 - the tool's answer
    if not faults:
        print("deployment files: no fault found")  # noqa: T201 - the tool's answer
    return 1 if faults else 0


def check(root: Path) -> Iterator[str]:
    """Every fault of the deployment files under `root`, as `file: what`."""
    yield from check_dockerfile(root / "Dockerfile")
    yield from check_base(root)
    yield from check_compose(root)
    yield from check_prometheus(root / "deploy" / "prometheus.yml", root / "deploy" / "alerts.yml")


def check_dockerfile(path: Path) -> Iterator[str]:
    yield from _tool_faults(
        path.name, [_tool("hadolint"), "--no-color", "--failure-threshold", "info", str(path)]
    )
    lines = path.read_text().splitlines()
    entry = next((line for line in lines if line.startswith("ENTRYPOINT")), "")
    if '"tini", "--", "binlane"' not in entry:
        yield f"{path.name}: ENTRYPOINT must be tini without -g, then binlane; found: {entry or 'none'}"
    if _image_user(path) in (None, "0", "root"):
        yield f"{path.name}: the last USER must be a fixed uid that is not root"


def _image_user(dockerfile: Path) -> str | None:
    users = [line.split()[1] for line in dockerfile.read_text().splitlines() if line.startswith("USER ")]
    return users[-1].split(":")[0] if users else None


# ---- Kubernetes ----------------------------------------------------------------------------------------


def render(base: Path) -> list[Manifest]:
    """What `kubectl kustomize` makes of a base that only lists resources and generates ConfigMaps from files.

    The hash suffix of generated names is left out. Raises ValueError for any other key: what is not rendered
    here is not checked here.
    """
    kustomization = yaml.safe_load((base / "kustomization.yaml").read_text())
    unknown = set(kustomization) - {"apiVersion", "kind", "resources", "configMapGenerator"}
    if unknown:
        raise ValueError(f"kustomization.yaml: {', '.join(sorted(unknown))} is not known to this check")
    manifests = []
    for name in kustomization.get("resources", []):
        manifests += [one for one in yaml.safe_load_all((base / name).read_text()) if one]
    for generated in kustomization.get("configMapGenerator", []):
        data = {Path(file).name: (base / file).read_text() for file in generated["files"]}
        manifests.append(
            {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": generated["name"]}, "data": data}
        )
    return manifests


def check_base(root: Path) -> Iterator[str]:
    base = root / "k8s"
    try:
        manifests = render(base)
    except (ValueError, OSError, KeyError, yaml.YAMLError) as error:
        yield f"k8s: cannot be rendered: {error}"
        return
    faults = [fault for manifest in manifests for fault in _schema_faults(manifest)]
    yield from faults
    if kubectl := shutil.which("kubectl"):
        yield from _tool_faults("k8s", [kubectl, "kustomize", str(base)])
    if not faults:
        for manifest in manifests:
            if manifest["kind"] == "Deployment":
                yield from _deployment_faults(root, manifest, manifests)


def _schema_faults(manifest: Manifest) -> Iterator[str]:
    where = f"k8s: {manifest.get('kind')}/{manifest.get('metadata', {}).get('name')}"
    try:
        kubernetes_validate.validate(manifest, kubernetes_validate.latest_version(), strict=True)
    except kubernetes_validate.ValidationError as error:
        yield f"{where}: {'.'.join(str(part) for part in error.path)}: {error.message}"
    except kubernetes_validate.SchemaNotFoundError:
        yield f"{where}: no such kind in {manifest.get('apiVersion')}"


def _deployment_faults(root: Path, deployment: Manifest, manifests: list[Manifest]) -> Iterator[str]:
    where = f"k8s: Deployment/{deployment['metadata']['name']}"
    pod = deployment["spec"]["template"]["spec"]
    container = pod["containers"][0]
    for probe in ("startupProbe", "livenessProbe", "readinessProbe"):
        if probe not in container:
            yield f"{where}: {probe} is missing"
    if str(pod.get("securityContext", {}).get("runAsUser")) != _image_user(root / "Dockerfile"):
        yield f"{where}: runAsUser is not the user of the Dockerfile"
    if not container.get("securityContext", {}).get("readOnlyRootFilesystem"):
        yield f"{where}: readOnlyRootFilesystem must be true"
    if "memory" not in container.get("resources", {}).get("limits", {}):
        yield f"{where}: resources.limits.memory is missing"
    if _mebibytes(container.get("resources", {}).get("requests", {}).get("memory", "")) < MEBIBYTES:
        yield f"{where}: resources.requests.memory must be {MEBIBYTES}Mi at least, to hold Spark's heap"
    account = pod.get("serviceAccountName")
    if account not in [one["metadata"]["name"] for one in manifests if one["kind"] == "ServiceAccount"]:
        yield f"{where}: serviceAccountName {account} is not in the base"

    config = Path(container["args"][-1])
    source = _mounted_config_map(pod, container, config.parent, manifests)
    if source is None or config.name not in source["data"]:
        yield f"{where}: {config} comes from no ConfigMap of the base"
        return
    values = {one["name"]: one.get("value", one["name"]) for one in container.get("env", [])}
    faults = _configuration_faults(root, root / "k8s" / config.name, values)
    yield from faults
    if faults:
        return
    read = _read(source["data"][config.name])
    # An overlay brings its own configuration: one with Spark, which takes longest to stop, must fit, too.
    stop = max(_stop_seconds(read), _stop_seconds(_read((root / "deploy" / "binlane.yaml").read_text())))
    if pod.get("terminationGracePeriodSeconds", 30) < stop:
        yield f"{where}: terminationGracePeriodSeconds must be at least {stop:g} to hold a stop"
    yield from (f"{where}: {fault}" for fault in _start_faults(container, read))
    yield from (f"{where}: {fault}" for fault in _count_faults(deployment["spec"], read))
    yield from (f"k8s: {config.name}: {fault}" for fault in _first_look_faults(root, read))


def _start_faults(container: Manifest, configuration: Configuration) -> Iterator[str]:
    probe = container.get("startupProbe", {})
    if probe.get("httpGet", {}).get("path") != "/startupz":
        yield "startupProbe must ask /startupz, which fails until the handlers are open"
    patience = probe.get("periodSeconds", 10) * probe.get("failureThreshold", 3)
    start = configuration.start_timeout + OPENING_SECONDS
    if patience < start:
        yield f"startupProbe must have {start:g} s at least to hold a start, and has {patience}"


def _count_faults(spec: Manifest, configuration: Configuration) -> Iterator[str]:
    reason = single_worker(configuration)
    one = spec.get("replicas", 1) == 1 and spec.get("strategy", {}).get("type") == "Recreate"
    if reason is not None and not one:
        yield f"{reason}: replicas must be 1 and the strategy Recreate"


def _first_look_faults(root: Path, configuration: Configuration) -> Iterator[str]:
    """What only logs must leave neither rows in the log nor an offset to whoever comes with a target."""
    entries = [entry for rule in configuration.tables for entry in rule.handlers]
    if any(entry.type != "log" for entry in entries):
        return
    if any(entry.options.get("each") != "batch" for entry in entries):
        yield "log must have each: batch, or rows come into the log"
    group = configuration.kafka.group_id
    texts = {path.name: path.read_text() for path in (root / "deploy").glob("*.yaml")}
    used = [name for name, text in texts.items() if _read(text).kafka.group_id == group]
    if used:
        yield f"its group, {group}, is that of deploy/{used[0]}, which would begin where this one stands"


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


# ---- Compose -------------------------------------------------------------------------------------------


def check_compose(root: Path) -> Iterator[str]:
    path = root / "docker-compose.yml"
    compose, faults = _parse(path, Compose)
    yield from faults
    if compose is None:
        return
    for name, service in compose.services.items():
        for fault in _service_faults(root, service, compose):
            yield f"{path.name}: services.{name}: {fault}"
    worker = compose.services["worker"]
    wrong = _configuration_faults(root, root / "deploy" / "binlane.yaml", worker.environment)
    yield from wrong
    stop = 0.0 if wrong else _stop_seconds(_read((root / "deploy" / "binlane.yaml").read_text()))
    if parse_duration(worker.stop_grace_period or "10s") < stop:
        yield f"{path.name}: services.worker: stop_grace_period must be at least {stop:g}s"
    docker = shutil.which("docker")
    if (
        docker
        and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0
    ):
        yield from _tool_faults(path.name, [docker, "compose", "--file", str(path), "config", "--quiet"])


def _service_faults(root: Path, service: Service, compose: Compose) -> Iterator[str]:
    for other in service.depends_on:
        if other not in compose.services:
            yield f"depends_on names no service: {other}"
        elif (needed := compose.services[other].profiles) and needed != service.profiles:
            yield f"depends on {other}, which starts with a profile only: {', '.join(needed)}"
    if isinstance(service.depends_on, dict):
        for other, dependency in service.depends_on.items():
            named = compose.services.get(other)
            if dependency.condition == "service_healthy" and named and named.healthcheck is None:
                yield f"waits for {other} to be healthy, which has no healthcheck"
    for volume in service.volumes:
        source = volume.split(":")[0]
        if source.startswith("."):
            if not (root / source).is_file():
                yield f"volumes: no such file: {source}"
        elif source not in compose.volumes:
            yield f"volumes: not declared under volumes: {source}"
    if service.build is not None and not (root / service.build / "Dockerfile").is_file():
        yield f"build: no Dockerfile in {service.build}"


# ---- Prometheus ----------------------------------------------------------------------------------------


def check_prometheus(config: Path, rules: Path) -> Iterator[str]:
    _, config_faults = _parse(config, Prometheus)
    alerts, rule_faults = _parse(rules, AlertRules)
    yield from [*config_faults, *rule_faults]
    known = {metric.name for metric in DEFINITIONS}
    for group in alerts.groups if alerts else []:
        for rule in group.rules:
            for metric in re.findall(r"\bbinlane_\w+", rule.expr):
                if metric not in known:
                    yield f"{rules.name}: {rule.alert}: no such metric: {metric}"
    if promtool := shutil.which("promtool"):
        yield from _tool_faults(rules.name, [promtool, "check", "rules", str(rules)])


# ---- helpers -------------------------------------------------------------------------------------------


def _parse(path: Path, model: type[Model]) -> tuple[Model | None, list[str]]:
    try:
        return model.model_validate(yaml.safe_load(path.read_text())), []
    except (OSError, yaml.YAMLError) as error:
        return None, [f"{path.name}: {error}"]
    except ValidationError as error:
        found = error.errors(include_url=False)
        return None, [
            f"{path.name}: {'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found
        ]


def _tool(name: str) -> str:
    beside = Path(sys.executable).parent / name
    return str(beside) if beside.exists() else name


def _tool_faults(name: str, command: list[str]) -> list[str]:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode == 0:
        return []
    return [f"{name}: {line}" for line in (done.stdout + done.stderr).splitlines() if line.strip()] or [
        f"{name}: {Path(command[0]).name} failed with exit code {done.returncode}"
    ]


def _configuration_faults(root: Path, path: Path, environment: dict[str, str]) -> list[str]:
    done = subprocess.run(
        [sys.executable, "-m", "binlane", "check", str(path.relative_to(root))],
        capture_output=True,
        text=True,
        check=False,
        cwd=root,
        env={**os.environ, **environment},
    )
    if done.returncode == 0:
        return []
    return [line for line in done.stderr.splitlines() if line.strip()]


def _read(configuration: str) -> Configuration:
    return Configuration.model_validate(yaml.safe_load(configuration))


def _stop_seconds(configuration: Configuration) -> float:
    """How long whoever stops the worker has to wait before they kill it."""
    return grace_seconds(
        stop_seconds(
            shutdown_timeout=configuration.shutdown_timeout,
            revoke_timeout=configuration.revoke_timeout,
            closing=HandlerSet(configuration).close_seconds,
        )
    )


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
