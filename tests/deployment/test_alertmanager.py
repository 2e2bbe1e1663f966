"""A real Alertmanager with the configuration of deploy/: who hears which alert, and what is inhibited."""

from __future__ import annotations

import json
import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import yaml
from integration.process import eventually
from servers.alertmanager_server import AlertmanagerNode, quick
from servers.hook_server import Answer, HookServer, Received
from servers.prometheus_server import PrometheusNode, sped_up
from test_alerts import ALERTS, PAGES, RULES

from worker.observing.metric_definitions import DEFINITIONS

CONFIG = yaml.safe_load((Path(RULES).parent / "alertmanager.yml").read_text())
LABELS = {entry.name: entry.labels for entry in DEFINITIONS}

Alert = dict[str, str]
Start = Callable[..., Any]


def alert(name: str, namespace: str) -> Alert:
    """With the labels that its expression keeps."""
    expr = ALERTS[name]["expr"]
    kept = re.search(r"\b(?:group|max|min|sum) by \((.*?)\)", expr)
    metric = re.search(r"binlane_\w+", expr)
    if kept is not None and name not in {"BinlaneRestarts", "BinlaneNothingMatches"}:
        labels = kept[1].split(", ")
    else:
        labels = ["namespace", "job", "instance", *(LABELS[metric[0]] if metric else ())]
    values = {label: label for label in labels} | {"namespace": namespace, "job": f"{namespace}/binlane"}
    return {**values, "alertname": name, **ALERTS[name]["labels"]}


def inhibitions() -> Iterator[tuple[str, str]]:
    """The alert that inhibits, and that which is not sent."""
    for rule in CONFIG["inhibit_rules"]:
        [source] = _named(rule["source_matchers"])
        yield from ((source, target) for target in _named(rule["target_matchers"]) if target != source)


def _named(matchers: list[str]) -> list[str]:
    [matcher] = matchers
    pattern = re.fullmatch(r'alertname =~? "(.*)"', matcher)
    assert pattern is not None
    found = [name for name in ALERTS if re.fullmatch(pattern[1], name)]
    assert len(found) >= len(pattern[1].split("|")), f"{pattern[1]} names an alert that is none"
    return found


def heard(hook: HookServer) -> Counter[tuple[str, str, str]]:
    """How often each receiver heard of (receiver, alert, namespace)."""
    return Counter(
        (request.path.strip("/"), each["labels"]["alertname"], each["labels"].get("namespace", ""))
        for request in list(hook.received)
        if request.method == "POST"
        for each in request.json["alerts"]
        if each["status"] == "firing"
    )


def of(alerts: list[Alert]) -> Counter[tuple[str, str, str]]:
    """Each of them once, at whom it concerns."""
    return Counter(
        ("page" if each["alertname"] in PAGES else "tell", each["alertname"], each["namespace"])
        for each in alerts
    )


@pytest.fixture
def hook() -> Iterator[HookServer]:
    with HookServer() as server:
        yield server


@pytest.fixture
def alertmanager(start_server: Start, hook: HookServer) -> AlertmanagerNode:
    node: AlertmanagerNode = start_server(AlertmanagerNode(quick(CONFIG, hook.url)))
    return node


def test_the_receiver_hears_each_alert_once(alertmanager: AlertmanagerNode, hook: HookServer) -> None:
    alerts = [alert(name, name.lower()) for name in ALERTS]
    for _ in range(6):
        alertmanager.send(alerts)
        time.sleep(0.5)
    eventually(lambda: heard(hook) >= of(alerts), within=20, what="each is heard")
    assert heard(hook) == of(alerts)


def test_one_notification_has_all_alerts_of_a_deployment(
    alertmanager: AlertmanagerNode, hook: HookServer
) -> None:
    causes = ["BinlaneCallHangs", "BinlaneReloadRefused", "BinlaneTargetDown"]
    alertmanager.send([alert(name, place) for name in causes for place in ("shop", "crm")])
    eventually(lambda: len(hook.received) >= 2, within=20, what="both are heard")
    assert len(hook.received) == 2
    assert all(len(request.json["alerts"]) == len(causes) for request in hook.received)


def test_an_alert_that_follows_from_another_is_not_sent(
    alertmanager: AlertmanagerNode, hook: HookServer
) -> None:
    """In a namespace for each pair. The same alert is sent from a namespace where it stands alone."""
    pairs = list(inhibitions())
    sources = [alert(source, f"{source}-{target}".lower()) for source, target in pairs]
    inhibited = [alert(target, f"{source}-{target}".lower()) for source, target in pairs]
    alone = [alert(name, "alone-" + name.lower()) for name in {target for _, target in pairs}]
    alertmanager.send([*sources, *inhibited, *alone])
    eventually(lambda: heard(hook) >= of([*sources, *alone]), within=20, what="the others are heard")
    time.sleep(2)
    assert heard(hook) == of([*sources, *alone])


def test_a_warning_inhibits_no_page() -> None:
    for source, target in inhibitions():
        assert source in PAGES or target not in PAGES, f"{source} hides {target}"


# ---- with a real Prometheus ------------------------------------------------------------------------------


def test_a_pod_that_vanishes_pages_once_and_the_other_deployment_goes_on(
    start_server: Start, alertmanager: AlertmanagerNode, hook: HookServer
) -> None:
    """A table halts in one of two namespaces, then its only pod is gone."""
    halted = {"/shop": 1, "/crm": 0}

    def metrics(request: Received) -> Answer:
        if request.method != "GET":
            return Answer()
        path = request.path.removesuffix("/metrics")
        info = 'binlane_info{version="1",group="shop"} 1'
        text = f"{info}\nbinlane_kafka_up 1\nbinlane_tables_halted {halted[path]}\n"
        return Answer(headers={"Content-Type": "text/plain; version=0.0.4"}, body=text.encode())

    hook.answer = metrics
    rules = yaml.safe_load(Path(RULES).read_text())
    prometheus: PrometheusNode = start_server(PrometheusNode(sped_up(rules), alertmanager=alertmanager.port))

    def scrape(*namespaces: str) -> None:
        targets = [
            {
                "targets": [f"127.0.0.1:{hook.port}"],
                "labels": {
                    "__metrics_path__": f"/{each}/metrics",
                    "namespace": each,
                    "job": f"{each}/binlane",
                    "instance": f"pod-of-{each}",
                },
            }
            for each in namespaces
        ]
        prometheus.write("targets.json", json.dumps(targets))

    scrape("shop", "crm")
    table, worker = ("page", "BinlaneTableBlocked", "shop"), ("page", "BinlaneNoWorker", "shop")
    eventually(lambda: heard(hook)[table], within=30, what="a table is halted")
    scrape("crm")
    eventually(lambda: heard(hook)[worker], within=30, what="there is no worker")
    time.sleep(3)
    told = {each: times for each, times in heard(hook).items() if each[2]}
    assert told == {table: 1, worker: 1}
    [page] = [
        each["annotations"]
        for request in hook.received
        if request.method == "POST"
        for each in request.json["alerts"]
        if (each["labels"]["alertname"], each["status"]) == ("BinlaneNoWorker", "firing")
        and "namespace" in each["labels"]
    ]
    assert page["summary"] == "No binlane worker of shop/binlane is running"
    assert page["runbook_url"].endswith("/#binlanenoworker")
