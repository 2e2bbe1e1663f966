"""Prometheus for tests: scrapes every second what it is given."""

from __future__ import annotations

import json
import re
from typing import Any, ClassVar

import plain_http
import yaml
from servers.server_process import HOST, ServerProcess

__all__ = ["PrometheusNode", "sped_up"]

_SECONDS = {"s": 1, "m": 60, "h": 3600, "d": 86_400}
_LEAST = 4
"""Seconds: fewer hold too few scrapes."""


def sped_up(rules: dict[str, Any]) -> dict[str, Any]:
    """Rules of which a minute takes a second: windows, waits, and thresholds of what is counted in seconds.
    Records are not that fast: 100,000 of them count as 100."""

    def window(found: re.Match[str]) -> str:
        return f"[{_seconds(found[1])}s]"

    groups = []
    for group in rules["groups"]:
        changed = []
        for rule in group["rules"]:
            expr = re.sub(r"\[(\w+)\]", window, rule["expr"])
            expr = re.sub(r"offset (\w+)", lambda found: f"offset {_seconds(found[1])}s", expr)
            expr = re.sub(r"(seconds\)?) > (\d+)", lambda found: f"{found[1]} > {int(found[2]) / 60:g}", expr)
            expr = re.sub(r", (\d+)\) > (\d+)", _sped_up_forecast, expr)
            one = {**rule, "expr": expr.replace("> 100000", "> 100")}
            if "for" in one:
                one["for"] = f"{_seconds(one['for'])}s"
            changed.append(one)
        groups.append({**group, "rules": changed})
    return {"groups": groups}


def _sped_up_forecast(found: re.Match[str]) -> str:
    """How far predict_linear looks ahead, and its threshold."""
    return f", {int(found[1]) / 60:g}) > {int(found[2]) / 60:g}"


def _seconds(duration: str) -> int:
    return max(_LEAST, int(duration[:-1]) * _SECONDS[duration[-1]] // 60)


class PrometheusNode(ServerProcess):
    """A Prometheus with these rules. `scrape` says what it looks at."""

    package: ClassVar[str] = "prometheus"

    def __init__(
        self, rules: dict[str, Any], port: int | None = None, *, alertmanager: int | None = None
    ) -> None:
        """`alertmanager`: the port of the one that gets the alerts."""
        super().__init__(port)
        self._rules = rules
        self._alertmanager = alertmanager
        self.scrape({})

    @property
    def url(self) -> str:
        return f"http://{HOST}:{self.port}"

    def scrape(self, targets: dict[str, str], **labels: str) -> None:
        """From now on these, with these labels: {the label `instance`: host:port}."""
        found = [
            {"targets": [place], "labels": {"instance": name, **labels}} for name, place in targets.items()
        ]
        self.write("targets.json", json.dumps(found))

    def command(self) -> list[str]:
        rules = self.write("rules.yml", yaml.safe_dump(self._rules))
        config: dict[str, Any] = {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s", "scrape_timeout": "1s"},
            "rule_files": [str(rules)],
            "scrape_configs": [
                {
                    "job_name": "binlane",
                    "file_sd_configs": [
                        {"files": [str(self.directory / "targets.json")], "refresh_interval": "1s"}
                    ],
                }
            ],
        }
        if self._alertmanager is not None:
            targets = [{"targets": [f"{HOST}:{self._alertmanager}"]}]
            config["alerting"] = {"alertmanagers": [{"static_configs": targets}]}
        return [
            self.program("prometheus"),
            f"--config.file={self.write('prometheus.yml', yaml.safe_dump(config))}",
            f"--storage.tsdb.path={self.directory / 'data'}",
            f"--web.listen-address={HOST}:{self.port}",
            "--log.level=warn",
        ]

    def ping(self) -> bool:
        return plain_http.get(f"{self.url}/-/ready", timeout=2).status_code == 200

    def query(self, expr: str) -> list[dict[str, Any]]:
        """The series of an instant query: `metric` (labels) and `value`. AssertionError with what it says."""
        answer = plain_http.get(f"{self.url}/api/v1/query", params={"query": expr}, timeout=10).json()
        assert answer["status"] == "success", f"{expr}: {answer.get('error')}"
        found: list[dict[str, Any]] = answer["data"]["result"]
        return found

    def value(self, expr: str) -> float | None:
        """Of a query with one series; None: it has none."""
        found = self.query(expr)
        assert len(found) <= 1, found
        return float(found[0]["value"][1]) if found else None

    def firing(self) -> dict[str, dict[str, str]]:
        """{alert: the annotations of one of it}."""
        answer = plain_http.get(f"{self.url}/api/v1/alerts", timeout=10).json()
        return {
            each["labels"]["alertname"]: each["annotations"]
            for each in answer["data"]["alerts"]
            if each["state"] == "firing"
        }
