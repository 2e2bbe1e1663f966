"""Render the Helm chart in tests, and compare it with kustomize's output."""

from __future__ import annotations

import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import yaml

__all__ = ["CHART", "KUBERNETES", "ROOT", "comparable", "helm_text", "labels", "named", "rendered"]

ROOT = Path(__file__).parents[2]
CHART = ROOT / "k8s" / "chart"

KUBERNETES = ("--kube-version", "1.34.0")
"""Else helm takes the one that it was built for, which may be older than the chart allows."""

Manifest = dict[str, Any]


def helm_text(helm: str, *arguments: str) -> str:
    """Run helm and return its output. Raises ValueError with its error output if it fails."""
    done = subprocess.run([helm, *arguments], capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise ValueError(done.stderr)
    assert done.stderr == "", "a warning"
    return done.stdout


def rendered(
    helm: str, *arguments: str, chart: Path = CHART, release: str = "binlane", namespace: str = "binlane"
) -> list[Manifest]:
    """Render the chart with `helm template`; `arguments` set values."""
    text = helm_text(helm, "template", release, str(chart), "--namespace", namespace, *KUBERNETES, *arguments)
    return [one for one in yaml.safe_load_all(text) if one]


def named(manifests: list[Manifest]) -> dict[str, Manifest]:
    """{"Kind/name": manifest}, without helm's tests. A generated name without its hash."""
    return {
        f"{one['kind']}/{_unhashed(one['metadata']['name'])}": one
        for one in manifests
        if "helm.sh/hook" not in one["metadata"].get("annotations", {})
    }


def comparable(value: Any) -> Any:
    """Return a manifest or a part of one without what only helm or only kustomize writes.

    Helm adds the label that names the release, and the checksum that rolls the pods. Kustomize adds the hash
    of names that rolls the pods, and the namespace."""
    if isinstance(value, dict):
        kept = {key: comparable(each) for key, each in value.items() if key not in _ADDED}
        if "metadata" in kept:
            kept["metadata"].pop("namespace", None)
        return {key: each for key, each in kept.items() if (key, each) != ("annotations", {})}
    if isinstance(value, list):
        inner = [comparable(each) for each in value]
        return sorted(inner, key=_by_name) if _has_names(inner) else inner
    if isinstance(value, str):
        return comparable(yaml.safe_load(value)) if is_manifest(value) else _unhashed(value)
    return value


def is_manifest(text: str) -> bool:
    """Whether the text, a file of a ConfigMap, is a manifest itself."""
    return "\napiVersion: " in text


def labels(value: Any) -> Iterator[dict[str, str]]:
    """Yield all labels and selectors that name the application, wherever they are in manifests."""
    if isinstance(value, dict):
        if "app.kubernetes.io/name" in value:
            yield value
        for each in value.values():
            yield from labels(each)
    elif isinstance(value, list):
        for each in value:
            yield from labels(each)
    elif isinstance(value, str) and is_manifest(value):
        yield from labels(yaml.safe_load(value))


_ADDED = {"app.kubernetes.io/instance", "checksum/configuration"}


def _unhashed(name: str) -> str:
    return re.sub("^([a-z-]+)-[2-9bcdfghkmt]{10}$", r"\1", name)  # kustomize writes no other characters


def _has_names(values: list[Any]) -> bool:
    return all(isinstance(each, dict) and "name" in each for each in values)


def _by_name(value: dict[str, Any]) -> str:
    return str(value.get("mountPath", value["name"]))
