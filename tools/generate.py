"""Write the generated files.

    PYTHONPATH=tools python tools/generate.py [ROOT] [--runbooks URL]

- docs/metrics.md: its table, from the definitions of the metrics.
- docs/command-line.md: the output of `--help` of every command.
- docs/log-events.md: the events that the code logs, with their texts in tools/log_events.yaml.
- docs/configuration-keys.md: every key, from the model of the configuration.
- k8s/components/monitoring/prometheus-rule.yaml: the rules of deploy/alerts.yml, in the Prometheus operator's
  form.
- k8s/components/monitoring/inhibition.yaml: the inhibition rules of deploy/alertmanager.yml, in its form.
- k8s/chart/files: the manifests of the base and the components, from which the Helm chart's templates begin.

With `--runbooks`, the alerts' `runbook_url` first gets this address: the page of the runbooks on your site
(`make docs` builds it) or in your repository.
"""

from __future__ import annotations

import argparse
import re
from collections.abc import Callable
from functools import partial
from pathlib import Path

import command_line_page
import configuration_page
import log_events
import yaml

from worker.observing.metric_definitions import DEFINITIONS

__all__ = ["GENERATED", "stale"]

METRICS = "docs/metrics.md"
COMMAND_LINE = "docs/command-line.md"
KEYS = "docs/configuration-keys.md"
_BEGIN, _END = "<!-- made by tools/generate.py -->\n", "<!-- end -->\n"

RULES = "deploy/alerts.yml"
_RULE_HEAD = f"""\
# Made by tools/generate.py from {RULES}.
apiVersion: monitoring.coreos.com/v1
kind: PrometheusRule
metadata:
  name: binlane
  labels:
    app.kubernetes.io/name: binlane
spec:
"""


ROUTES = "deploy/alertmanager.yml"
_INHIBITION_HEAD = f"""\
# Made by tools/generate.py from {ROUTES}. The operator applies the rules to alerts of this namespace.
# Routes and receivers are yours: examples/kubernetes-shop/receiver.yaml has an example.
apiVersion: monitoring.coreos.com/v1alpha1
kind: AlertmanagerConfig
metadata:
  name: binlane-inhibition
  labels:
    app.kubernetes.io/name: binlane
spec:
"""
_MATCHER = re.compile(r'(\w+) (=~|=) "(.*)"')


def prometheus_rule(root: Path) -> str:
    """Return the rules, indented under `spec`, with their comments."""
    lines = (root / RULES).read_text().splitlines()
    return _RULE_HEAD + "\n".join(f"  {line}" if line else "" for line in lines) + "\n"


def inhibition(root: Path) -> str:
    """Return the inhibition rules in the operator's form. Raises ValueError for another form of a matcher."""

    def matchers(texts: list[str]) -> list[dict[str, str]]:
        found = [_MATCHER.fullmatch(text) for text in texts]
        if not all(found):
            raise ValueError(f'{ROUTES}: a matcher must look like NAME = "VALUE" or NAME =~ "VALUE": {texts}')
        # An equals sign is the default, and kustomize writes it in a way that YAML 1.1 does not read.
        kinds = {"=": {}, "=~": {"matchType": "=~"}}
        return [{"name": one[1], **kinds[one[2]], "value": one[3]} for one in found if one]

    rules = [
        {
            "sourceMatch": matchers(rule["source_matchers"]),
            "targetMatch": matchers(rule["target_matchers"]),
            "equal": rule["equal"],
        }
        for rule in yaml.safe_load((root / ROUTES).read_text())["inhibit_rules"]
    ]
    lines = yaml.safe_dump({"inhibitRules": rules}, sort_keys=False, width=1000).splitlines()
    return _INHIBITION_HEAD + "".join(f"  {line}\n" for line in lines)


def set_runbooks(root: Path, url: str) -> None:
    """Write another address before the `#` of each `runbook_url`."""
    path = root / RULES
    text = re.sub(r"(runbook_url: )[^#\n]*#", lambda found: f"{found[1]}{url}#", path.read_text())
    path.write_text(text)


def markdown_table() -> str:
    """Format the table of docs/metrics.md."""
    rows = ["| metric | kind | labels | meaning |", "|---|---|---|---|"]
    for entry in DEFINITIONS:
        labels = ", ".join(f"`{label}`" for label in entry.labels)
        rows.append(f"| `{entry.name}` | {entry.kind} | {labels} | {entry.help} |")
    return "\n".join(rows) + "\n"


def metrics_page(root: Path) -> str:
    """Return the page with a new table. Raises ValueError if the marks around the table are missing."""
    before, begin, rest = (root / METRICS).read_text().partition(_BEGIN)
    _, end, after = rest.partition(_END)
    if not (begin and end):
        raise ValueError(f"{METRICS}: its table must stand between {_BEGIN!r} and {_END!r}")
    return f"{before}{begin}\n{markdown_table()}\n{end}{after}"


CHART = "k8s/chart/files"
CHARTED = {
    "binlane.yaml": "base/binlane.yaml",
    "dashboard.json": "components/monitoring/dashboard.json",
    "deployment.yaml": "base/deployment.yaml",
    "driver-service.yaml": "components/spark-on-kubernetes/service.yaml",
    "executor-policy.yaml": "components/spark-on-kubernetes/network-policy.yaml",
    "executor.yaml": "components/spark-on-kubernetes/executor.yaml",
    "inhibition.yaml": "components/monitoring/inhibition.yaml",
    "network-policy.yaml": "components/network-policy/network-policy.yaml",
    "pod-disruption-budget.yaml": "base/pod-disruption-budget.yaml",
    "pod-monitor.yaml": "components/monitoring/pod-monitor.yaml",
    "pods-service.yaml": "components/statefulset/service.yaml",
    "prometheus-rule.yaml": "components/monitoring/prometheus-rule.yaml",
    "role.yaml": "components/spark-on-kubernetes/role.yaml",
    "scaled-object.yaml": "components/keda/scaled-object.yaml",
    "service-account.yaml": "base/service-account.yaml",
    "service.yaml": "base/service.yaml",
}
"""{file of the chart: the file in k8s/ that it is a copy of}. Helm reads no file outside its chart."""


def charted(root: Path, file: str) -> str:
    """Return the text of a file in k8s/, also if that one is generated and not written yet."""
    source = f"k8s/{file}"
    return GENERATED[source](root) if source in GENERATED else (root / source).read_text()


GENERATED: dict[str, Callable[[Path], str]] = {
    METRICS: metrics_page,
    COMMAND_LINE: lambda root: command_line_page.page(),
    "docs/log-events.md": lambda root: log_events.page(),
    KEYS: lambda root: configuration_page.page(),
    "k8s/components/monitoring/inhibition.yaml": inhibition,
    "k8s/components/monitoring/prometheus-rule.yaml": prometheus_rule,
    **{f"{CHART}/{name}": partial(charted, file=file) for name, file in CHARTED.items()},
}
"""{file: the function that generates its text for a project folder}"""


def stale(root: Path) -> list[str]:
    """Return the generated files under `root` that are not up to date."""
    return [
        name
        for name, make in GENERATED.items()
        if not (root / name).exists() or (root / name).read_text() != make(root)
    ]


def main() -> int:
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    default = Path(__file__).parents[1]
    parser.add_argument("root", nargs="?", type=Path, default=default, metavar="ROOT", help="the project")
    parser.add_argument("--runbooks", metavar="URL", help="the address of the page of the runbooks")
    arguments = parser.parse_args()
    root = arguments.root
    if arguments.runbooks:
        set_runbooks(root, arguments.runbooks)
    for name, make in GENERATED.items():
        (root / name).write_text(make(root))
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
