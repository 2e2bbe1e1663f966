"""Check the files that deploy binlane, without a cluster, a Docker daemon or a network.

    python tools/check_deployment.py [ROOT]

Exit code 0: no fault. Exit code 1: one line for each fault, `file: what`. The Dockerfile is checked by
hadolint. The base and every overlay of the manifests are rendered and validated (check_manifests.py).
Compose, Prometheus and Alertmanager files are checked by strict models, and by `docker compose config`,
promtool and amtool if installed. Every binlane configuration among them is checked by `binlane check`.
Generated files must be up to date.
"""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import TypeVar

import generate
import yaml
from check_manifests import check_manifests
from checking import configuration_faults, image_user, longest_stop, read, tool, tool_faults
from deployment_models import Alertmanager, AlertRules, Compose, Prometheus, Service
from pydantic import BaseModel, ValidationError

from handlers.options.values import parse_duration
from worker.observing.metric_definitions import DEFINITIONS

__all__ = ["check", "main"]

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
    """Yield every fault of the deployment files under `root`, as `file: what`."""
    yield from check_dockerfile(root / "Dockerfile")
    yield from check_image(root / "deploy" / "s3.Dockerfile")
    yield from check_manifests(root)
    yield from check_compose(root)
    yield from check_prometheus(root / "deploy" / "prometheus.yml", root / "deploy" / "alerts.yml")
    yield from check_alertmanager(root / "deploy" / "alertmanager.yml")
    yield from (f"{name}: not up to date: run python tools/generate.py" for name in generate.stale(root))


def check_dockerfile(path: Path) -> Iterator[str]:
    yield from check_image(path)
    lines = path.read_text().splitlines()
    entry = next((line for line in lines if line.startswith("ENTRYPOINT")), "")
    if '"tini", "--", "binlane"' not in entry:
        yield f"{path.name}: ENTRYPOINT must be tini without -g, then binlane; found: {entry or 'none'}"


def check_image(path: Path) -> Iterator[str]:
    yield from tool_faults(
        path.name, [tool("hadolint"), "--no-color", "--failure-threshold", "info", str(path)]
    )
    if image_user(path) in (None, "0", "root"):
        yield f"{path.name}: the last USER must be a fixed uid that is not root"


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
    wrong = configuration_faults(root, root / "deploy" / "binlane.yaml", worker.environment)
    yield from wrong
    stop = 0.0 if wrong else longest_stop(read((root / "deploy" / "binlane.yaml").read_text()))
    if parse_duration(worker.stop_grace_period or "10s") < stop:
        yield f"{path.name}: services.worker: stop_grace_period must be at least {stop:g}s"
    docker = shutil.which("docker")
    if (
        docker
        and subprocess.run([docker, "compose", "version"], capture_output=True, check=False).returncode == 0
    ):
        yield from tool_faults(path.name, [docker, "compose", "--file", str(path), "config", "--quiet"])


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
                    yield f"{rules.name}: {rule.name}: no such metric: {metric}"
    if promtool := shutil.which("promtool"):
        yield from tool_faults(rules.name, [promtool, "check", "rules", str(rules)])


def check_alertmanager(path: Path) -> Iterator[str]:
    _, faults = _parse(path, Alertmanager)
    yield from faults
    if amtool := shutil.which("amtool"):
        yield from tool_faults(path.name, [amtool, "check-config", str(path)])


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


if __name__ == "__main__":
    raise SystemExit(main(sys.argv[1:]))
