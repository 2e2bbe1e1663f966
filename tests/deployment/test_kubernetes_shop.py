"""The example of a whole deployment: what it says of secrets, tables and alerts fits together."""

from __future__ import annotations

import base64
import re
from pathlib import Path
from typing import Any

import pytest
import yaml
from check_manifests import EXAMPLE, check_folder, render
from test_alerts import ALERTS, NAMESPACE, WRONG, case, evaluated

ROOT = Path(__file__).parents[2]
MANIFESTS = render(ROOT / EXAMPLE)


def one(kind: str, begin: str = "") -> dict[str, Any]:
    [found] = [
        each for each in MANIFESTS if each["kind"] == kind and each["metadata"]["name"].startswith(begin)
    ]
    return found


[ROUTES] = [each for each in MANIFESTS if each["kind"] == "AlertmanagerConfig" and "route" in each["spec"]]
POD = one("StatefulSet")["spec"]["template"]["spec"]


def configuration() -> str:
    [text] = [each["data"]["binlane.yaml"] for each in MANIFESTS if "binlane.yaml" in each.get("data", {})]
    return str(text)


def test_every_secret_of_the_configuration_is_a_file_of_the_mounted_secret() -> None:
    [volume] = [each for each in POD["volumes"] if "secret" in each]
    [container] = POD["containers"]
    mounts = {each["name"]: Path(each["mountPath"]) for each in container["volumeMounts"]}
    secret = one("Secret", "binlane-shop")
    assert secret["metadata"]["name"] == volume["secret"]["secretName"]
    read = re.findall(r"\$\{file:(.*?)\}", configuration())
    assert len(read) == 3
    for path in read:
        inside = Path("/etc/binlane", path)
        assert (inside.parent / ".").resolve() == mounts[volume["name"]]
        assert inside.name in secret["data"]
    asked = [each["valueFrom"]["secretKeyRef"] for each in container["env"] if "secretKeyRef" in str(each)]
    assert [each["key"] in secret["data"] for each in asked] == [True, True]
    used = {Path(path).name for path in read} | {each["key"] for each in asked}
    assert used == set(secret["data"]), "a secret that nobody reads"


def test_no_secret_stands_in_the_configuration_and_those_of_the_example_are_none() -> None:
    secrets = one("Secret", "binlane-shop")["data"].values()
    assert all("change-me" in base64.b64decode(text).decode() for text in secrets)
    assert "change-me" not in configuration()


def test_three_tables_have_three_targets() -> None:
    tables = yaml.safe_load(configuration())["tables"]
    assert [(each["match"], [entry["type"] for entry in each["handlers"]]) for each in tables] == [
        ("shop.orders", ["spark"]),
        ("shop.customers", ["sql"]),
        ("shop.stock", ["redis"]),
    ]


# Each alert, with its namespace: test_alerts.py.
@pytest.mark.parametrize("alerts_told", [1, pytest.param(None, marks=pytest.mark.soak)], ids=["one", "all"])
def test_the_alerts_reach_the_receiver_by_what_they_are_labelled_with(
    tmp_path: Path, promtool: str, alerts_told: int | None
) -> None:
    """The operator adds a matcher to each route: `namespace` is that of the AlertmanagerConfig."""
    spec = ROUTES["spec"]
    rules = one("PrometheusRule")["spec"]
    alerts = {each["alert"]: each for group in rules["groups"] for each in group["rules"] if "alert" in each}
    page = yaml.safe_load((ROOT / EXAMPLE / "runbooks.yaml").read_text())["data"]["url"]
    here = {
        name: rule | {"annotations": rule["annotations"] | {"runbook_url": f"{page}#{name.lower()}"}}
        for name, rule in ALERTS.items()
    }
    assert alerts == here, "what is evaluated here"
    assert ROUTES["metadata"]["namespace"] == NAMESPACE
    severities = {rule["labels"]["severity"] for rule in alerts.values()}
    for route in spec["route"]["routes"]:
        for matcher in route["matchers"]:
            assert matcher["value"] in severities
    matching = f'ALERTS{{alertstate="firing",namespace="{NAMESPACE}"}}'
    counted = f"count by (alertname, namespace, job) ({matching})"
    tested = [{"name": alert, **case(wrong, [alert], counted)} for alert, wrong in WRONG.items()]
    assert evaluated(promtool, tmp_path, *tested[:alerts_told]) == "", "the receiver does not hear an alert"
    for receiver in spec["receivers"]:
        for hook in receiver["webhookConfigs"]:
            assert hook["urlSecret"]["key"] in one("Secret", hook["urlSecret"]["name"])["data"]


def test_its_alertmanager_has_the_routes_and_the_inhibition_of_the_shipped_one() -> None:
    """test_alertmanager.py tries that one."""

    def texts(matchers: list[dict[str, str]]) -> list[str]:
        return [f'{each["name"]} {each.get("matchType", "=")} "{each["value"]}"' for each in matchers]

    shipped = yaml.safe_load((ROOT / "deploy" / "alertmanager.yml").read_text())
    route = ROUTES["spec"]["route"]
    [paging] = route["routes"]
    assert shipped["route"] == {
        "receiver": route["receiver"],
        "group_by": route["groupBy"],
        "group_wait": route["groupWait"],
        "group_interval": route["groupInterval"],
        "repeat_interval": route["repeatInterval"],
        "routes": [
            {
                "receiver": paging["receiver"],
                "matchers": texts(paging["matchers"]),
                "repeat_interval": paging["repeatInterval"],
            }
        ],
    }
    inhibition = one("AlertmanagerConfig", "binlane-inhibition")
    assert inhibition["metadata"]["namespace"] == NAMESPACE
    assert shipped["inhibit_rules"] == [
        {
            "source_matchers": texts(each["sourceMatch"]),
            "target_matchers": texts(each["targetMatch"]),
            "equal": each["equal"],
        }
        for each in inhibition["spec"]["inhibitRules"]
    ]


@pytest.mark.parametrize(
    ("file", "old", "new", "fault"),
    [
        ("receiver.yaml", "- receiver: page", "- receiver: none", "no receiver none"),
        ("runbooks.yaml", "  url:", "  address:", "url"),
        ("receiver.yaml", "urlSecret", "urlSecrets", "urlSecrets"),
        ("binlane/binlane.yaml", "secrets/redis-url", "secrets/redis", "redis"),
        ("binlane/binlane.yaml", "type: sql", "type: sqll", "sqll"),
        ("worker.yaml", "defaultMode", "defaultMod", "defaultMod"),
        ("kustomization.yaml", "secrets/s3-access-key", "secrets/s3-key", "s3-key"),
    ],
)
def test_what_is_wrong_in_it_is_a_fault(shipped: Path, file: str, old: str, new: str, fault: str) -> None:
    path = shipped / EXAMPLE / file
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))
    assert any(fault in line for line in check_folder(shipped, shipped / EXAMPLE))
