"""Dashboards for Grafana: panels and their PromQL."""

from __future__ import annotations

from typing import Any, Final

from tools.monitoring.panels import Dashboard, Line, Panel, quantiles, rate
from tools.monitoring.service_dashboard import SERVICE_DASHBOARD

_WIDTH: Final = 24
_HEIGHT: Final = 8
_WITH_EXEMPLARS: Final = ("pyasynq_task_run_seconds_bucket", "pyasynq_task_wait_seconds_bucket")
_SOURCE: Final = {"type": "prometheus", "uid": "${datasource}"}


_FINISHED: Final = "pyasynq_tasks_finished_total"
_QUEUE: Final = 'queue=~"$queue"'
_TYPE: Final = 'queue=~"$queue",type=~"$type"'

DASHBOARDS: Final = (
    Dashboard(
        "pyasynq-overview",
        "pyasynq: overview",
        {},
        (
            Panel(
                "Waiting tasks by queue",
                (
                    Line(
                        'sum by (queue) (pyasynq_queue_tasks{state="pending"})'
                        " + on (queue) sum by (queue) (pyasynq_queue_due_tasks)",
                        "{{queue}}",
                    ),
                ),
                text="Pending tasks, and those that are due and not forwarded.",
                stacks=True,
            ),
            Panel(
                "Oldest pending task",
                (Line("max by (queue) (asynq_queue_latency_seconds)", "{{queue}}"),),
                "s",
            ),
            Panel(
                "Attempts a second",
                (Line(rate("asynq_tasks_processed_total", "queue"), "{{queue}}"),),
                "ops",
                "From Redis, so workers in Go are included.",
                stacks=True,
            ),
            Panel(
                "Share of failures",
                (
                    Line(
                        rate("asynq_tasks_failed_total", "queue")
                        + f" / ({rate('asynq_tasks_processed_total', 'queue')} > 0)",
                        "{{queue}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Load: tasks for each slot",
                (Line("max by (queue) (pyasynq_queue_load)", "{{queue}}"),),
                text="Above 1, tasks wait for slots.",
            ),
            Panel(
                "Busy slots",
                (
                    Line(
                        rate("pyasynq_slots_busy_seconds_total", "job") + " / sum by (job) (pyasynq_slots)",
                        "{{job}}",
                    ),
                ),
                "percentunit",
            ),
            Panel(
                "Tasks by state",
                (Line("sum by (state) (pyasynq_queue_tasks)", "{{state}}"),),
                stacks=True,
            ),
            Panel(
                "Servers and processes",
                (
                    Line("sum by (engine) (pyasynq_servers)", "servers {{engine}}"),
                    Line("sum by (state) (pyasynq_worker_processes)", "processes {{state}}"),
                ),
            ),
            Panel(
                "Deaths of workers, and tasks put back",
                (
                    Line("sum(increase(pyasynq_worker_deaths_total[$__rate_interval]))", "deaths"),
                    Line("sum(increase(pyasynq_recovered_total[$__rate_interval]))", "put back"),
                    Line("sum(increase(pyasynq_poisoned_total[$__rate_interval]))", "archived as poison"),
                ),
            ),
            Panel(
                "Redis",
                (
                    Line("pyasynq_redis_memory_used_bytes", "memory"),
                    Line("pyasynq_redis_memory_max_bytes > 0", "limit"),
                ),
                "bytes",
            ),
            Panel(
                "Exchanges with Redis",
                (
                    Line(
                        f"histogram_quantile(0.95, {rate('pyasynq_redis_roundtrip_seconds_bucket', 'le')})",
                        "round trip p95",
                    ),
                    Line(
                        f"histogram_quantile(0.95, {rate('pyasynq_loop_blocked_seconds_bucket', 'le')})",
                        "event loop late p95",
                    ),
                ),
                "s",
            ),
            Panel(
                "Outcomes that are not written yet",
                (Line("sum by (instance) (pyasynq_unwritten_outcomes)", "{{instance}}"),),
            ),
        ),
    ),
    Dashboard(
        "pyasynq-queue",
        "pyasynq: queue",
        {"queue": "asynq_queue_size"},
        (
            Panel(
                "Tasks by state",
                (Line(f"sum by (state) (pyasynq_queue_tasks{{{_QUEUE}}})", "{{state}}"),),
                stacks=True,
            ),
            Panel(
                "Oldest pending task",
                (Line(f"max by (queue) (asynq_queue_latency_seconds{{{_QUEUE}}})", "{{queue}}"),),
                "s",
            ),
            Panel(
                "Attempts by outcome",
                (
                    Line(
                        rate(_FINISHED, "outcome", _QUEUE),
                        "{{outcome}}",
                    ),
                ),
                "ops",
                stacks=True,
            ),
            Panel("Waits", quantiles("pyasynq_task_wait_seconds", "queue", _QUEUE), "s"),
            Panel("Run times", quantiles("pyasynq_task_run_seconds", "queue", _QUEUE), "s"),
            Panel(
                "Running, slots and consumers",
                (
                    Line(f"sum by (queue) (pyasynq_tasks_running{{{_QUEUE}}})", "running"),
                    Line(f"max by (queue) (pyasynq_queue_slots{{{_QUEUE}}})", "slots"),
                    Line(f"max by (queue) (pyasynq_queue_consumers{{{_QUEUE}}})", "consumers"),
                ),
            ),
            Panel(
                "Trouble",
                tuple(
                    Line(f"sum by (queue) (increase({name}{{{_QUEUE}}}[$__rate_interval]))", legend)
                    for name, legend in (
                        ("pyasynq_timeouts_total", "timeouts"),
                        ("pyasynq_lease_losses_total", "lost leases"),
                        ("pyasynq_recovered_total", "put back"),
                        ("pyasynq_archive_trimmed_total", "trimmed"),
                    )
                ),
            ),
            Panel(
                "Memory in Redis, estimated",
                (Line(f"max by (queue) (asynq_queue_memory_usage_approx_bytes{{{_QUEUE}}})", "{{queue}}"),),
                "bytes",
            ),
        ),
    ),
    Dashboard(
        "pyasynq-type",
        "pyasynq: task type",
        {"queue": _FINISHED, "type": "pyasynq_tasks_finished_total"},
        (
            Panel(
                "Attempts by type",
                (
                    Line(
                        rate(_FINISHED, "type", _TYPE),
                        "{{type}}",
                    ),
                ),
                "ops",
                stacks=True,
            ),
            Panel(
                "Share that does not succeed at once",
                (
                    Line(
                        rate(_FINISHED, "type", f'{_TYPE},outcome=~"retried|archived"')
                        + f" / ({rate(_FINISHED, 'type', _TYPE)} > 0)",
                        "{{type}}",
                    ),
                ),
                "percentunit",
            ),
            Panel("Run times", quantiles("pyasynq_task_run_seconds", "type", _TYPE), "s"),
            Panel("Waits", quantiles("pyasynq_task_wait_seconds", "type", _TYPE), "s"),
            Panel(
                "Slots that a type keeps busy",
                (
                    Line(
                        rate("pyasynq_task_run_seconds_sum", "type", _TYPE),
                        "{{type}}",
                    ),
                ),
                text="Seconds of run time a second: where more slots, or faster code, would help.",
                stacks=True,
            ),
            Panel(
                "Outcomes",
                (
                    Line(
                        rate(_FINISHED, "outcome", _TYPE),
                        "{{outcome}}",
                    ),
                ),
                "ops",
                stacks=True,
            ),
        ),
    ),
    SERVICE_DASHBOARD,
)


def build_dashboard(dashboard: Dashboard) -> dict[str, Any]:
    """Return a dashboard as Grafana imports it."""
    return {
        "uid": dashboard.uid,
        "title": dashboard.title,
        "tags": ["pyasynq"],
        "schemaVersion": 39,
        "editable": True,
        "graphTooltip": 1,
        "refresh": "30s",
        "time": {"from": "now-3h", "to": "now"},
        "timezone": "",
        "templating": {"list": [_datasource(), *(_variable(*one) for one in dashboard.variables.items())]},
        "annotations": {"list": []},
        "panels": list(_place(dashboard.panels)),
    }


def _datasource() -> dict[str, Any]:
    return {
        "name": "datasource",
        "type": "datasource",
        "query": "prometheus",
        "label": "Prometheus",
        "hide": 0,
    }


def _variable(label: str, metric: str) -> dict[str, Any]:
    query = f"label_values({metric}, {label})"
    return {
        "name": label,
        "type": "query",
        "label": label.capitalize(),
        "datasource": _SOURCE,
        "query": {"query": query, "refId": label},
        "definition": query,
        "includeAll": True,
        "allValue": ".*",
        "multi": True,
        "refresh": 2,
        "sort": 1,
        "current": {"text": "All", "value": "$__all"},
    }


def _place(panels: tuple[Panel, ...]) -> list[dict[str, Any]]:
    placed = []
    x = y = 0
    for number, panel in enumerate(panels, 1):
        if x + panel.columns > _WIDTH:
            x, y = 0, y + _HEIGHT
        placed.append(_panel(number, panel, {"x": x, "y": y, "w": panel.columns, "h": _HEIGHT}))
        x += panel.columns
    return placed


def _panel(number: int, panel: Panel, place: dict[str, int]) -> dict[str, Any]:
    custom = {
        "drawStyle": "line",
        "fillOpacity": 20 if panel.stacks else 0,
        "showPoints": "never",
        "stacking": {"mode": "normal" if panel.stacks else "none", "group": "A"},
    }
    return {
        "id": number,
        "type": "timeseries",
        "title": panel.title,
        "description": panel.text,
        "datasource": _SOURCE,
        "gridPos": place,
        "fieldConfig": {"defaults": {"unit": panel.unit, "min": 0, "custom": custom}, "overrides": []},
        "options": {
            "legend": {"displayMode": "list", "placement": "bottom", "showLegend": True},
            "tooltip": {"mode": "multi", "sort": "desc"},
        },
        "targets": [
            {
                "refId": chr(ord("A") + at),
                "datasource": _SOURCE,
                "expr": line.expression,
                "legendFormat": line.legend,
                "range": True,
            }
            | ({"exemplar": True} if any(name in line.expression for name in _WITH_EXEMPLARS) else {})
            for at, line in enumerate(panel.lines)
        ],
    }
