"""Dashboard of the task service: requests, tasks, leases, hosts, commands and doors."""

from __future__ import annotations

from typing import Final

from tools.monitoring.panels import Dashboard, Line, Panel, quantiles, rate

_QUEUE: Final = 'queue=~"$queue"'
_HOST: Final = 'host=~"$host"'
_SERVICE: Final = "pyasynq_service"

SERVICE_DASHBOARD: Final = Dashboard(
    "pyasynq-service",
    "pyasynq: task service",
    {"queue": "pyasynq_service_tasks_total", "host": "pyasynq_service_deliveries_total"},
    (
        Panel(
            "Requests a second by status",
            (Line(rate(f"{_SERVICE}_requests_total", "status"), "{{status}}"),),
            "ops",
            stacks=True,
        ),
        Panel(
            "Time until answers, p95",
            (
                Line(
                    f"histogram_quantile(0.95, {rate(f'{_SERVICE}_request_seconds_bucket', 'le, route')})",
                    "{{route}}",
                ),
            ),
            "s",
            "Requests that wait for tasks or results take as long as they wait.",
        ),
        Panel(
            "New tasks a second by outcome",
            (Line(rate(f"{_SERVICE}_tasks_total", "outcome", _QUEUE), "{{outcome}}"),),
            "ops",
            stacks=True,
        ),
        Panel(
            "Waiting tasks by type",
            (Line(f'sum by (queue) (pyasynq_queue_tasks{{{_QUEUE},state="pending"}})', "{{queue}}"),),
            text="From `pyasynq metrics`. A type of the service is a queue.",
            stacks=True,
        ),
        Panel(
            "Workers by type",
            (
                Line(f"max by (queue) (pyasynq_queue_consumers{{{_QUEUE}}})", "{{queue}}"),
                Line(f"max by (queue) ({_SERVICE}_list_workers{{{_QUEUE}}})", "{{queue}} by lists"),
            ),
            text="Consumers as `pyasynq metrics` counts them: 0 means that no worker takes these tasks.",
        ),
        Panel(
            "Leases held, and requests that wait for tasks",
            (
                Line(f"sum({_SERVICE}_leases_held)", "held"),
                Line(f"sum({_SERVICE}_parked_polls)", "waiting"),
            ),
        ),
        Panel(
            "Leases a second",
            (
                Line(rate(f"{_SERVICE}_leases_total", "", _QUEUE), "leased"),
                Line(rate(f"{_SERVICE}_extends_total", "", _QUEUE), "extended"),
                Line(rate(f"{_SERVICE}_settles_total", "act", _QUEUE), "{{act}}"),
            ),
            "ops",
        ),
        Panel(
            "Lapsed leases, and acts that were refused",
            (
                Line(
                    f"sum by (queue) (increase({_SERVICE}_leases_lapsed_total{{{_QUEUE}}}"
                    "[$__rate_interval]))",
                    "{{queue}} lapsed",
                ),
                Line(
                    f"sum by (reason) (increase({_SERVICE}_acts_refused_total[$__rate_interval]))",
                    "{{reason}}",
                ),
            ),
        ),
        Panel(
            "Requests to hosts a second by status",
            (Line(rate(f"{_SERVICE}_deliveries_total", "host, status", _HOST), "{{host}} {{status}}"),),
            "ops",
            stacks=True,
        ),
        Panel("Answers of hosts", quantiles(f"{_SERVICE}_delivery_seconds", "host", _HOST), "s"),
        Panel(
            "Throttled hosts",
            (Line(f"max by (host) ({_SERVICE}_host_throttled)", "{{host}}"),),
            text="1 while a host has asked to be left alone: its tasks wait, and spend no retries."
            " All hosts by the names of their limits, which may lack the port.",
        ),
        Panel(
            "Commands a second by outcome",
            (Line(rate(f"{_SERVICE}_commands_total", "outcome", _QUEUE), "{{outcome}}"),),
            "ops",
            stacks=True,
        ),
        Panel("Run times of commands", quantiles(f"{_SERVICE}_command_seconds", "queue", _QUEUE), "s"),
        Panel(
            "Running commands, and CPUs that they use",
            (
                Line(f"sum({_SERVICE}_commands_running)", "running"),
                Line(rate(f"{_SERVICE}_command_cpu_seconds_total", "queue", _QUEUE), "{{queue}} CPUs"),
            ),
        ),
        Panel(
            "Commands killed at a limit",
            (
                Line(
                    f"sum by (queue, limit) (increase({_SERVICE}_commands_killed_total{{{_QUEUE}}}"
                    "[$__rate_interval]))",
                    "{{queue}} {{limit}}",
                ),
            ),
        ),
        Panel(
            "Connections and jobs of doors",
            (
                Line(f"sum by (door, role) ({_SERVICE}_door_connections)", "{{door}} {{role}}"),
                Line(f"sum by (door) ({_SERVICE}_door_jobs)", "{{door}} jobs"),
            ),
        ),
    ),
)
