"""The parts of Compose and Prometheus files that this project uses, as strict models.

A key that is missing here is a fault: it is either misspelt, or new to the project and must be added.
Sources: the Compose specification (https://github.com/compose-spec/compose-spec) and the configuration
references of Prometheus (https://prometheus.io/docs/prometheus/latest/configuration/) and Alertmanager
(https://prometheus.io/docs/alerting/latest/configuration/).
"""

from __future__ import annotations

from typing import Annotated, Literal

from pydantic import BaseModel, ConfigDict, Field, StringConstraints

__all__ = ["AlertRules", "Alertmanager", "Compose", "Duration", "Prometheus", "Service", "Strict"]

Duration = Annotated[str, StringConstraints(pattern=r"^(\d+(ms|s|m|h|d))+$")]
Port = Annotated[str, StringConstraints(pattern=r"^127\.0\.0\.1:\d{2,5}:\d{2,5}$")]
"""Published only on this machine, because nothing here requires a password."""


class Strict(BaseModel):
    model_config = ConfigDict(extra="forbid", strict=True)


class HealthCheck(Strict):
    test: list[str] = Field(min_length=2)
    interval: Duration
    timeout: Duration
    retries: int = Field(gt=0)


class Dependency(Strict):
    condition: Literal["service_started", "service_healthy", "service_completed_successfully"]


class Service(Strict):
    image: str = Field(pattern=r"^[a-z0-9./-]+:[\w.-]+$")
    build: str | None = None
    entrypoint: list[str] = []
    command: list[str] = []
    working_dir: str | None = None
    environment: dict[str, str] = {}
    ports: list[Port] = []
    volumes: list[str] = []
    depends_on: list[str] | dict[str, Dependency] = []
    healthcheck: HealthCheck | None = None
    stop_grace_period: Duration | None = None
    restart: Literal["no", "always", "on-failure", "unless-stopped"] | None = None
    profiles: list[str] = []


class Compose(Strict):
    name: str
    services: dict[str, Service]
    volumes: dict[str, None]


class Global(Strict):
    scrape_interval: Duration
    evaluation_interval: Duration


class StaticTargets(Strict):
    targets: list[str] = Field(min_length=1)


class ScrapeJob(Strict):
    job_name: str
    static_configs: list[StaticTargets] = Field(min_length=1)


class Prometheus(Strict):
    global_: Global = Field(alias="global")
    rule_files: list[str] = Field(min_length=1)
    scrape_configs: list[ScrapeJob] = Field(min_length=1)


class AlertLabels(Strict):
    severity: Literal["warning", "critical"]


class AlertTexts(Strict):
    runbook_url: str = Field(pattern=r"^https?://[^\s#]+#[a-z]+$")
    summary: str
    description: str | None = None


class AlertRule(Strict):
    name: str = Field(alias="alert", pattern=r"^[A-Z]\w+$")
    expr: str
    for_: Duration | None = Field(default=None, alias="for")
    labels: AlertLabels
    annotations: AlertTexts


class RecordingRule(Strict):
    name: str = Field(alias="record", pattern=r"^binlane:\w+(:\w+)?$")
    expr: str


class RuleGroup(Strict):
    name: str
    rules: list[AlertRule | RecordingRule] = Field(min_length=1)


class AlertRules(Strict):
    groups: list[RuleGroup] = Field(min_length=1)


class RouteOfSome(Strict):
    receiver: str
    matchers: list[str] = Field(min_length=1)
    repeat_interval: Duration


class Route(Strict):
    receiver: str
    group_by: list[str] = Field(min_length=1)
    group_wait: Duration
    group_interval: Duration
    repeat_interval: Duration
    routes: list[RouteOfSome]


class WebhookAddress(Strict):
    url: str = Field(pattern="^https?://")


class Receiver(Strict):
    name: str
    webhook_configs: list[WebhookAddress] = Field(min_length=1)


class InhibitRule(Strict):
    source_matchers: list[str] = Field(min_length=1)
    target_matchers: list[str] = Field(min_length=1)
    equal: list[str] = Field(min_length=1)


class Alertmanager(Strict):
    route: Route
    receivers: list[Receiver] = Field(min_length=1)
    inhibit_rules: list[InhibitRule]
