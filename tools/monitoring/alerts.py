"""Prometheus alert rules for queues, workers and Redis; those of the task service are at the end."""

from __future__ import annotations

from typing import Final

from tools.monitoring.alert_rule import OR, Alert, Case, Condition
from tools.monitoring.service_alerts import SERVICE_ALERTS

_I: Final = 'instance="a"'
_Q: Final = 'instance="a",queue="mail"'
_AT: Final = {"instance": "a", "queue": "mail"}
_QUEUE: Final = {"queue": "mail"}
_PENDING: Final = 'sum by (instance, queue) (pyasynq_queue_tasks{state="pending"})'
_WAITING: Final = f"{_PENDING} + on (instance, queue) pyasynq_queue_due_tasks"

ALERTS: Final = (
    Alert(
        "OldestWaitAboveObjective",
        (Condition("asynq_queue_latency_seconds", "> 300"), Condition("asynq_queue_paused_total", "== 0")),
        5,
        "warning",
        "The oldest task of {{ $labels.queue }} has waited for {{ $value | humanizeDuration }}.",
        "Tasks wait for more than five minutes before a worker takes them. The queue is not paused.",
        (
            "More tasks come than the workers can run.",
            "Tasks have become slower, often because a service that they call has.",
            "A limit of the queue (`max_run`, `rate`, `ordered`) is lower than the work.",
        ),
        (
            "Compare slots and load: `pyasynq queue inspect QUEUE` and the dashboard of the queue.",
            "If the run times of a type have risen, look at what it calls: more workers would not help.",
            "If a limit holds the tasks back, change it: `pyasynq limits QUEUE --max-run 20`.",
            "Else add workers, or slots with `--concurrency`.",
            "If five minutes are fine for this queue, raise the number in your copy of the rule.",
        ),
        Case(
            {f"asynq_queue_latency_seconds{{{_Q}}}": "0+60x20", f"asynq_queue_paused_total{{{_Q}}}": "0x20"},
            12,
            _AT,
            9,
            "The oldest task of mail has waited for 12m 0s.",
        ),
    ),
    Alert(
        "NoConsumers",
        (Condition("pyasynq_queue_consumers", "== 0"), Condition(_WAITING, "> 0")),
        5,
        "critical",
        "Tasks wait in {{ $labels.queue }}, and no worker serves it.",
        "Tasks are pending or due, and no live server takes tasks from the queue.",
        (
            "No worker was started for this queue, or its name is misspelt where tasks are enqueued.",
            "All workers have died or were stopped.",
            "A scaler has stopped all workers and does not see the tasks.",
            "For a type of the task service: its workers are stopped, or their API key has ended.",
        ),
        (
            "Look which servers live and what they serve: `pyasynq server list`.",
            "Start a worker that serves the queue: `pyasynq worker MODULE:APP --queues QUEUE=1`.",
            "If workers die, their logs and the page on [poison tasks](../poison-tasks.md) say why.",
            "If a scaler should have started one, see [scaling](../scaling.md).",
            "For a type of the task service, look at the pages Remote workers and Keys of the dashboard.",
        ),
        Case(
            {
                f"pyasynq_queue_consumers{{{_Q}}}": "0x20",
                f'pyasynq_queue_tasks{{{_Q},state="pending"}}': "0x4 3x16",
                f"pyasynq_queue_due_tasks{{{_Q}}}": "0x20",
            },
            11,
            _AT,
            8,
            "Tasks wait in mail, and no worker serves it.",
        ),
    ),
    Alert(
        "QueuePausedLong",
        (Condition("asynq_queue_paused_total", "== 1"), Condition(_WAITING, "> 0")),
        60,
        "warning",
        "{{ $labels.queue }} has been paused for an hour, and tasks wait in it.",
        "An operator has paused the queue, and it may have been forgotten.",
        ("A pause without an end, during an incident or a deployment.",),
        (
            "See who paused the queue and why: `pyasynq audit`.",
            "Resume the queue: `pyasynq queue resume QUEUE`.",
            "Next time give the pause an end: `pyasynq queue pause QUEUE --for 15m`.",
        ),
        Case(
            {
                f"asynq_queue_paused_total{{{_Q}}}": "1x80",
                f'pyasynq_queue_tasks{{{_Q},state="pending"}}': "5x80",
                f"pyasynq_queue_due_tasks{{{_Q}}}": "0x80",
            },
            61,
            _AT,
            55,
            "mail has been paused for an hour, and tasks wait in it.",
        ),
    ),
    Alert(
        "FailureRatio",
        (
            Condition(
                "sum by (queue) (increase(asynq_tasks_failed_total[10m]))"
                " / sum by (queue) (increase(asynq_tasks_processed_total[10m]))",
                "> 0.2",
            ),
            Condition("sum by (queue) (increase(asynq_tasks_processed_total[10m]))", "> 50"),
        ),
        5,
        "warning",
        "{{ $value | humanizePercentage }} of the attempts in {{ $labels.queue }} fail.",
        "More than a fifth of the attempts of the last ten minutes failed, and there were more than fifty.",
        (
            "A deployment with a fault.",
            "A service that the tasks call is down.",
            "Producers send wrong payloads.",
        ),
        (
            "Group the failures: `pyasynq errors QUEUE`.",
            "If one type fails since a deployment, roll it back. Its tasks are retried.",
            "If a service is down, pause the queue until it is back, so that retries are not spent.",
            "Afterwards run what was archived: in the dashboard, or with `pyasynq task run`.",
        ),
        Case(
            {
                f"asynq_tasks_failed_total{{{_Q}}}": "0+50x30",
                f"asynq_tasks_processed_total{{{_Q}}}": "0+100x30",
            },
            15,
            _QUEUE,
            2,
            "50% of the attempts in mail fail.",
        ),
        joint=" and on (queue) ",
    ),
    Alert(
        "RetryStorm",
        (
            Condition('pyasynq_queue_tasks{state="retry"}', "> 1000"),
            Condition('delta(pyasynq_queue_tasks{state="retry"}[30m])', "> 500"),
        ),
        5,
        "warning",
        "{{ $value }} tasks of {{ $labels.queue }} wait for a retry, and they become more.",
        "Many tasks have failed within half an hour and will be retried.",
        ("A service that many tasks call is down.", "A deployment with a fault."),
        (
            "Group the failures: `pyasynq errors QUEUE --state retry`.",
            "If a service is down, pause the queue: retries then wait, and do not load the service.",
            "When the cause is gone, limit the rate of the retries: `pyasynq limits QUEUE --rate 100/s`.",
        ),
        Case(
            {f'pyasynq_queue_tasks{{{_Q},state="retry"}}': "0+100x60"},
            40,
            {**_AT, "state": "retry"},
            9,
            "4000 tasks of mail wait for a retry, and they become more.",
        ),
    ),
    Alert(
        "ArchiveNearTrim",
        (Condition('pyasynq_queue_tasks{state="archived"}', "> 9000"),),
        10,
        "warning",
        "The archive of {{ $labels.queue }} has {{ $value }} tasks; beyond 9,999 the oldest are deleted.",
        "Tasks that failed for good are kept in the archive, and its size is limited.",
        ("Tasks fail for good all the time.",),
        (
            "Group the failed tasks by error: `pyasynq errors QUEUE`.",
            "Run tasks whose cause is mended: `pyasynq task run`. Delete the others: `pyasynq task delete`.",
            "If your workers have another `archive_max_size`, change the number in your copy of the rule.",
        ),
        Case(
            {f'pyasynq_queue_tasks{{{_Q},state="archived"}}': "9500x30"},
            12,
            {**_AT, "state": "archived"},
            5,
            "The archive of mail has 9500 tasks; beyond 9,999 the oldest are deleted.",
        ),
    ),
    Alert(
        "Poison",
        (Condition("sum by (queue) (increase(pyasynq_poisoned_total[1h]))", "> 0"),),
        0,
        "critical",
        "A task of {{ $labels.queue }} was archived because it killed its workers.",
        "Each run of the task ended with the death of its worker process, until the task was archived.",
        (
            "The task uses more memory than the host has.",
            "A library in C crashes.",
            "The code ends the process.",
        ),
        (
            "Find the task: `pyasynq task list QUEUE archived`; its error names the crashes.",
            "See how the processes died: the worker's log, and the kernel's (`dmesg`) for the memory.",
            "Read [poison tasks](../poison-tasks.md). Run the task alone first, with more memory.",
        ),
        Case(
            {f"pyasynq_poisoned_total{{{_Q}}}": "0x5 1x60"},
            10,
            _QUEUE,
            3,
            "A task of mail was archived because it killed its workers.",
        ),
    ),
    Alert(
        "SchedulerSilent",
        (
            Condition("pyasynq_schedules_overdue", "> 0"),
            Condition("max_over_time(pyasynq_schedules[6h]) - pyasynq_schedules", "> 0"),
        ),
        5,
        "critical",
        "Periodic tasks are late, or their scheduler is gone.",
        "A tick is more than a minute late, or schedules that ran within six hours are gone.",
        (
            "No scheduler runs any more.",
            "The scheduler cannot reach Redis, or an entry raises each time.",
            "Entries were removed on purpose; then the alert ends by itself within six hours.",
        ),
        (
            "Look at the entries and their next ticks: `pyasynq cron list`.",
            "Start a scheduler: `pyasynq scheduler MODULE:APP`. Several may run.",
            "Read its log; a failing tick is a warning there.",
        ),
        Case(
            {f"pyasynq_schedules{{{_I}}}": "4x10 0x20", f"pyasynq_schedules_overdue{{{_I}}}": "0x30"},
            17,
            {"instance": "a"},
            9,
            "Periodic tasks are late, or their scheduler is gone.",
        ),
        joint=OR,
    ),
    Alert(
        "RecoveryHappening",
        (Condition("sum by (queue) (increase(pyasynq_recovered_total[15m]))", "> 5"),),
        0,
        "warning",
        "{{ $value | humanize }} tasks of {{ $labels.queue }} were put back in 15 minutes: workers died.",
        "Tasks run again because their workers died. Handlers must be safe to repeat.",
        ("Workers are killed for their memory.", "Hosts are restarted.", "A task kills its worker."),
        (
            "Look at the exit codes in the supervisor's log: `killed by SIGKILL` is most often the memory.",
            "Recycle processes before that: `--max-memory 800MB`.",
            "Give workers time to end at a deployment: TERM, and the grace period of the longest task.",
        ),
        Case(
            {f"pyasynq_recovered_total{{{_Q}}}": "0+2x30"},
            10,
            _QUEUE,
            1,
            "20 tasks of mail were put back in 15 minutes: workers died.",
        ),
    ),
    Alert(
        "LoopBlocked",
        (
            Condition(
                "sum by (instance) (rate(pyasynq_loop_blocked_seconds_sum[5m]))"
                " / sum by (instance) (rate(pyasynq_loop_blocked_seconds_count[5m]))",
                "> 0.2",
            ),
        ),
        5,
        "warning",
        "The event loop of {{ $labels.instance }} is {{ $value | humanizeDuration }} late on average.",
        "A handler computes or waits in the event loop without `await`: all tasks of the process wait.",
        (
            "A blocking call in an `async def` handler.",
            "Much computing in one handler.",
            "The host is overloaded.",
        ),
        (
            "Read the worker's log: it names the line that blocks the loop.",
            "Make the handler a plain `def`, which runs in a thread, or use `executor='process'`.",
            "Compare with the CPU of the host.",
        ),
        Case(
            {
                f"pyasynq_loop_blocked_seconds_sum{{{_I}}}": "0+30x30",
                f"pyasynq_loop_blocked_seconds_count{{{_I}}}": "0+60x30",
            },
            12,
            {"instance": "a"},
            3,
            "The event loop of a is 500ms late on average.",
        ),
    ),
    Alert(
        "SettleDelayed",
        (
            Condition("sum by (instance) (increase(pyasynq_settle_delays_total[5m]))", "> 0"),
            Condition("sum by (instance) (pyasynq_unwritten_outcomes)", "> 1000"),
        ),
        2,
        "critical",
        "{{ $labels.instance }} cannot write the outcomes of its tasks to Redis.",
        "Tasks have run, but Redis has not confirmed it. They run again if the worker ends before that.",
        ("Redis is away, full, or refuses a command.", "The network is slow or broken."),
        (
            "Do not stop the worker: it keeps the outcomes, and writes them when Redis is back.",
            "Look at Redis: `pyasynq ping`, its memory and its log.",
            "Read the worker's log: it says why the write failed.",
        ),
        Case(
            {
                f"pyasynq_settle_delays_total{{{_I}}}": "0x5 1+1x20",
                f"pyasynq_unwritten_outcomes{{{_I}}}": "10x30",
            },
            9,
            {"instance": "a"},
            4,
            "a cannot write the outcomes of its tasks to Redis.",
        ),
        joint=OR,
    ),
    Alert(
        "RedisMemory",
        (
            Condition("pyasynq_redis_may_evict", "== 1"),
            Condition("increase(pyasynq_redis_evicted_keys_total[10m])", "> 0"),
            Condition("pyasynq_redis_memory_used_bytes / (pyasynq_redis_memory_max_bytes > 0)", "> 0.8"),
        ),
        5,
        "critical",
        "Redis of {{ $labels.instance }} is nearly full, or may delete tasks when it is.",
        "Redis has used 80 % of its memory, has evicted keys, or has a policy that lets it evict tasks.",
        (
            "Tasks come in faster than workers run them, or than completed and archived ones are deleted.",
            "Payloads or results are large.",
            "`maxmemory-policy` is not `noeviction`, as for a cache.",
        ),
        (
            "Set the policy: `CONFIG SET maxmemory-policy noeviction`. Then a full Redis keeps what it has.",
            "Find the queue that takes the memory: `asynq_queue_memory_usage_approx_bytes`.",
            "Shorten `retention`, delete archived tasks, or give Redis more memory.",
            "Evicted tasks are lost. `pyasynq doctor` finds what they left.",
        ),
        Case(
            {
                f"pyasynq_redis_may_evict{{{_I}}}": "0x5 1x20",
                f"pyasynq_redis_evicted_keys_total{{{_I}}}": "0x30",
                f"pyasynq_redis_memory_used_bytes{{{_I}}}": "10x30",
                f"pyasynq_redis_memory_max_bytes{{{_I}}}": "100x30",
            },
            12,
            {"instance": "a"},
            9,
            "Redis of a is nearly full, or may delete tasks when it is.",
        ),
        joint=OR,
    ),
    *SERVICE_ALERTS,
)
