"""Prometheus alert rules for the task service: hosts, commands, leases and requests."""

from __future__ import annotations

from typing import Final

from tools.monitoring.alert_rule import Alert, Case, Condition

_I: Final = 'instance="a"'
_Q: Final = 'instance="a",queue="mail"'
_HOST: Final = 'instance="a",host="billing.example"'

SERVICE_ALERTS: Final = (
    Alert(
        "HostThrottled",
        (Condition("max by (host) (avg_over_time(pyasynq_service_host_throttled[30m]))", "> 0.5"),),
        15,
        "warning",
        "{{ $labels.host }} has asked to be left alone for most of half an hour, and its tasks wait.",
        "A host of the task service answers 429 or 503 again and again, so its tasks are put off.",
        (
            "The service sends more requests than the host or its quota allows.",
            "The host is overloaded, or closed for maintenance.",
        ),
        (
            "Look at the page Deliveries of the dashboard: it shows the newest failed request.",
            "If the host limits requests, give it [limits](../service.md#limits-of-a-host) in the file.",
            "If the host is down, tell the people who run it. Tasks wait, and spend no retries meanwhile.",
            "If the host stays away for long, pause the queue: `pyasynq queue pause QUEUE --for 2h`.",
        ),
        Case(
            {f"pyasynq_service_host_throttled{{{_HOST}}}": "0x10 1x80"},
            40,
            {"host": "billing.example"},
            33,
            "billing.example has asked to be left alone for most of half an hour, and its tasks wait.",
        ),
    ),
    Alert(
        "DeliveriesFailing",
        (
            Condition(
                'sum by (host) (increase(pyasynq_service_deliveries_total{status!="2xx"}[10m]))'
                " / sum by (host) (increase(pyasynq_service_deliveries_total[10m]))",
                "> 0.5",
            ),
            Condition("sum by (host) (increase(pyasynq_service_deliveries_total[10m]))", "> 20"),
        ),
        5,
        "warning",
        "{{ $value | humanizePercentage }} of the requests to {{ $labels.host }} fail.",
        "More than half of the requests to a host failed in ten minutes, and there were more than twenty.",
        (
            "The host is down, or has a fault since a deployment.",
            "Its address, certificate or credentials have changed.",
            "Producers send params that the host refuses.",
        ),
        (
            "Look at the host on the page Deliveries: its status classes, and the newest failed request.",
            "For 4xx compare the request with what the host wants: such tasks are archived, not retried.",
            "If nothing answers, look at its name, port and certificate: see [hosts](../service.md#hosts).",
            "If the host is down, pause the queue, to spend no retries: `pyasynq queue pause QUEUE`.",
            "Afterwards run what was archived: on the page Deliveries, or with `pyasynq task run`.",
        ),
        Case(
            {
                f'pyasynq_service_deliveries_total{{{_HOST},status="2xx"}}': "0+10x30",
                f'pyasynq_service_deliveries_total{{{_HOST},status="5xx"}}': "0+20x30",
                f'pyasynq_service_deliveries_total{{{_HOST},status="none"}}': "0+10x30",
            },
            15,
            {"host": "billing.example"},
            4,
            "75% of the requests to billing.example fail.",
        ),
        joint=" and on (host) ",
    ),
    Alert(
        "CommandsKilled",
        (Condition("sum by (queue, limit) (increase(pyasynq_service_commands_killed_total[1h]))", "> 2"),),
        0,
        "warning",
        "{{ $value | humanize }} commands of {{ $labels.queue }} were killed within an hour"
        " at their limit: {{ $labels.limit }}.",
        "Commands of the task service reach a limit of their type and are killed. Their tasks are retried.",
        (
            "The limit is lower than the work: inputs have grown.",
            "The program hangs, leaks memory or loops since a deployment.",
            "The host is overloaded, so that commands take longer than their timeout.",
        ),
        (
            "Look at the page Commands of the dashboard: time, CPU, memory and the last output of each.",
            "Group the failures: `pyasynq errors QUEUE`.",
            "If one input is the cause, archive its task: `pyasynq task archive`. Retries would fail, too.",
            "If the work has grown, raise `timeout` or `limits` in the file of the service, and send it HUP.",
            "The page on [isolation](../service.md#isolation) says what each limit means.",
        ),
        Case(
            {f'pyasynq_service_commands_killed_total{{{_Q},limit="memory"}}': "0x5 0+1x60"},
            20,
            {"queue": "mail", "limit": "memory"},
            6,
            "14 commands of mail were killed within an hour at their limit: memory.",
        ),
    ),
    Alert(
        "LeasesLapsing",
        (Condition("sum by (queue) (increase(pyasynq_service_leases_lapsed_total[15m]))", "> 5"),),
        0,
        "warning",
        "{{ $value | humanize }} leases of {{ $labels.queue }} lapsed in 15 minutes: their tasks run again.",
        "Remote workers lease tasks of the task service, and neither settle nor extend them in time.",
        (
            "Workers are killed, or stop without giving their tasks back.",
            "Tasks take longer than the lease, and the worker does not extend it.",
            "Workers cannot reach the service any more.",
        ),
        (
            "Look at the page Remote workers of the dashboard: which worker is gone, and what it had.",
            "Read the worker's log. Acts that come too late are refused with `lease_lost`.",
            "If workers work longer than their lease, let them extend it: see [leases](../leases.md).",
            "A task that kills its workers is archived in the end: see [poison tasks](../poison-tasks.md).",
        ),
        Case(
            {f"pyasynq_service_leases_lapsed_total{{{_Q}}}": "0+2x30"},
            10,
            {"queue": "mail"},
            1,
            "20 leases of mail lapsed in 15 minutes: their tasks run again.",
        ),
    ),
    Alert(
        "ServiceFailing",
        (
            Condition(
                "sum by (instance) (increase(pyasynq_service_requests_total"
                '{status=~"5..",route!="/ready"}[10m]) or 0 * increase(pyasynq_service_requests_total[10m]))'
                " / sum by (instance) (increase(pyasynq_service_requests_total[10m]))",
                "> 0.05",
            ),
            Condition("sum by (instance) (increase(pyasynq_service_requests_total[10m]))", "> 50"),
        ),
        5,
        "critical",
        "{{ $value | humanizePercentage }} of the requests to the service at {{ $labels.instance }} fail.",
        "The task service answers more than a twentieth of its requests with 5xx: tasks may not be enqueued.",
        (
            "Redis is away, full, or refuses a command.",
            "The instance has more requests than it can answer (`overloaded`).",
            "A fault in the service.",
        ),
        (
            "Look at Redis: `pyasynq ping`, its memory and its log.",
            "Read the log of the instance: it has the status of each request, and the pattern of its path.",
            "If the instance is overloaded, start another one: see [limits](../service.md#limits-and-load).",
            "Clients that send the same `Idempotency-Key` again enqueue nothing twice.",
        ),
        Case(
            {
                f'pyasynq_service_requests_total{{{_I},route="/v1/tasks",status="201"}}': "0+80x30",
                f'pyasynq_service_requests_total{{{_I},route="/v1/tasks",status="503"}}': "0+10x30",
                f'pyasynq_service_requests_total{{{_I},route="/ready",status="503"}}': "0+10x30",
            },
            15,
            {"instance": "a"},
            4,
            "10% of the requests to the service at a fail.",
        ),
        joint=" and on (instance) ",
    ),
)
