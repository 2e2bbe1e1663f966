"""Each overlay does what it is there for, and the components go together."""

from __future__ import annotations

import re
import shutil
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import check_folder, check_rendered, folders, render

from worker.configuration import LanesRule

ROOT = Path(__file__).parents[2]
COMPONENTS = sorted(path.name for path in (ROOT / "k8s" / "components").iterdir())


def kinds(manifests: list[dict[str, Any]]) -> dict[str, dict[str, Any]]:
    """{"Kind/name": manifest}, a generated name without its hash."""
    return {
        f"{one['kind']}/{re.sub('-[0-9a-z]{10}$', '', one['metadata']['name'])}": one for one in manifests
    }


def of(overlay: str) -> dict[str, dict[str, Any]]:
    return kinds(render(ROOT / "k8s" / "overlays" / overlay))


BASE = kinds(render(ROOT / "k8s" / "base"))


SCALED = yaml.safe_load((ROOT / "k8s" / "components" / "keda" / "scaled-object.yaml").read_text())
BASE_QUERY = SCALED["spec"]["triggers"][0]["metadata"]["query"]


def pod(workload: dict[str, Any]) -> dict[str, Any]:
    found: dict[str, Any] = workload["spec"]["template"]["spec"]
    return found


def test_the_base_has_what_every_deployment_needs() -> None:
    names = ("ServiceAccount", "ConfigMap", "Service", "Deployment", "PodDisruptionBudget")
    assert set(BASE) == {f"{kind}/binlane" for kind in names}
    shipped = (ROOT / "k8s" / "base" / "binlane.yaml").read_text()
    assert BASE["ConfigMap/binlane"]["data"] == {"binlane.yaml": shipped}
    keys = [each["topologyKey"] for each in pod(BASE["Deployment/binlane"])["topologySpreadConstraints"]]
    assert keys == ["kubernetes.io/hostname", "topology.kubernetes.io/zone"]


def test_the_volume_of_the_checkpoint_has_room_for_parked_records() -> None:
    """Kubernetes evicts a pod whose emptyDir is larger than its limit. Its successor would fill it again."""
    gib = 1 << 30
    [volume] = [each for each in pod(BASE["Deployment/binlane"])["volumes"] if each["name"] == "state"]
    [claim] = of("statefulset")["StatefulSet/binlane"]["spec"]["volumeClaimTemplates"]
    for size in (volume["emptyDir"]["sizeLimit"], claim["spec"]["resources"]["requests"]["storage"]):
        assert size.endswith("Gi")
        assert int(size.removesuffix("Gi")) * gib >= LanesRule().parked + gib


def test_each_worker_says_how_much_of_its_nodes_disk_it_takes() -> None:
    """`make lint` compares the limit with the volumes."""
    for folder in (*folders(ROOT), ROOT / "examples" / "kubernetes-shop"):
        for each in render(folder):
            if each["kind"] in ("Deployment", "StatefulSet", "Job"):
                resources = pod(each)["containers"][0]["resources"]
                assert "ephemeral-storage" in resources["requests"].keys() & resources["limits"].keys(), (
                    folder
                )


def test_there_is_an_overlay_for_each_component() -> None:
    assert [path.name for path in folders(ROOT)] == ["base", *COMPONENTS]


def test_a_statefulset_is_the_deployment_with_names_and_volumes_that_stay() -> None:
    found = of("statefulset")
    assert "Deployment/binlane" not in found
    one, base = found["StatefulSet/binlane"], BASE["Deployment/binlane"]
    headless = found[f"Service/{one['spec']['serviceName']}"]
    assert headless["spec"]["clusterIP"] == "None"
    claims = {each["metadata"]["name"] for each in one["spec"]["volumeClaimTemplates"]}
    mounted = {each["name"]: each["mountPath"] for each in pod(one)["containers"][0]["volumeMounts"]}
    configuration = yaml.safe_load(found["ConfigMap/binlane"]["data"]["binlane.yaml"])
    assert [mounted[name] for name in claims] == ["/var/lib/binlane"]
    assert configuration["checkpoint"]["directory"].startswith("/var/lib/binlane/")
    assert configuration["kafka"]["properties"]["group.instance.id"] == "${POD_NAME}"
    assert not claims & {each["name"] for each in pod(one)["volumes"]}
    # Nothing else differs in the pods.
    for each in (pod(one), pod(base)):
        each["volumes"] = [volume for volume in each["volumes"] if volume["name"] not in {"state", "config"}]
    assert pod(one) == pod(base)


def test_static_membership_is_shown_in_one_way() -> None:
    """In a Deployment, each pod has a new name, so only a StatefulSet has it."""
    files = [
        *(ROOT / "docs").rglob("*.md"),
        *(ROOT / "k8s").rglob("*.yaml"),
        *(ROOT / "examples").rglob("*.yaml"),
    ]
    shown = [
        one for each in files for one in re.findall(r'group\.instance\.id: *"?([^\s"]+)', each.read_text())
    ]
    assert set(shown) == {"${POD_NAME}"}
    for folder in folders(ROOT):
        found = kinds(render(folder))
        if "group.instance.id" in str(found):
            assert "StatefulSet/binlane" in found


def test_keda_sets_the_number_of_pods_and_an_update_leaves_no_pause() -> None:
    found = of("keda")
    spec = found["Deployment/binlane"]["spec"]
    assert "replicas" not in spec
    assert spec["strategy"]["rollingUpdate"] == {"maxSurge": 1, "maxUnavailable": 0}
    scaled = found["ScaledObject/binlane"]
    metadata = scaled["spec"]["triggers"][0]["metadata"]
    monitor = found["PodMonitor/binlane"]["metadata"]
    job = f"{monitor['namespace']}/{monitor['name']}"
    assert re.findall('job="(.*?)"', metadata["query"]) == [job, job], "as the operator names it"
    assert re.findall(r"\d{3,}", metadata["query"]) == [metadata["threshold"]]
    rules = found["PrometheusRule/binlane"]["spec"]["groups"]
    recorded = {rule["record"] for group in rules for rule in group["rules"] if "record" in rule}
    asked = set(re.findall(r"binlane:\w+", metadata["query"]))
    assert asked
    assert asked <= recorded, "the overlay brings the rules that its query needs"


def test_monitoring_has_each_pod_scraped_once_at_the_port_of_its_metrics() -> None:
    found = of("monitoring")
    template = found["Deployment/binlane"]["spec"]["template"]
    assert not [name for name in template["metadata"].get("annotations", {}) if "prometheus.io" in name]
    [endpoint] = found["PodMonitor/binlane"]["spec"]["podMetricsEndpoints"]
    assert endpoint["port"] in {each["name"] for each in template["spec"]["containers"][0]["ports"]}
    rules = yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())
    assert found["PrometheusRule/binlane"]["spec"] == rules


def rendered_beside(folder: Path, kustomization: str) -> list[dict[str, Any]]:
    """What a kustomization of the user's own, in a copy of k8s/, gives."""
    shutil.copytree(ROOT / "k8s", folder / "k8s")
    own = folder / "k8s" / "own"
    own.mkdir()
    (own / "kustomization.yaml").write_text(kustomization)
    return list(render(own))


def test_all_that_the_operator_selects_gets_its_labels(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    [parts] = re.findall(r"```yaml\n(labels:\n[^`]*release[^`]*)```", page)
    rendered = rendered_beside(tmp_path, f"resources: [../overlays/monitoring]\n{parts}")
    found = {each["kind"]: each["metadata"]["labels"] for each in rendered}
    for kind in ("PodMonitor", "PrometheusRule", "AlertmanagerConfig"):
        assert found[kind]["release"] == "prometheus", kind


def test_the_labels_reach_the_receiver_and_all_else_that_is_selected_in_the_example(tmp_path: Path) -> None:
    """As kube-prometheus-stack selects: none of it is without the label."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    [parts] = re.findall(r"```yaml\n(labels:\n[^`]*release[^`]*)```", page)
    shutil.copytree(ROOT / "examples", tmp_path / "examples")
    rendered = rendered_beside(tmp_path, f"resources: [../../examples/kubernetes-shop]\n{parts}")
    selected = [each for each in rendered if each["apiVersion"].startswith("monitoring.coreos.com/")]
    kinds_of = sorted(each["kind"] for each in selected)
    assert kinds_of == ["AlertmanagerConfig", "AlertmanagerConfig", "PodMonitor", "PrometheusRule"]
    assert {each["metadata"]["labels"].get("release") for each in selected} == {"prometheus"}
    [monitor] = [each for each in selected if each["kind"] == "PodMonitor"]
    assert f"{monitor['metadata']['namespace']}/{monitor['metadata']['name']}" == "shop/binlane", "its job"


def test_a_second_namespace_of_the_same_prometheus_leaves_the_rules_out(tmp_path: Path) -> None:
    """Loaded twice, each rule would write the same series twice."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    [parts] = re.findall(r"```yaml\n(components: [^`]*)```", page)
    rendered = rendered_beside(tmp_path, f"namespace: crm\nresources: [../base]\n{parts}")
    found = {each["kind"] for each in rendered}
    assert {"PodMonitor", "AlertmanagerConfig"} <= found
    assert "PrometheusRule" not in found


def test_of_two_in_one_namespace_each_chooses_its_own_pods(tmp_path: Path) -> None:
    page = (ROOT / "docs" / "deployment.md").read_text()
    [parts] = re.findall(r"```yaml\n(namespace: shop\nnamePrefix: [^`]*)```", page)
    assert "components/keda" in parts
    shutil.copytree(ROOT / "k8s", tmp_path / "k8s")
    found = {}
    for name in ("crm", "erp"):
        folder = tmp_path / "k8s" / name
        folder.mkdir()
        (folder / "kustomization.yaml").write_text(parts.replace("crm", name))
        found[name] = kinds(render(folder))
    assert not found["crm"].keys() & found["erp"].keys(), "one would replace the other"
    for name, manifests in found.items():
        selectors = {
            "Deployment": lambda spec: spec["selector"]["matchLabels"],
            "PodDisruptionBudget": lambda spec: spec["selector"]["matchLabels"],
            "PodMonitor": lambda spec: spec["selector"]["matchLabels"],
            "Service": lambda spec: spec["selector"],
        }
        for kind, selector in selectors.items():
            chosen = selector(manifests[f"{kind}/{name}-binlane"]["spec"])
            assert chosen["app.kubernetes.io/instance"] == name, kind
        labels = manifests[f"Deployment/{name}-binlane"]["spec"]["template"]["metadata"]["labels"]
        assert labels["app.kubernetes.io/instance"] == name
        scaled = manifests[f"ScaledObject/{name}-binlane"]["spec"]
        assert scaled["scaleTargetRef"]["name"] == f"{name}-binlane"
        query = scaled["triggers"][0]["metadata"]["query"]
        assert re.findall('job="(.*?)"', query) == [f"shop/{name}-binlane"] * 2
        shipped = BASE_QUERY.replace("binlane/binlane", f"shop/{name}-binlane")
        assert " ".join(query.split()) == shipped, "the query of the component"


@pytest.mark.parametrize("where", ["base", "example"])
def test_a_job_of_the_same_pod_checks_all_connections(tmp_path: Path, where: str) -> None:
    """With the worker's image, variables, secrets and labels (network policy), and in its place."""
    page = (ROOT / "docs" / "deployment.md").read_text()
    [parts] = re.findall(r"```yaml\n# kustomization.yaml in a folder k8s/own-check\n([^`]*)```", page)
    for name in ("k8s", "examples"):
        shutil.copytree(ROOT / name, tmp_path / name)
    own = {"base": "../base", "example": "../../examples/kubernetes-shop"}[where]
    assert "../own]" in parts
    folder = tmp_path / "k8s" / "own-check"
    folder.mkdir()
    (folder / "kustomization.yaml").write_text(parts.replace("../own]", f"{own}]"))
    found, worker = kinds(render(folder)), kinds(render((folder / own).resolve()))
    [key] = found.keys() - worker.keys()
    assert key == "Job/binlane-check"
    [workload] = worker.keys() - found.keys()
    job, there = found[key], worker[workload]
    assert job["metadata"].get("namespace") == there["metadata"].get("namespace")
    assert (job["apiVersion"], job["spec"]["backoffLimit"]) == ("batch/v1", 0)
    assert list(check_rendered(tmp_path, "check", [job])) == []
    template, of_worker = job["spec"]["template"], there["spec"]["template"]
    assert template["metadata"] == {"labels": of_worker["metadata"]["labels"]}
    [check], [container] = template["spec"].pop("containers"), of_worker["spec"].pop("containers")
    assert check.pop("args") == ["check", container.pop("args")[1], "--connect"]
    for name in ("ports", "startupProbe", "livenessProbe", "readinessProbe"):
        del container[name]
    assert check == container
    assert template["spec"].pop("restartPolicy") == "Never"
    for each in (template["spec"], of_worker["spec"]):
        each["volumes"] = [volume for volume in each["volumes"] if volume["name"] != "state"]
    assert template["spec"] == of_worker["spec"]


def test_every_workload_has_the_names_by_which_alerts_know_it() -> None:
    """Those of kube-state-metrics."""
    rules = (ROOT / "deploy" / "alerts.yml").read_text()
    assert {*re.findall(r'(?:deployment|statefulset|pod)=~"(.*?)"', rules)} == {".*binlane.*"}
    assert {*re.findall(r'container="(.*?)"', rules)} == {"worker"}
    for folder in (*folders(ROOT), ROOT / "examples" / "kubernetes-shop"):
        for each in render(folder):
            if each["kind"] in ("Deployment", "StatefulSet"):
                assert "binlane" in each["metadata"]["name"]
                assert [one["name"] for one in pod(each)["containers"]] == ["worker"]


def test_sparks_driver_may_start_executors_that_find_it() -> None:
    found = of("spark-on-kubernetes")
    worker = found["StatefulSet/binlane"]
    account = pod(worker)["serviceAccountName"]
    assert pod(worker)["automountServiceAccountToken"] is True
    assert found[f"ServiceAccount/{account}"]["automountServiceAccountToken"] is True
    binding = found["RoleBinding/binlane-driver"]
    assert binding["subjects"] == [{"kind": "ServiceAccount", "name": account}]
    [rule] = found[f"Role/{binding['roleRef']['name']}"]["rules"]
    assert "pods" in rule["resources"]
    assert {"create", "get", "list", "watch", "delete"} <= set(rule["verbs"])

    conf = yaml.safe_load(found["ConfigMap/binlane"]["data"]["binlane.yaml"])["spark"]["conf"]
    driver = found[f"Service/{conf['spark.driver.host']}"]
    assert driver["spec"]["clusterIP"] == "None"
    assert driver["spec"]["publishNotReadyAddresses"] is True, "executors call before the worker is ready"
    assert [each["port"] for each in driver["spec"]["ports"]] == [
        conf["spark.driver.port"],
        conf["spark.blockManager.port"],
    ]
    template = Path(conf["spark.kubernetes.executor.podTemplateFile"])
    executor = yaml.safe_load(found["ConfigMap/binlane-executor"]["data"][template.name])
    mounts = {each["mountPath"]: each["name"] for each in pod(worker)["containers"][0]["volumeMounts"]}
    volumes = {each["name"]: each.get("configMap", {}).get("name") for each in pod(worker)["volumes"]}
    made = found["ConfigMap/binlane-executor"]["metadata"]["name"]
    assert volumes[mounts[str(template.parent)]] == made
    assert executor["spec"]["containers"][0]["image"] == conf["spark.kubernetes.container.image"]
    secured = ("spark.authenticate", "spark.network.crypto.enabled")
    assert [conf[key] for key in secured] == [True, True], "else whoever reaches the ports may run code there"
    policy = found["NetworkPolicy/binlane-executor"]["spec"]
    assert policy["podSelector"]["matchLabels"] == executor["metadata"]["labels"]
    [let_in] = policy["ingress"]
    labels = [worker["spec"]["template"]["metadata"]["labels"], executor["metadata"]["labels"]]
    for chosen, of_pod in zip(
        (each["podSelector"]["matchLabels"] for each in let_in["from"]), labels, strict=True
    ):
        assert chosen.items() <= of_pod.items()
    # Else it would be one of the pods that services, budgets and policies of the worker choose.
    assert executor["metadata"]["labels"] != worker["spec"]["template"]["metadata"]["labels"]


def test_the_network_policy_lets_out_to_every_kind_of_target_and_service() -> None:
    egress = of("network-policy")["NetworkPolicy/binlane"]["spec"]["egress"]
    listed = [port for rule in egress if "to" not in rule for port in rule["ports"]]
    ports = {each for port in listed for each in range(port["port"], port.get("endPort", port["port"]) + 1)}
    targets = {5432, 3306, 6379, 6380, 443, 9000, 8123, 8443, 9200}
    services = {*range(9092, 9099), *range(9194, 9199), 8080, 8081, 4317, 4318, 15002, 9083, 6443}
    assert ports == targets | services
    blocks = [each["ipBlock"]["cidr"] for rule in egress for each in rule.get("to", ()) if "ipBlock" in each]
    identities = ["169.254.169.254/32", "169.254.169.252/32", "169.254.170.23/32"]
    assert blocks == ["169.254.20.10/32", *identities], "the node's DNS cache, and where roles are told"


def test_the_network_policy_lets_in_scrapes_and_executors_alone() -> None:
    policy = of("network-policy")["NetworkPolicy/binlane"]["spec"]
    assert policy["policyTypes"] == ["Ingress", "Egress"]
    ports = [[port["port"] for port in each["ports"]] for each in policy["ingress"]]
    assert ports == [["http"], [7078, 7079]]
    assert all(each["from"] for each in policy["ingress"])
    executors = policy["ingress"][1]["from"][0]["podSelector"]["matchLabels"].items()
    text = of("spark-on-kubernetes")["ConfigMap/binlane-executor"]["data"]["executor.yaml"]
    assert executors <= yaml.safe_load(text)["metadata"]["labels"].items()
    reached = {port["port"] for each in policy["egress"] for port in each.get("ports", [])}
    assert {53, 5353, 9092, 443} <= reached


@pytest.mark.parametrize(
    ("components", "workload"),
    [
        (["monitoring", "keda", "network-policy", "statefulset"], "StatefulSet"),
        (["monitoring", "spark-on-kubernetes", "network-policy"], "Deployment"),
        (["monitoring", "spark-on-kubernetes", "network-policy", "statefulset"], "StatefulSet"),
    ],
)
def test_components_go_together(shipped: Path, components: list[str], workload: str) -> None:
    own = shipped / "k8s" / "own"
    own.mkdir()
    shutil.copy(shipped / "k8s" / "base" / "binlane.yaml", own)
    listed = {
        "resources": ["../base"],
        "components": [f"../components/{each}" for each in components],
        "configMapGenerator": [{"name": "binlane", "behavior": "replace", "files": ["binlane.yaml"]}],
    }
    (own / "kustomization.yaml").write_text(yaml.safe_dump(listed))

    assert list(check_folder(shipped, own)) == []

    found = kinds(render(own))
    assert f"{workload}/binlane" in found
    if "keda" in components:
        assert found["ScaledObject/binlane"]["spec"]["scaleTargetRef"]["kind"] == workload


def test_what_demands_one_worker_is_not_scaled(shipped: Path) -> None:
    configuration = shipped / "k8s" / "base" / "binlane.yaml"
    text = configuration.read_text()
    configuration.write_text(
        text.replace("topics: [cdc.shop]", "topics: [cdc.shop]\n  ddl_topics: [cdc.ddl]")
    )

    [fault] = check_folder(shipped, shipped / "k8s" / "overlays" / "keda")

    assert "with one replica" in fault


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        ("keda/scaled-object.yaml", "minReplicaCount", "minReplicasCount", "minReplicasCount: Extra inputs"),
        ("keda/scaled-object.yaml", "minReplicaCount: 1", "minReplicaCount: 0", "minReplicaCount: Input"),
        ("keda/scaled-object.yaml", '"10000"', "10000", "threshold: Input should be a valid string"),
        ("keda/scaled-object.yaml", "    name: binlane\n  polling", "    name: other\n  polling", "not what"),
        ("keda/kustomization.yaml", "op: remove, path: /spec/replicas", "op: test, path: /kind", "rendered"),
        ("monitoring/pod-monitor.yaml", "podMetricsEndpoints", "podMetricEndpoints", "podMetricEndpoints"),
        ("monitoring/pod-monitor.yaml", "15s", "15", "interval"),
    ],
)
def test_a_wrong_component_is_a_fault(shipped: Path, file: str, old: str, new: str, fault: str) -> None:
    path = shipped / "k8s" / "components" / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))

    faults = list(check_folder(shipped, shipped / "k8s" / "overlays" / "keda"))

    assert any(fault in line for line in faults), faults
