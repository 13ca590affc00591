"""Generated monitoring files: rules, tests of rules, dashboards, scalers and pages."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

import yaml

from tools.monitoring.alerts import ALERTS
from tools.monitoring.dashboards import DASHBOARDS, build_dashboard
from tools.monitoring.scaling import SCALERS

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tools.monitoring.alert_rule import Alert

RULES: Final = "monitoring/alerts.yaml"
RULE_TESTS: Final = "monitoring/alerts_test.yaml"
_MADE: Final = "# Made by tools/generate_monitoring.py; change tools/monitoring and type `make sync`.\n"
_PAGES: Final = "docs/alerts"


def build_files() -> dict[str, str]:
    """Return the text of each file by its path in the project."""
    files = {
        RULES: _MADE + _dump(build_rules()),
        RULE_TESTS: _MADE + _dump(build_rule_tests()),
        f"{_PAGES}/README.md": build_index(),
    }
    for alert in ALERTS:
        files[f"{_PAGES}/{alert.name}.md"] = build_page(alert)
    for dashboard in DASHBOARDS:
        text = json.dumps(build_dashboard(dashboard), indent=2) + "\n"
        files[f"monitoring/grafana/{dashboard.uid}.json"] = text
    for name, scaler in SCALERS.items():
        files[f"monitoring/keda/{name}.yaml"] = _MADE + _dump(scaler)
    return files


def _dump(value: Any) -> str:
    text: str = yaml.safe_dump(value, sort_keys=False, width=1_000, allow_unicode=True)
    return text


def build_rules() -> dict[str, Any]:
    """Return the rule file for Prometheus."""
    return {"groups": [{"name": "pyasynq", "rules": [_rule(alert) for alert in ALERTS]}]}


def _rule(alert: Alert) -> dict[str, Any]:
    return {
        "alert": alert.full_name,
        "expr": alert.expression,
        "for": f"{alert.minutes}m",
        "labels": {"severity": alert.severity},
        "annotations": {"summary": alert.summary, "page": f"{_PAGES}/{alert.name}.md"},
    }


def build_rule_tests() -> dict[str, Any]:
    """Return the tests of the rules, for `promtool test rules`."""
    return {
        "rule_files": ["alerts.yaml"],
        "evaluation_interval": "1m",
        "tests": [_rule_test(alert) for alert in ALERTS],
    }


def _rule_test(alert: Alert) -> dict[str, Any]:
    series = [{"series": name, "values": values} for name, values in alert.case.series.items()]
    firing = {
        "exp_labels": {"severity": alert.severity, **alert.case.labels},
        "exp_annotations": {"summary": alert.case.says, "page": f"{_PAGES}/{alert.name}.md"},
    }
    return {
        "name": alert.full_name,
        "interval": "1m",
        "input_series": series,
        "alert_rule_test": [
            {"eval_time": f"{alert.case.quiet}m", "alertname": alert.full_name, "exp_alerts": []},
            {"eval_time": f"{alert.case.minute}m", "alertname": alert.full_name, "exp_alerts": [firing]},
        ],
    }


def build_index() -> str:
    """Return the page that lists all alerts."""
    rows = [
        f"| [{alert.full_name}]({alert.name}.md) | {alert.severity} | {alert.meaning} |" for alert in ALERTS
    ]
    head = (
        "# Alerts",
        "",
        "After reading this page you know which alerts there are; each has a page that says what to do.",
        "Load `monitoring/alerts.yaml` as a rule file of Prometheus.",
        "The numbers suit most systems; change them in your copy.",
        "",
        "| Alert | Severity | What has happened |",
        "|---|---|---|",
    )
    return "\n".join((*head, *rows)) + "\n"


def build_page(alert: Alert) -> str:
    """Return the page of an alert."""
    return "\n".join(_page_lines(alert)) + "\n"


def _page_lines(alert: Alert) -> Iterator[str]:
    yield f"# {alert.full_name}"
    yield ""
    yield "After reading this page you know what this alert means, and what to do about it."
    yield ""
    yield alert.meaning
    lasting = f" for {alert.minutes} minutes" if alert.minutes else ""
    yield f"The alert fires when this expression is true{lasting}, with severity `{alert.severity}`:"
    yield ""
    yield "```promql"
    yield alert.expression
    yield "```"
    yield ""
    yield "## Likely causes"
    yield ""
    yield from (f"- {cause}" for cause in alert.causes)
    yield ""
    yield "## What to do"
    yield ""
    yield from (f"{number}. {step}" for number, step in enumerate(alert.steps, 1))
