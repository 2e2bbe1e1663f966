"""A new user's walk through docs/deployment.md on Kubernetes' API server: each command as it is printed.

`make api-server` runs this, and says how long each step took. Steps that need a container engine are left
out where none answers.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
import sys
import time
import uuid
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
import yaml
from checking import tool
from documentation.blocks import Block, blocks
from integration.process import eventually
from integration.source import Source
from servers.alertmanager_server import AlertmanagerNode, quick
from servers.api_server import ApiServer, EtcdNode
from servers.cluster_node import ClusterNode
from servers.hook_server import HookServer
from servers.prometheus_server import PrometheusNode, sped_up

from worker.local.broker import Broker

pytestmark = pytest.mark.soak

ROOT = Path(__file__).parents[2]
PAGE = ROOT / "docs" / "deployment.md"
OF_AN_ENGINE = ("make image", "docker")
FILE = re.compile(r"# (\S+)(?: in a folder (\S+))?\n")
ROWS = 100


class Walk:
    """`folder`: the project, in which the user stands. `replaced`: what the page leaves to the user."""

    def __init__(self, folder: Path, kubeconfig: Path, helm: str, replaced: dict[str, str]) -> None:
        self._folder = folder
        programs = [str(Path(each).parent) for each in (helm, tool("kubectl"), sys.executable)]
        path = os.pathsep.join([*programs, os.environ["PATH"]])
        home = {"HOME": str(folder.parent), "KUBECONFIG": str(kubeconfig)}
        self._environment = {**os.environ, **home, "PATH": path}
        self._replaced = replaced

    def write(self, file: str, text: str) -> None:
        place = self._folder / file
        place.parent.mkdir(exist_ok=True)
        place.write_text(self._own(text))

    def step(self, command: str) -> str:
        """What it prints. It has to succeed."""
        begin = time.monotonic()
        done = subprocess.run(
            ["sh", "-c", self._own(command)],
            cwd=self._folder,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        print(f"{time.monotonic() - begin:6.1f} s  {command}", flush=True)
        assert done.returncode == 0, f"{command}\n{done.stdout}{done.stderr}"
        return done.stdout

    def _own(self, text: str) -> str:
        for placeholder, own in self._replaced.items():
            text = text.replace(placeholder, own)
        return text


class Watch(NamedTuple):
    prometheus: PrometheusNode
    hook: HookServer
    """Who receives the alerts."""

    def pages(self) -> list[tuple[str, str, str]]:
        """The alerts of a job that paged, with its namespace. One of no job says that no worker was ever
        scraped, which is so before the release is installed."""
        return [
            (each["labels"]["alertname"], each["labels"]["namespace"], each["labels"]["job"])
            for request in list(self.hook.received)
            if request.path == "/page"
            for each in request.json["alerts"]
            if each["status"] == "firing" and "job" in each["labels"]
        ]


def shown() -> list[Block]:
    """The snippets of "Kubernetes", up to the list of its parts."""
    text = PAGE.read_text().splitlines()
    first, last = text.index("## Kubernetes"), text.index("### Components")
    return [each for each in blocks() if each.page == PAGE and first < each.line < last]


def commands(block: Block) -> Iterator[str]:
    for line in block.text.replace("\\\n", " ").splitlines():
        yield " ".join(line.partition(" # ")[0].split())


def own_configuration(topic: str, each: str = "batch", group: str = "") -> str:
    """What a user makes of k8s/base/binlane.yaml."""
    found = yaml.safe_load((ROOT / "k8s" / "base" / "binlane.yaml").read_text())
    found["kafka"] |= {"group_id": group or f"group-of-{topic}", "topics": [topic]}
    found["tables"][0]["handlers"][0]["each"] = each
    return yaml.safe_dump(found)


def reached(output: str) -> bool:
    """Whether binlane check reports each connection as reached, Kafka's at least."""
    connections = output.partition("(startup probe, grace period).\n")[2].strip().splitlines()
    return bool(connections) and all(": reached" in each for each in connections)


def listed(server: ApiServer, kind: str, namespace: str) -> list[dict[str, Any]]:
    found: list[dict[str, Any]] = json.loads(
        server.kubectl("get", kind, "--namespace", namespace, "--output=json")
    )["items"]
    return found


@pytest.fixture
def server() -> Iterator[ApiServer]:
    etcd = EtcdNode()
    node = ApiServer(etcd)
    try:
        etcd.start()
        node.start()
        yield node
    finally:
        node.close()
        etcd.close()


@pytest.fixture
def source(broker: Broker) -> Source:
    topic = f"cdc.{uuid.uuid4().hex[:8]}"
    broker.create_topic(topic, 2)
    return Source(broker.bootstrap_servers, topic)


@pytest.fixture
def walk(server: ApiServer, broker: Broker, helm: str, tmp_path: Path) -> Walk:
    folder = tmp_path / "binlane"
    for part in ("k8s", "deploy"):
        shutil.copytree(ROOT / part, folder / part)
    replaced = {"REGISTRY": "registry.example", "kafka-1:9092,kafka-2:9092": broker.bootstrap_servers}
    return Walk(folder, server.directory / "kubeconfig", helm, replaced)


@pytest.fixture
def watch() -> Iterator[Watch]:
    """Prometheus and Alertmanager with the rules and the configuration that are shipped."""
    rules, config = (
        yaml.safe_load((ROOT / "deploy" / f"{each}.yml").read_text()) for each in ("alerts", "alertmanager")
    )
    with HookServer() as hook:
        alertmanager = AlertmanagerNode(quick(config, hook.url))
        prometheus = PrometheusNode(sped_up(rules), alertmanager=alertmanager.port)
        try:
            alertmanager.start()
            prometheus.start()
            yield Watch(prometheus, hook)
        finally:
            prometheus.close()
            alertmanager.close()


@pytest.fixture
def node(server: ApiServer, tmp_path: Path) -> Iterator[ClusterNode]:
    with ClusterNode(server, tmp_path, ROOT) as found:
        yield found
        assert found.fault is None


def write_files(walk: Walk, topic: str) -> None:
    """Those that the page shows, and the user's own configuration."""
    for block in shown():
        if block.language == "yaml":
            told = FILE.match(block.text)
            assert told, f"{block.place} does not say which file it is"
            walk.write(f"{told[2] or '.'}/{told[1]}", block.text)
    for folder in (".", "k8s/own"):
        walk.write(f"{folder}/binlane.yaml", own_configuration(topic))


def test_nothing_stops_a_user_of_kustomize(
    walk: Walk, server: ApiServer, node: ClusterNode, source: Source
) -> None:
    write_files(walk, source.topic)
    steps = [each for block in shown() if not block.language for each in commands(block)]
    if subprocess.run(["docker", "info"], capture_output=True, check=False).returncode != 0:
        steps = [each for each in steps if not each.startswith(OF_AN_ENGINE)]
    said = {each: walk.step(each) for each in steps if not each.startswith("helm")}
    [checked] = [text for each, text in said.items() if each.startswith("kubectl logs")]
    assert reached(checked), checked
    walk.step("kubectl rollout status deployment/binlane --timeout=2m")
    assert len(node.addresses("default")) == 1
    walk.step("kubectl delete --kustomize k8s/own")
    eventually(lambda: not listed(server, "pods", "default"), within=60, what="the worker's pod is gone")


def test_nothing_stops_a_user_of_helm(
    walk: Walk, server: ApiServer, node: ClusterNode, source: Source, watch: Watch
) -> None:
    """The release is installed, tested, scraped, upgraded and uninstalled. Then somebody is told that no
    worker is left."""
    write_files(walk, source.topic)
    steps = [each for block in shown() if not block.language for each in commands(block)]
    said = [walk.step(each) for each in steps if each.startswith("helm")]
    assert reached(said[-1]), said[-1]
    [monitor] = listed(server, "podmonitors", "shop")
    name = monitor["metadata"]["name"]
    job = f"shop/{name}"
    assert monitor["metadata"]["labels"]["release"] == "prometheus"
    rolled_out = f"kubectl --namespace shop rollout status deployment/{name} --timeout=2m"
    walk.step(rolled_out)
    [first] = running(server, name)
    walk.write("binlane.yaml", own_configuration(source.topic, "change"))
    walk.step(steps[-2].replace("install", "upgrade").replace(" --create-namespace", ""))
    walk.step(rolled_out)
    [second] = eventually(lambda: running(server, name), within=60)
    assert first != second, "another configuration is another pod"

    [address] = node.addresses("shop")
    watch.prometheus.scrape({"one": address}, namespace="shop", job=job)
    source.insert("t0", records=ROWS)
    finished = f'sum(binlane_records_finished_total{{job="{job}"}})'
    eventually(lambda: watch.prometheus.value(finished) == ROWS, within=60, what=finished)
    walk.step(f"kubectl --namespace shop delete pod {second}")
    [third] = eventually(lambda: running(server, name), within=60)
    assert third == second, "of the same template"
    walk.step(rolled_out)
    [address] = node.addresses("shop")
    watch.prometheus.scrape({"two": address}, namespace="shop", job=job)
    source.insert("t0", records=ROWS)
    finished = f'sum(binlane_records_finished_total{{job="{job}", instance="two"}})'
    eventually(lambda: watch.prometheus.value(finished) == ROWS, within=60, what=f"{finished}, none again")
    assert watch.pages() == []
    walk.step("helm uninstall shop --namespace shop")
    watch.prometheus.scrape({})
    eventually(lambda: not node.addresses("shop"), within=60, what="the worker ends")
    eventually(watch.pages, within=60, what="somebody is told that no worker is left")
    assert watch.pages() == [("BinlaneNoWorker", "shop", job)]
    assert node.exit_codes("shop") == [0, 0, 0], "each was drained"


def test_a_secret_and_what_other_operators_need_are_values(
    walk: Walk, server: ApiServer, node: ClusterNode, source: Source
) -> None:
    """The group's name is in the Secret, so a worker without it has no configuration."""
    write_files(walk, source.topic)
    walk.write("binlane.yaml", own_configuration(source.topic, group="${file:../secrets/group}"))
    walk.write("group.txt", f"group-of-{source.topic}")
    [install] = [each for block in shown() for each in commands(block) if each.startswith("helm install")]
    walk.step(f"{install} --set-file secrets.files.group=group.txt")
    [workload] = listed(server, "deployments", "shop")
    name = workload["metadata"]["name"]
    rolled_out = f"kubectl --namespace shop rollout status deployment/{name} --timeout=2m"
    walk.step(rolled_out)
    upgrade = install.replace("install", "upgrade").replace(" --create-namespace", "")
    more = "--set keda.enabled=true,monitoring.kind=ServiceMonitor --set-file secrets.files.group=group.txt"
    walk.step(f"{upgrade} {more}")
    walk.step(rolled_out)
    assert listed(server, "podmonitors", "shop") == []
    [monitor] = listed(server, "servicemonitors", "shop")
    [scaled] = listed(server, "scaledobjects", "shop")
    assert scaled["spec"]["scaleTargetRef"]["name"] == monitor["metadata"]["name"] == name
    walk.step("helm uninstall shop --namespace shop")
    eventually(lambda: not listed(server, "pods", "shop"), within=60, what="the worker's pod is gone")
    assert set(node.exit_codes("shop")) == {0}


def test_each_overlay_is_applied_by_the_commands_of_its_first_lines(walk: Walk, server: ApiServer) -> None:
    for folder in sorted((ROOT / "k8s" / "overlays").iterdir()):
        lines = (folder / "kustomization.yaml").read_text().splitlines()
        steps = [line[2:] for line in lines if line.startswith("# kubectl")]
        assert steps[-1] == f"kubectl apply --kustomize k8s/overlays/{folder.name}"
        for each in steps:
            walk.step(each)
        walk.step(f"kubectl delete --kustomize k8s/overlays/{folder.name}")


def running(server: ApiServer, name: str) -> list[str]:
    """The pods of the workload, without that of `helm test`."""
    found = [each["metadata"]["name"] for each in listed(server, "pods", "shop")]
    return [each for each in found if each.startswith(name) and each != f"{name}-check"]
