"""What the chart installs for Prometheus: kustomize's PodMonitor, or a ServiceMonitor of the same job."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import check_rendered, render
from helm_chart import ROOT, comparable, named, rendered

ENABLED = ("--set=monitoring.enabled=true",)
SERVICE = (*ENABLED, "--set=monitoring.kind=ServiceMonitor")


def monitors(manifests: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return [one for one in manifests if one["kind"] in ("PodMonitor", "ServiceMonitor")]


def test_there_is_none_unless_it_is_asked_for(helm: str) -> None:
    assert monitors(rendered(helm)) == []
    assert monitors(rendered(helm, "--set=monitoring.kind=ServiceMonitor")) == []


def test_a_service_monitor_scrapes_what_kustomizes_pod_monitor_scrapes(helm: str) -> None:
    [wanted] = monitors(render(ROOT / "k8s" / "overlays" / "monitoring"))
    [found] = monitors(rendered(helm, *SERVICE, "--set=monitoring.labels.release=prometheus"))
    assert found["metadata"]["labels"].pop("release") == "prometheus"
    assert comparable(found["metadata"]) == comparable(wanted["metadata"])
    assert comparable(found["spec"]["selector"]) == comparable(wanted["spec"]["selector"])
    [endpoint], [of_pods] = found["spec"]["endpoints"], wanted["spec"]["podMetricsEndpoints"]
    del endpoint["relabelings"]
    assert endpoint == of_pods


@pytest.mark.parametrize("values", [(), ("--set=kind=StatefulSet,sparkOnKubernetes.enabled=true",)])
def test_its_job_is_the_pod_monitors_and_each_pod_is_scraped_once(helm: str, values: tuple[str, ...]) -> None:
    """Alerts and KEDA's query name the job. A StatefulSet's pods are behind two Services."""
    manifests = rendered(helm, *SERVICE, *values, release="crm", namespace="shop")
    assert list(check_rendered(ROOT, "chart", manifests)) == []
    [monitor] = monitors(manifests)
    [endpoint] = monitor["spec"]["endpoints"]
    chosen = monitor["spec"]["selector"]["matchLabels"].items()
    behind = [
        one["metadata"]["name"]
        for one in manifests
        if one["kind"] == "Service"
        and chosen <= one["metadata"]["labels"].items()
        and endpoint["port"] in [each["name"] for each in one["spec"]["ports"]]
    ]
    assert len(behind) == 1 + bool(values)
    keep, job = endpoint["relabelings"]
    assert keep == {
        "sourceLabels": ["__meta_kubernetes_service_name"],
        "regex": "crm-binlane",
        "action": "keep",
    }
    assert keep["regex"] in behind
    assert job == {"targetLabel": "job", "replacement": "shop/crm-binlane"}


@pytest.mark.parametrize("values", [ENABLED, SERVICE])
def test_a_worker_with_a_token_and_tls_can_be_scraped(
    helm: str, values: tuple[str, ...], tmp_path: Path
) -> None:
    endpoint = {
        "interval": "30s",
        "scheme": "https",
        "tlsConfig": {"ca": {"secret": {"name": "authority", "key": "ca.crt"}}, "serverName": "binlane"},
        "authorization": {"credentials": {"name": "crm-binlane-secrets", "key": "http-token"}},
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump({"monitoring": {"endpoint": endpoint}}))
    manifests = rendered(helm, *values, "--values", str(file))
    assert list(check_rendered(ROOT, "chart", manifests)) == []
    [monitor] = monitors(manifests)
    [found] = monitor["spec"].get("endpoints") or monitor["spec"]["podMetricsEndpoints"]
    assert {key: found[key] for key in endpoint} == endpoint
    assert (found["port"], found["path"]) == ("http", "/metrics")


def test_the_other_objects_are_the_same(helm: str) -> None:
    one, other = (named(rendered(helm, *values)) for values in (ENABLED, SERVICE))
    assert one.keys() ^ other.keys() == {"PodMonitor/binlane", "ServiceMonitor/binlane"}
    for key in one.keys() & other.keys():
        assert one[key] == other[key]


def test_a_monitor_that_selects_nothing_is_a_fault(helm: str) -> None:
    manifests = rendered(helm, *SERVICE)
    [monitor] = monitors(manifests)
    monitor["spec"]["selector"]["matchLabels"]["app.kubernetes.io/name"] = "other"
    assert list(check_rendered(ROOT, "chart", manifests)) == [
        "chart: Deployment/binlane: ServiceMonitor/binlane chooses none of its pods"
    ]
