"""Dashboards, alert rules and scalers that the project ships."""

from __future__ import annotations

import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import click
import pytest
import yaml

from pyasynq.cli.commands import main
from pyasynq.metrics.families import FAMILIES, MetricType
from tools.monitoring.alerts import ALERTS
from tools.monitoring.build import build_page
from tools.monitoring.dashboards import DASHBOARDS, build_dashboard
from tools.monitoring.scaling import LOAD

if TYPE_CHECKING:
    from tools.monitoring.alert_rule import Alert

ROOT = Path(__file__).parent.parent.parent.parent
EXPRESSIONS = [
    *(alert.expression for alert in ALERTS),
    *(line.expression for one in DASHBOARDS for panel in one.panels for line in panel.lines),
    LOAD,
]


@pytest.mark.parametrize("expression", EXPRESSIONS)
def test_each_metric_of_an_expression_exists_with_its_labels(expression: str) -> None:
    """The labels come from the table that the collectors use."""
    metrics = re.findall(r"\b(py?asynq_\w+|asynq_\w+)(?:\{([^}]*)\})?", expression)
    assert metrics
    for name, matchers in metrics:
        base = re.sub(r"_(bucket|count|sum)$", "", name)
        family = FAMILIES.get(name) or FAMILIES[base]
        assert name == family.name or family.kind is MetricType.HISTOGRAM
        assert set(re.findall(r"(\w+)\s*[=!]", matchers)) <= set(family.labels)


@pytest.mark.parametrize("alert", ALERTS, ids=lambda one: one.name)
def test_each_page_of_an_alert_names_commands_that_exist(alert: Alert) -> None:
    """The options in the commands exist too."""
    for text in re.findall(r"`pyasynq ([^`]+)`", build_page(alert)):
        command: Any = main
        words = re.findall(r"'[^']*'|\S+", text)
        context = click.Context(command, info_name="pyasynq")
        for word in words:
            if isinstance(command, click.Group):
                found = command.get_command(context, word)
                assert found is not None, text
                command, context = found, click.Context(found, parent=context, info_name=word)
        options = {
            one for parameter in command.params for one in (*parameter.opts, *parameter.secondary_opts)
        }
        assert {word for word in words if word.startswith("-")} <= options, text


@pytest.mark.parametrize("dashboard", DASHBOARDS, ids=lambda one: one.uid)
def test_panels_of_a_dashboard_do_not_overlap(dashboard: Any) -> None:
    """Each has its place within 24 columns, a number, and a series at least."""
    panels = build_dashboard(dashboard)["panels"]
    cells = [
        (x, y)
        for panel in panels
        for x in range(panel["gridPos"]["x"], panel["gridPos"]["x"] + panel["gridPos"]["w"])
        for y in range(panel["gridPos"]["y"], panel["gridPos"]["y"] + panel["gridPos"]["h"])
    ]
    assert len(cells) == len(set(cells))
    assert max(x for x, _ in cells) < 24
    assert all(panel["targets"] for panel in panels)
    assert len(panels) == len({panel["id"] for panel in panels})


@pytest.mark.parametrize(
    "path", sorted((ROOT / "monitoring" / "keda").glob("*.yaml")), ids=lambda one: one.stem
)
def test_scalers_have_what_keda_requires(path: Path) -> None:
    """Required metadata of each trigger, as texts."""
    scaler = yaml.safe_load(path.read_text("utf-8"))
    assert ("keda.sh/v1alpha1", "ScaledObject") == (scaler["apiVersion"], scaler["kind"])
    [trigger] = scaler["spec"]["triggers"]
    required = {
        "redis": {"address", "listName", "listLength"},
        "prometheus": {"serverAddress", "query", "threshold"},
        "metrics-api": {"url", "valueLocation", "targetValue"},
    }
    assert required[trigger["type"]] <= trigger["metadata"].keys()
    assert all(isinstance(value, str) for value in trigger["metadata"].values())
