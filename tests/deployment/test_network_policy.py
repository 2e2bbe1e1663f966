"""The network policy lets a worker reach what the documentation tells it to reach."""

from __future__ import annotations

import re
from collections.abc import Iterator

import yaml
from helm_chart import ROOT

POLICY = ROOT / "k8s" / "components" / "network-policy" / "network-policy.yaml"
ADDRESS = re.compile(r"\b(\w[\w+-]*)://(?:[\w$:{}-]+@)?([\w.-]+):(\d{2,5})\b")
HERE = ("localhost", "127.0.0.1", "0.0.0.0", "WORKER", "worker-0")
NOT_ALLOWED = {"spark"}
"""A cluster of Spark's own connects to the driver in turn: docs/deployment.md says so."""


def addresses() -> Iterator[tuple[str, int]]:
    """(where, port) of each service that a page names. Those of docs/configuration.md are of the form."""
    for page in [*(ROOT / "docs").glob("*.md"), *(ROOT / "docs" / "handlers").glob("*.md")]:
        for scheme, host, port in ADDRESS.findall(page.read_text()):
            if host not in HERE and scheme not in NOT_ALLOWED and page.name != "configuration.md":
                yield f"{page.name}: {scheme}://{host}:{port}", int(port)


def test_each_documented_address_is_allowed() -> None:
    rules = yaml.safe_load(POLICY.read_text())["spec"]["egress"]
    ports = [
        range(each["port"], each.get("endPort", each["port"]) + 1)
        for rule in rules
        if "to" not in rule
        for each in rule["ports"]
    ]
    found = list(addresses())
    assert len(found) > 10
    assert sorted({where for where, port in found if not any(port in each for each in ports)}) == []
