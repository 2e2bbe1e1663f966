"""Alerts of many deployments: each names its own, and the trouble of one hides none of another."""

from __future__ import annotations

from pathlib import Path

from test_alerts import EVERY_ALERT, NAMESPACE, WELL, WITH_IT, WRONG, evaluated, owner


def test_each_alert_is_of_the_deployment_in_trouble(tmp_path: Path, promtool: str) -> None:
    """A namespace for each trouble, and one where all is well."""

    def of(namespace: str, text: str) -> str:
        text = text.replace(f'namespace="{NAMESPACE}"', f'namespace="{namespace}"')
        return text.replace(f'"{NAMESPACE}/', f'"{namespace}/')

    series = dict(WELL)
    expected = []
    for alert, wrong in WRONG.items():
        namespace = alert.lower()
        series |= {of(namespace, name): text for name, text in {**WELL, **wrong}.items()}
        for each in (alert, *WITH_IT.get(alert, [])):
            expected.append(of(namespace, f'{{alertname="{each}",{owner(each, wrong)}}}'))
    one = {
        "interval": "1m",
        "input_series": [{"series": name, "values": text} for name, text in series.items()],
        "promql_expr_test": [
            {
                "expr": EVERY_ALERT,
                "eval_time": "100m",
                "exp_samples": [{"labels": each, "value": 1} for each in expected],
            }
        ],
    }
    assert evaluated(promtool, tmp_path, one) == ""
