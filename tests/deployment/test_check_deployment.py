"""What `make lint` finds in deployment files, and that it finds nothing in those shipped."""

from __future__ import annotations

import re
import subprocess
import sys
from pathlib import Path

import pytest
from check_deployment import check_compose, check_dockerfile, check_prometheus
from check_manifests import check_folder
from checking import longest_stop, read

TOOL = Path(__file__).parents[2] / "tools" / "check_deployment.py"


def replace(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text, f"{old!r} is not in {path.name}: this test breaks nothing"
    path.write_text(text.replace(old, new))


def run_tool(root: Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        [sys.executable, str(TOOL), str(root)], capture_output=True, text=True, check=False, timeout=120
    )


@pytest.mark.soak  # it is part of `make lint`
def test_the_files_shipped_have_no_fault(shipped: Path) -> None:
    done = run_tool(shipped)

    assert (done.returncode, done.stderr) == (0, "")
    assert done.stdout == "deployment files: no fault found\n"


def test_a_fault_makes_the_tool_fail_and_names_the_file(shipped: Path) -> None:
    replace(shipped / "k8s" / "base" / "service.yaml", "targetPort: http", "targetport: http")
    replace(shipped / "deploy" / "alerts.yml", "binlane_kafka_up == 0", "binlane_kafka_up < 1")
    replace(shipped / "docs" / "metrics.md", "Records fetched from Kafka.", "Records.")

    done = run_tool(shipped)

    assert done.returncode == 1
    for stale in ("k8s/components/monitoring/prometheus-rule.yaml", "docs/metrics.md"):
        assert f"{stale}: not up to date: run python tools/generate.py" in done.stderr
    assert "k8s/base: Service/binlane" in done.stderr
    assert "targetport" in done.stderr
    assert "Traceback" not in done.stderr


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("FROM base AS build", "FROM base:latest AS build", "DL3007"),
        ("--no-install-recommends ", "", "DL3015"),
        ('"tini", "--"', '"tini", "-g", "--"', "tini without -g"),
        ("USER 10001:10001", "USER root", "not root"),
    ],
)
def test_a_dockerfile_against_the_rules_is_a_fault(shipped: Path, old: str, new: str, fault: str) -> None:
    replace(shipped / "Dockerfile", old, new)

    assert any(fault in line for line in check_dockerfile(shipped / "Dockerfile"))


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        ("deployment.yaml", "replicas: 1", "replicas: two", "'two' is not of type"),
        ("deployment.yaml", "  replicas: 1", "  replica: 1", "'replica' was unexpected"),
        ("deployment.yaml", "readinessProbe:", "livenesProbe:", "'livenesProbe' was unexpected"),
        (
            "deployment.yaml",
            "runAsUser: 10001",
            "runAsUser: 1000",
            "not the user of the Dockerfile",
        ),
        ("deployment.yaml", "readOnlyRootFilesystem: true", "readOnlyRootFilesystem: false", "readOnlyRoot"),
        ("deployment.yaml", "limits: {memory: 4Gi, ", "limits: {", "limits.memory is missing"),
        ("deployment.yaml", "memory: 3Gi, ", "memory: 2800Mi, ", "requests.memory must be 2838Mi at least"),
        ("deployment.yaml", "storage: 11Gi}", "storage: 10Gi}", "limits.ephemeral-storage must be 10752Mi"),
        (
            "deployment.yaml",
            "{sizeLimit: 4Gi}",
            "{sizeLimit: 8Gi}",
            "limits.ephemeral-storage must be 14848Mi",
        ),
        ("deployment.yaml", "Seconds: 180", "Seconds: 60", "must be at least 152 to hold a stop"),
        (
            "deployment.yaml",
            "configMap: {name: binlane}",
            "configMap: {name: other}",
            "from no ConfigMap",
        ),
        ("binlane.yaml", "shutdown_timeout: 30s", "shutdown_timeout: 5m", "must be at least 390"),
        ("deployment.yaml", "failureThreshold: 66", "failureThreshold: 6", "must have 310 s at least"),
        ("binlane.yaml", "http:", "start_timeout: 6m\nhttp:", "must have 370 s at least"),
        ("deployment.yaml", "path: /startupz", "path: /healthz", "startupProbe must ask /startupz"),
        ("binlane.yaml", "- type: log", "- type: lgo", "lgo"),
        ("binlane.yaml", "each: batch", "each: change", "rows come into the log"),
        ("binlane.yaml", "shop-first-look", "shop-replica", "is that of deploy/binlane.yaml"),
        ("binlane.yaml", "topics: [cdc.shop]", "", "kafka.topics"),
        ("kustomization.yaml", "service.yaml", "servise.yaml", "cannot be rendered"),
        ("kustomization.yaml", "resources:", "resource:", "cannot be rendered"),
        ("pod-disruption-budget.yaml", "name: binlane\n", "name: other\n", "chooses none of its pods"),
        ("service.yaml", "name: binlane\n  ports", "name: other\n  ports", "chooses none of its pods"),
        (
            "service-account.yaml",
            "name: binlane",
            "name: other",
            "binlane is not among the manifests",
        ),
        ("service-account.yaml", "kind: ServiceAccount", "kind: ServiceAcount", "no such kind"),
    ],
)
def test_a_wrong_base_is_a_fault(shipped: Path, file: str, old: str, new: str, fault: str) -> None:
    base = shipped / "k8s" / "base"
    replace(base / file, old, new)

    faults = list(check_folder(shipped, base))

    assert any(fault in line for line in faults), faults


def test_a_missing_probe_is_a_fault(shipped: Path) -> None:
    base = shipped / "k8s" / "base"
    deployment = base / "deployment.yaml"
    before, _, rest = deployment.read_text().partition("          livenessProbe:")
    deployment.write_text(before + rest[rest.index("          readinessProbe:") :])

    assert list(check_folder(shipped, base)) == ["k8s/base: Deployment/binlane: livenessProbe is missing"]


@pytest.mark.parametrize(
    ("old", "new"), [("replicas: 1", "replicas: 2"), ("type: Recreate", "type: RollingUpdate")]
)
def test_several_pods_of_a_configuration_that_demands_one_worker_are_a_fault(
    shipped: Path, old: str, new: str
) -> None:
    base = shipped / "k8s" / "base"
    replace(base / "binlane.yaml", "topics: [cdc.shop]", "topics: [cdc.shop]\n  ddl_topics: [cdc.ddl]")
    assert list(check_folder(shipped, base)) == []

    replace(base / "deployment.yaml", old, new)

    [fault] = check_folder(shipped, base)
    assert "a Deployment with the strategy Recreate, with one replica" in fault


def test_a_deployment_does_not_keep_the_promise_of_one_writer(shipped: Path) -> None:
    """It makes the next pod while one that is drained, or that nobody reaches, still runs."""
    overlay = shipped / "k8s" / "overlays" / "spark-on-kubernetes"
    assert list(check_folder(shipped, overlay)) == []

    replace(overlay / "kustomization.yaml", "  - ../../components/statefulset\n", "")

    [fault] = check_folder(shipped, overlay)
    assert "it must be a StatefulSet, with one replica" in fault


def test_the_documentation_has_the_longest_stop_that_the_code_adds_up_to(shipped: Path) -> None:
    text = (TOOL.parents[1] / "docs" / "deployment.md").read_text()
    configuration = read((shipped / "deploy" / "binlane.yaml").read_text())
    whole = longest_stop(configuration)
    told = [int(each) for each in re.findall(r"\((\d+) s with the Spark handler\)", text)]
    assert told == [whole]
    table = text[text.index("| part | at most |") : text.index("A worker that is still there")]
    table = table.replace("30 s; of the Spark handler", "")
    assert sum(int(each) for each in re.findall(r"\b(\d+) s\b", table)) == whole


@pytest.mark.parametrize(
    ("old", "new", "fault"),
    [
        ("    restart: unless-stopped", "    restarts: always", "restarts"),
        ("      source:\n        condition", "      sauce:\n        condition", "names no service: sauce"),
        ("    depends_on:\n      - worker", "    depends_on:\n      - redis", "with a profile only: targets"),
        ("    healthcheck:", "    health-check:", "health-check"),
        ("- kafka:/var/lib", "- kafak:/var/lib", "not declared under volumes: kafak"),
        ("./deploy/binlane.yaml:", "./deploy/worker.yaml:", "no such file: ./deploy/worker.yaml"),
        ("127.0.0.1:9092:9092", "9092:9092", "ports"),
        ("stop_grace_period: 180s", "stop_grace_period: 60s", "stop_grace_period must be at least 152s"),
        ("prom/prometheus:v3.5.0", "prom/prometheus", "image"),
        ("services:", "services: [", "while parsing"),
    ],
)
def test_a_wrong_compose_file_is_a_fault(shipped: Path, old: str, new: str, fault: str) -> None:
    replace(shipped / "docker-compose.yml", old, new)

    faults = list(check_compose(shipped))

    assert any(fault in line for line in faults), faults


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        (
            "alerts.yml",
            "binlane_tables_halted",
            "binlane_table_halted",
            "metric: binlane_table_halted",
        ),
        ("alerts.yml", "severity: critical", "severity: urgent", "severity"),
        ("alerts.yml", "for: 1m", "for: one minute", "for"),
        ("prometheus.yml", "static_configs:", "static_config:", "static_config"),
        ("prometheus.yml", "job_name: binlane", "", "job_name"),
    ],
)
def test_wrong_prometheus_files_are_faults(shipped: Path, file: str, old: str, new: str, fault: str) -> None:
    replace(shipped / "deploy" / file, old, new)

    faults = list(check_prometheus(shipped / "deploy" / "prometheus.yml", shipped / "deploy" / "alerts.yml"))

    assert any(line.startswith(file) and fault in line for line in faults), faults
