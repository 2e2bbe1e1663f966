"""The parts of KEDA's and the Prometheus operator's resources that this project uses, as strict models.

Kubernetes' own schemas do not include them. A key that is missing here is a fault: it is either misspelt, or
new to the project and must be added. Sources: KEDA's ScaledObject and prometheus scaler
(https://keda.sh/docs/), and the Prometheus operator's reference
(https://prometheus-operator.dev/docs/api-reference/api/).
"""

from __future__ import annotations

from typing import Any, Literal

from deployment_models import AlertRules, Duration, Strict
from pydantic import Field, ValidationError, model_validator

__all__ = ["custom_faults", "is_custom"]


class Metadata(Strict):
    name: str
    namespace: str | None = None
    labels: dict[str, str] = Field(default_factory=dict)


class LabelSelector(Strict):
    match_labels: dict[str, str] = Field(alias="matchLabels", min_length=1)


class SecretKey(Strict):
    name: str
    key: str


class Authorization(Strict):
    credentials: SecretKey


class OfSecret(Strict):
    secret: SecretKey


class TlsConfig(Strict):
    ca: OfSecret
    server_name: str | None = Field(default=None, alias="serverName")


class MetricsEndpoint(Strict):
    port: str
    path: str
    interval: Duration
    scheme: Literal["http", "https"] = "http"
    authorization: Authorization | None = None
    tls_config: TlsConfig | None = Field(default=None, alias="tlsConfig")


class Relabeling(Strict):
    source_labels: list[str] = Field(default_factory=list, alias="sourceLabels")
    regex: str = "(.*)"
    action: Literal["replace", "keep"] = "replace"
    target_label: str | None = Field(default=None, alias="targetLabel")
    replacement: str | None = None


class ServiceEndpoint(MetricsEndpoint):
    relabelings: list[Relabeling] = Field(default_factory=list)


class PodMonitorSpec(Strict):
    selector: LabelSelector
    endpoints: list[MetricsEndpoint] = Field(alias="podMetricsEndpoints", min_length=1)


class PodMonitor(Strict):
    api_version: Literal["monitoring.coreos.com/v1"] = Field(alias="apiVersion")
    kind: Literal["PodMonitor"]
    metadata: Metadata
    spec: PodMonitorSpec


class ServiceMonitorSpec(Strict):
    selector: LabelSelector
    endpoints: list[ServiceEndpoint] = Field(min_length=1)


class ServiceMonitor(Strict):
    api_version: Literal["monitoring.coreos.com/v1"] = Field(alias="apiVersion")
    kind: Literal["ServiceMonitor"]
    metadata: Metadata
    spec: ServiceMonitorSpec


class PrometheusRule(Strict):
    api_version: Literal["monitoring.coreos.com/v1"] = Field(alias="apiVersion")
    kind: Literal["PrometheusRule"]
    metadata: Metadata
    spec: AlertRules


class ScaleTarget(Strict):
    name: str
    kind: Literal["Deployment", "StatefulSet"] = "Deployment"


class ScalingPolicy(Strict):
    type: Literal["Pods", "Percent"]
    value: int = Field(gt=0)
    period: int = Field(alias="periodSeconds", gt=0, le=1800)


class ScalingRules(Strict):
    window: int = Field(alias="stabilizationWindowSeconds", ge=0, le=3600)
    policies: list[ScalingPolicy] = Field(min_length=1)


class ScalingBehavior(Strict):
    up: ScalingRules = Field(alias="scaleUp")
    down: ScalingRules = Field(alias="scaleDown")


class AutoscalerConfig(Strict):
    behavior: ScalingBehavior


class Advanced(Strict):
    autoscaler: AutoscalerConfig = Field(alias="horizontalPodAutoscalerConfig")


class Fallback(Strict):
    failures: int = Field(alias="failureThreshold", gt=0)
    replicas: int = Field(gt=0)
    behavior: Literal["static", "currentReplicas", "currentReplicasIfHigher", "currentReplicasIfLower"]


class PrometheusTrigger(Strict):
    """KEDA accepts only text, even for numbers."""

    server: str = Field(alias="serverAddress", pattern="^https?://")
    query: str
    threshold: str = Field(pattern=r"^\d+$")
    ignore_null: Literal["false"] = Field(alias="ignoreNullValues")
    """Otherwise missing values would count as no work."""


class Trigger(Strict):
    type: Literal["prometheus"]
    metadata: PrometheusTrigger


class ScaledObjectSpec(Strict):
    target: ScaleTarget = Field(alias="scaleTargetRef")
    polling: int = Field(alias="pollingInterval", gt=0)
    least: int = Field(alias="minReplicaCount", gt=0)
    """At least one, because without a worker there are no values to scale by."""
    most: int = Field(alias="maxReplicaCount", gt=0)
    fallback: Fallback
    advanced: Advanced
    triggers: list[Trigger] = Field(min_length=1)


class ScaledObject(Strict):
    api_version: Literal["keda.sh/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["ScaledObject"]
    metadata: Metadata
    spec: ScaledObjectSpec


class Matcher(Strict):
    name: str
    value: str
    match_type: Literal["=", "=~"] = Field(default="=", alias="matchType")


class Inhibition(Strict):
    source: list[Matcher] = Field(alias="sourceMatch", min_length=1)
    target: list[Matcher] = Field(alias="targetMatch", min_length=1)
    equal: list[str] = Field(min_length=1)


class AlertRoute(Strict):
    receiver: str
    matchers: list[Matcher] = Field(min_length=1)
    repeat_interval: Duration | None = Field(default=None, alias="repeatInterval")


class FirstRoute(Strict):
    receiver: str
    group_by: list[str] = Field(alias="groupBy")
    group_wait: Duration = Field(alias="groupWait")
    group_interval: Duration = Field(alias="groupInterval")
    repeat_interval: Duration = Field(alias="repeatInterval")
    routes: list[AlertRoute] = Field(default_factory=list)


class Webhook(Strict):
    url: SecretKey = Field(alias="urlSecret")
    send_resolved: bool = Field(alias="sendResolved")


class Receiver(Strict):
    name: str
    webhooks: list[Webhook] = Field(alias="webhookConfigs", min_length=1)


class AlertmanagerConfigSpec(Strict):
    route: FirstRoute | None = None
    receivers: list[Receiver] = Field(default_factory=list)
    inhibit_rules: list[Inhibition] = Field(default_factory=list, alias="inhibitRules")

    @model_validator(mode="after")
    def every_route_leads_somewhere(self) -> AlertmanagerConfigSpec:
        known = {each.name for each in self.receivers}
        for route in (self.route, *self.route.routes) if self.route else ():
            if route.receiver not in known:
                raise ValueError(f"there is no receiver {route.receiver}")
        return self


class AlertmanagerConfig(Strict):
    api_version: Literal["monitoring.coreos.com/v1alpha1"] = Field(alias="apiVersion")
    kind: Literal["AlertmanagerConfig"]
    metadata: Metadata
    spec: AlertmanagerConfigSpec


MODELS: dict[str, type[Strict]] = {
    "AlertmanagerConfig": AlertmanagerConfig,
    "PodMonitor": PodMonitor,
    "PrometheusRule": PrometheusRule,
    "ScaledObject": ScaledObject,
    "ServiceMonitor": ServiceMonitor,
}


def is_custom(manifest: dict[str, Any]) -> bool:
    return manifest.get("kind") in MODELS


def custom_faults(manifest: dict[str, Any]) -> list[str]:
    """Return the faults of a manifest of one of these kinds, each as `path: what`."""
    try:
        MODELS[manifest["kind"]].model_validate(manifest)
    except ValidationError as error:
        found = error.errors(include_url=False)
        return [f"{'.'.join(str(part) for part in one['loc'])}: {one['msg']}" for one in found]
    return []
