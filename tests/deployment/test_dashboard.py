"""Grafana's dashboard asks for what there is, and Grafana finds it where it is put.

That each query has an answer is tested in integration/test_prometheus.py.
"""

from __future__ import annotations

import itertools
import json
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import render

from worker.observing.metric_definitions import DEFINITIONS

ROOT = Path(__file__).parents[2]
FILE = ROOT / "k8s" / "components" / "monitoring" / "dashboard.json"
DASHBOARD = json.loads(FILE.read_text())
PANELS: list[dict[str, Any]] = [panel for panel in DASHBOARD["panels"] if panel["type"] != "row"]
RULES = [
    rule
    for group in yaml.safe_load((ROOT / "deploy" / "alerts.yml").read_text())["groups"]
    for rule in group["rules"]
]
OF_THE_SCRAPE = {"namespace", "job", "instance"}
LABELS = {
    **{entry.name: {*entry.labels, *OF_THE_SCRAPE} for entry in DEFINITIONS},
    **{rule["record"]: {"namespace", "job"} for rule in RULES if "record" in rule},
    **dict.fromkeys(
        ("process_resident_memory_bytes", "process_cpu_seconds_total", "process_start_time_seconds"),
        OF_THE_SCRAPE,
    ),
    "ALERTS": {"alertname", "alertstate", "namespace", "job"},
}
WORDS = "(sum|count|min|max|avg|topk|rate|increase|histogram_quantile|vector|time|by|and|on|or)"


def labels_of(name: str) -> set[str]:
    """Of a series. Raises KeyError for a metric that is not there."""
    base = re.sub(r"_(bucket|sum|count)$", "", name)
    of_histogram = base != name and any(e.name == base and e.kind == "histogram" for e in DEFINITIONS)
    return LABELS[base] | {"le"} if of_histogram else LABELS[name]


@pytest.mark.parametrize("panel", PANELS, ids=lambda panel: str(panel["title"]))
def test_a_panel_asks_for_metrics_and_labels_that_are_defined(panel: dict[str, Any]) -> None:
    assert panel["description"]
    assert panel["targets"]
    for target in panel["targets"]:
        expr = target["expr"]
        bare = re.sub(r'"[^"]*"|\$\w+', "", expr)
        outside = re.sub(r"\{[^}]*\}|(by|on) \([^)]*\)|\[\]", " ", bare)
        names = {
            name for name in re.findall(r"[a-zA-Z_:]\w*(?::\w+)*", outside) if not re.fullmatch(WORDS, name)
        }
        assert names, expr
        known = set.union(*(labels_of(name) for name in names))
        for name, matchers in re.findall(r"([\w:]+)\{([^}]*)\}", bare):
            assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= labels_of(name), expr
            assert {"namespace", "job"} <= set(re.findall(r"\w+", matchers)), "the dashboard's variables"
        grouped = {
            label for _, each in re.findall(r"(by|on) \(([^)]*)\)", bare) for label in each.split(", ")
        }
        shown = set(re.findall(r"\{\{(\w+)\}\}", target["legendFormat"]))
        assert grouped | shown <= known, expr
        if "sum" in expr or "max by" in expr:
            assert shown <= grouped, "the legend has a label that the query takes away"


def test_panels_have_places_of_their_own() -> None:
    ids = [panel["id"] for panel in DASHBOARD["panels"]]
    assert len(ids) == len(set(ids))
    places = [panel["gridPos"] for panel in DASHBOARD["panels"]]
    for one, other in itertools.combinations(places, 2):
        beside = one["x"] + one["w"] <= other["x"] or other["x"] + other["w"] <= one["x"]
        below = one["y"] + one["h"] <= other["y"] or other["y"] + other["h"] <= one["y"]
        assert beside or below, (one, other)
    assert all(place["x"] + place["w"] <= 24 for place in places)


def test_every_alert_that_a_panel_names_is_one_and_every_table_has_its_data_source_by_choice() -> None:
    alerts = {rule["alert"] for rule in RULES if "alert" in rule}
    assert set(re.findall(r"\bBinlane[A-Z]\w+", FILE.read_text())) <= alerts
    asked = [target["datasource"] for panel in PANELS for target in panel["targets"]]
    assert {each["uid"] for each in asked} == {"${datasource}"}
    names = [variable["name"] for variable in DASHBOARD["templating"]["list"]]
    assert names == ["datasource", "namespace", "job"]


def test_compose_puts_it_where_grafana_looks_with_its_data_source() -> None:
    services = yaml.safe_load((ROOT / "docker-compose.yml").read_text())["services"]
    mounts = dict(volume.split(":")[:2] for volume in services["grafana"]["volumes"])
    [provider] = yaml.safe_load((ROOT / "deploy" / "grafana" / "dashboards.yml").read_text())["providers"]
    [source] = yaml.safe_load((ROOT / "deploy" / "grafana" / "datasources.yml").read_text())["datasources"]
    shown = {Path(inside).parent: (ROOT / outside).resolve() for outside, inside in mounts.items()}
    assert shown[Path(provider["options"]["path"])] == FILE
    provisioning = Path("/etc/grafana/provisioning")
    assert shown[provisioning / "dashboards"] == ROOT / "deploy" / "grafana" / "dashboards.yml"
    assert shown[provisioning / "datasources"] == ROOT / "deploy" / "grafana" / "datasources.yml"
    service, port = source["url"].removeprefix("http://").split(":")
    assert services[service]["ports"] == [f"127.0.0.1:{port}:{port}"]
    scraped = yaml.safe_load((ROOT / "deploy" / "prometheus.yml").read_text())["global"]["scrape_interval"]
    assert source["jsonData"]["timeInterval"] == scraped, "else rates are taken over too little"


def test_kubernetes_has_it_as_a_config_map_that_grafanas_sidecar_finds() -> None:
    manifests = render(ROOT / "k8s" / "overlays" / "monitoring")
    [found] = [one for one in manifests if one["kind"] == "ConfigMap" and "labels" in one["metadata"]]
    assert found["metadata"]["labels"] == {"grafana_dashboard": "1"}
    assert json.loads(found["data"]["binlane.json"]) == DASHBOARD
    assert len(found["data"]["binlane.json"]) < 1024 * 1024 / 4, (
        "also within what apply writes into annotations"
    )
