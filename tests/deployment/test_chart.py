"""The Helm chart deploys what kustomize deploys, with values in the place of patches."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import EXAMPLE, check_rendered, folders, render
from helm_chart import CHART, KUBERNETES, ROOT, comparable, helm_text, labels, named, rendered

from worker import __version__

OVERLAYS = ROOT / "k8s" / "overlays"
MONITORING = ("--set=monitoring.enabled=true",)


def configured(overlay: str) -> str:
    return f"--set-file=configuration={OVERLAYS / overlay / 'binlane.yaml'}"


VALUES = {
    "base": (),
    "check": (),
    "keda": (*MONITORING, "--set=keda.enabled=true"),
    "monitoring": MONITORING,
    "network-policy": ("--set=networkPolicy.enabled=true",),
    "spark-on-kubernetes": (
        "--set=kind=StatefulSet,sparkOnKubernetes.enabled=true,networkPolicy.enabled=true",
        configured("spark-on-kubernetes"),
    ),
    "statefulset": ("--set=kind=StatefulSet,replicas=2", configured("statefulset")),
}
"""{overlay: the values for the same deployment}"""

ONE_WRITER = configured("spark-on-kubernetes")
TWO_TOPICS = "kafka: {ddl_topics: [cdc.ddl]}"


def worker_of(manifests: dict[str, dict[str, Any]]) -> dict[str, Any]:
    [found] = [one for one in manifests.values() if one["kind"] in ("Deployment", "StatefulSet")]
    return found


def pod_of(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def test_each_overlay_is_a_choice_of_values() -> None:
    assert {folder.name for folder in folders(ROOT)} == set(VALUES)


@pytest.mark.parametrize("name", sorted(VALUES.keys() - {"check"}))
def test_the_chart_renders_what_kustomize_renders(helm: str, name: str) -> None:
    [folder] = [each for each in folders(ROOT) if each.name == name]
    wanted = named(render(folder))
    found = named(rendered(helm, *VALUES[name]))
    assert found.keys() == wanted.keys()
    for key in wanted:
        assert comparable(found[key]) == comparable(wanted[key]), key


@pytest.mark.parametrize("name", VALUES)
def test_what_it_renders_has_no_fault(helm: str, name: str) -> None:
    """Not in Kubernetes' schemas, in those of KEDA and the Prometheus operator, and in what binlane needs."""
    manifests = rendered(helm, *VALUES[name])
    assert list(check_rendered(ROOT, name, manifests)) == []


@pytest.mark.parametrize("name", ["check", "statefulset"])
def test_helms_test_checks_the_connections_in_a_pod_like_the_workers(helm: str, name: str) -> None:
    manifests = rendered(helm, *VALUES[name])
    [pod] = [one for one in manifests if one["kind"] == "Pod"]
    assert pod["metadata"]["annotations"]["helm.sh/hook"] == "test"
    worker = worker_of(named(manifests))
    assert pod["metadata"]["labels"] == worker["spec"]["template"]["metadata"]["labels"], (
        "the network policy's"
    )
    [job] = [one for one in render(OVERLAYS / "check") if one["kind"] == "Job"]
    wanted, found = comparable(pod_of(job)), comparable(pod["spec"])
    assert found["containers"][0].pop("name") == "check"
    assert wanted["containers"][0].pop("name") == "worker"
    if name == "statefulset":
        for each in (wanted, found):
            [state] = [volume for volume in each["volumes"] if volume["name"] == "state"]
            state["emptyDir"] = {}
    assert found == wanted


def test_the_example_is_a_choice_of_values(helm: str) -> None:
    """Its workload, secrets and policies. The receivers of its alerts are no part of the chart."""
    folder = ROOT / EXAMPLE
    wanted = named(render(folder))
    secrets = ("kafka-password", "postgres-url", "redis-url", "s3-access-key", "s3-secret-key")
    found = named(
        rendered(
            helm,
            *("--values", str(folder / "values.yaml")),
            f"--set-file=configuration={folder / 'binlane' / 'binlane.yaml'}",
            *(f"--set-file=secrets.files.{each}={folder / 'secrets' / each}" for each in secrets),
            namespace="shop",
        )
    )
    secret = found.pop("Secret/binlane-secrets")
    assert sorted(secret["stringData"]) == sorted(wanted.pop("Secret/binlane-shop")["data"])
    assert wanted.keys() - found.keys() == {"AlertmanagerConfig/binlane", "Secret/shop-alerts"}
    assert found.keys() <= wanted.keys()
    text = yaml.safe_dump([comparable(found[key]) for key in sorted(found)])
    text = text.replace("binlane-secrets", "binlane-shop")
    assert yaml.safe_load(text) == [comparable(wanted[key]) for key in sorted(found)]


def test_two_releases_in_one_namespace_share_nothing(helm: str) -> None:
    both = {
        release: rendered(
            helm,
            *VALUES["spark-on-kubernetes"],
            *MONITORING,
            "--set=secrets.files.key=text",
            release=release,
            namespace="shop",
        )
        for release in ("crm", "erp")
    }
    crm, erp = (named(manifests) for manifests in both.values())
    assert not crm.keys() & erp.keys(), "one would replace the other"
    text = yaml.safe_dump(both["crm"]).replace("crm", "erp")
    assert yaml.safe_load(text) == both["erp"], "a name without the release"
    for release, manifests in both.items():
        found = list(labels(manifests))
        assert len(found) > 20
        assert {each.get("app.kubernetes.io/instance") for each in found} == {release}


def test_of_two_releases_keda_scales_each_by_its_own_records(helm: str) -> None:
    for release in ("crm", "binlane-erp"):
        found = named(
            rendered(
                helm,
                *VALUES["keda"],
                "--set=keda.recordsPerWorker=20000,keda.maxReplicas=3",
                release=release,
                namespace="shop",
            )
        )
        [scaled] = [one["spec"] for one in found.values() if one["kind"] == "ScaledObject"]
        [monitor] = [one["metadata"]["name"] for one in found.values() if one["kind"] == "PodMonitor"]
        metadata = scaled["triggers"][0]["metadata"]
        assert re.findall('job="(.*?)"', metadata["query"]) == [f"shop/{monitor}"] * 2
        assert re.findall(r"\d{3,}", metadata["query"]) == [metadata["threshold"]] == ["20000"]
        assert scaled["maxReplicaCount"] == 3
        assert scaled["scaleTargetRef"]["name"] == worker_of(found)["metadata"]["name"]


def test_each_value_has_its_place(helm: str, tmp_path: Path) -> None:
    values = {
        "image": {"repository": "registry.example.com/binlane", "tag": "1.2.3", "pullPolicy": "Always"},
        "imagePullSecrets": [{"name": "registry"}],
        "fullnameOverride": "crm-binlane",
        "secrets": {"existing": "vault"},
        "env": [{"name": "KAFKA_BOOTSTRAP_SERVERS", "value": "kafka-1:9093"}, {"name": "A", "value": "b"}],
        "envFrom": [{"secretRef": {"name": "lake"}}],
        "volumes": [{"name": "authority", "configMap": {"name": "authority"}}],
        "volumeMounts": [{"name": "authority", "mountPath": "/etc/authority"}],
        "strategy": {"type": "RollingUpdate"},
        "resources": {"requests": {"memory": "3Gi"}, "limits": {"memory": "5Gi"}},
        "pod": {"nodeSelector": {"disk": "fast"}, "terminationGracePeriodSeconds": 300},
        "podLabels": {"team": "shop"},
        "podAnnotations": {"sidecar.istio.io/inject": "false"},
        "serviceAccount": {"annotations": {"eks.amazonaws.com/role-arn": "arn"}},
        "monitoring": {
            "enabled": True,
            "labels": {"release": "prometheus"},
            "runbooks": "https://r/",
            "rules": True,
        },
        "networkPolicy": {
            "enabled": True,
            "monitoringNamespace": "metrics",
            "ingress": [{"ports": [{"port": 1}]}],
            "egress": [{"ports": [{"port": 9093}]}],
        },
    }
    file = tmp_path / "values.yaml"
    file.write_text(yaml.safe_dump(values))
    manifests = rendered(helm, "--values", str(file))
    assert list(check_rendered(ROOT, "chart", manifests)) == []
    found = named(manifests)
    workload = found["Deployment/crm-binlane"]
    template, pod = workload["spec"]["template"], pod_of(workload)
    [container] = pod["containers"]
    assert container["image"] == "registry.example.com/binlane:1.2.3"
    assert container["imagePullPolicy"] == "Always"
    assert pod["imagePullSecrets"] == [{"name": "registry"}]
    assert [each["value"] for each in container["env"] if each["name"] == "KAFKA_BOOTSTRAP_SERVERS"] == [
        "kafka-1:9093"
    ]
    assert {"A", "POD_NAME", "POD_NAMESPACE"} <= {each["name"] for each in container["env"]}
    assert container["envFrom"] == values["envFrom"]
    mounted = {each["name"]: each["mountPath"] for each in container["volumeMounts"]}
    assert mounted["secrets"] == "/etc/secrets"
    assert mounted["authority"] == "/etc/authority"
    volumes = {each["name"]: each for each in pod["volumes"]}
    assert volumes["secrets"]["secret"]["secretName"] == "vault"
    assert volumes["authority"]["configMap"] == {"name": "authority"}
    assert workload["spec"]["strategy"] == {"type": "RollingUpdate"}
    assert container["resources"] == values["resources"]
    assert pod["nodeSelector"] == {"disk": "fast"}
    assert pod["terminationGracePeriodSeconds"] == 300
    assert template["metadata"]["labels"]["team"] == "shop"
    assert template["metadata"]["annotations"]["sidecar.istio.io/inject"] == "false"
    assert "team" not in str(workload["spec"]["selector"]), "it cannot change"
    account = found["ServiceAccount/crm-binlane"]
    assert account["metadata"]["annotations"] == {"eks.amazonaws.com/role-arn": "arn"}
    selected = [f"{kind}/crm-binlane" for kind in ("PodMonitor", "PrometheusRule")]
    for key in (*selected, "AlertmanagerConfig/crm-binlane-inhibition"):
        assert found[key]["metadata"]["labels"]["release"] == "prometheus"
    rules = [
        rule for group in found["PrometheusRule/crm-binlane"]["spec"]["groups"] for rule in group["rules"]
    ]
    pages = {rule["annotations"]["runbook_url"].split("#")[0] for rule in rules if "alert" in rule}
    assert pages == {"https://r/"}
    policy = found["NetworkPolicy/crm-binlane"]["spec"]
    assert "metrics" in str(policy["ingress"][0])
    assert policy["ingress"][-1] == {"ports": [{"port": 1}]}
    assert policy["egress"][-1] == {"ports": [{"port": 9093}]}


def test_every_value_is_named_in_the_schema_and_by_its_test(helm: str) -> None:
    values = yaml.safe_load((CHART / "values.yaml").read_text())
    schema = yaml.safe_load((CHART / "values.schema.json").read_text())
    assert values.keys() == schema["properties"].keys() - {"global"}
    for key, value in values.items():
        allowed = schema["properties"][key].get("properties")
        if isinstance(value, dict) and allowed and key not in ("pod", "resources", "strategy"):
            assert value.keys() == allowed.keys(), key
    with pytest.raises(ValueError, match="netwokPolicy"):
        rendered(helm, "--set=netwokPolicy.enabled=true")


@pytest.mark.parametrize(
    ("values", "said"),
    [
        ((ONE_WRITER,), "set kind to StatefulSet"),
        ((ONE_WRITER, "--set=kind=StatefulSet,replicas=2"), "need one worker"),
        ((ONE_WRITER, "--set=kind=StatefulSet,keda.enabled=true"), "need one worker"),
        ((f"--set=configuration={TWO_TOPICS}", "--set=replicas=2"), "need one worker"),
        ((f"--set=configuration={TWO_TOPICS}", "--set=strategy.type=RollingUpdate"), "kind to StatefulSet"),
    ],
)
def test_two_workers_of_a_configuration_that_demands_one_are_refused(
    helm: str, values: tuple[str, ...], said: str
) -> None:
    with pytest.raises(ValueError, match=said):
        rendered(helm, *values)


def test_one_worker_by_a_deployment_is_enough_for_statements_of_a_topic_of_their_own(helm: str) -> None:
    assert "Deployment/binlane" in named(rendered(helm, f"--set=configuration={TWO_TOPICS}"))


def test_a_change_of_the_configuration_or_of_a_secret_rolls_the_pods(helm: str) -> None:
    def annotations(*values: str) -> str:
        template = worker_of(named(rendered(helm, *values)))["spec"]["template"]
        return str(template["metadata"]["annotations"]["checksum/configuration"])

    one = annotations()
    assert one == annotations("--set=replicas=2")
    other = {
        annotations("--set=secrets.files.a=b"),
        annotations("--set=secrets.files.a=c"),
        annotations(ONE_WRITER, *VALUES["statefulset"][:1], "--set=replicas=1"),
    }
    assert len(other | {one}) == 4


def test_helm_finds_no_fault_and_packs_the_version_of_the_image(helm: str, tmp_path: Path) -> None:
    said = helm_text(helm, "lint", "--strict", str(CHART), *KUBERNETES)
    assert "1 chart(s) linted, 0 chart(s) failed" in said
    chart = yaml.safe_load((CHART / "Chart.yaml").read_text())
    assert chart["version"] == chart["appVersion"] == __version__
    helm_text(helm, "package", str(CHART), "--destination", str(tmp_path))
    packed = tmp_path / f"binlane-{__version__}.tgz"
    assert rendered(helm, chart=packed) == rendered(helm)


def test_a_drift_of_a_template_is_seen(helm: str, tmp_path: Path) -> None:
    """As a check of the comparison above: one field less in the base that the chart was made from."""
    chart = shutil.copytree(CHART, tmp_path / "chart")
    file = chart / "files" / "deployment.yaml"
    file.write_text(file.read_text().replace("failureThreshold: 66", "failureThreshold: 60"))
    wanted = comparable(named(render(ROOT / "k8s" / "base"))["Deployment/binlane"])
    assert comparable(named(rendered(helm, chart=chart))["Deployment/binlane"]) != wanted
