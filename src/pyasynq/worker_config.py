"""Settings of a worker: the server's settings, and settings of processes, probes and logs."""

from __future__ import annotations

from dataclasses import dataclass, fields
from typing import TYPE_CHECKING, Literal

from pyasynq._call_shape import name_unknown_arguments
from pyasynq._queue_texts import read_weights, show_queues
from pyasynq._settings import Checked, Seconds, Size, Switch, Text, Whole, WordChoice, setting, settings_of
from pyasynq.config import QUEUE_VALUES, ServerConfig, check_queues

if TYPE_CHECKING:
    from collections.abc import Mapping

    from pyasynq.limits import Queue
    from pyasynq.options import Duration


def _check_own_queues(_name: str, value: object) -> None:
    if value != {}:
        check_queues(value)


@name_unknown_arguments
@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerConfig(ServerConfig):
    """Settings of `pyasynq worker`, for `App(..., worker=WorkerConfig(...))`. Durations as in `ServerConfig`.

    Flags, environment variables and a configuration file override these values; see the page on settings.

    Raises:
        InvalidOptionError: at construction, for an invalid value.
    """

    queues: Mapping[str, int | Queue] = setting(
        {},
        Checked(_check_own_queues, read_weights, show_queues, "NAME=WEIGHT,...", QUEUE_VALUES),
        "Queues to serve, with the weights by which they share the slots, as in critical=6,default=3. "
        "Unless given: every queue that the app names, and default, with equal weights.",
        "-q",
        make=dict,
    )
    """Queues to serve, by name, with their weights; by default those that the app names, and `default`.

    A `Queue` instead of a weight also sets limits, which hold for all workers together. Limits that the app
    declares, and that the `Queue` does not set, stay.
    """
    processes: int | None = setting(
        None,
        Whole(1),
        "Number of processes, each with this concurrency, and a supervisor that restarts them; "
        "unless given one without a supervisor.",
        "-p",
    )
    max_tasks_per_child: int | None = setting(
        None, Whole(1), "Number of tasks after which a process is replaced; those that run may finish."
    )
    max_memory: int | None = setting(
        None, Size(), "Memory above which a process is replaced; tasks that run may finish."
    )
    beat_timeout: Duration = setting(
        30.0,
        Seconds(),
        "Kill and replace one of several processes that gives no sign of life for this long; 0 for never.",
    )
    start_timeout: Duration = setting(
        60.0, Seconds(), "Call a reload off when its new process takes no tasks after this time; 0 for never."
    )
    reload: bool = setting(
        False,
        Switch(),
        "Restart when a Python file in this folder changes.",
    )
    with_scheduler: bool = setting(
        False,
        Switch(),
        "Also enqueue what the app's cron expressions say.",
    )
    health_port: int | None = setting(
        None,
        Whole(0, 65_535, metavar="PORT"),
        "Port that answers HTTP probes: /live, and /ready while tasks are taken.",
    )
    health_host: str = setting(
        "0.0.0.0",  # noqa: S104 - probes of containers come from outside of them
        Text("ADDRESS"),
        "Address that the port belongs to; 127.0.0.1 for this host alone, :: for IPv6.",
    )
    health_file: str | None = setting(
        None,
        Text("PATH"),
        "File that is touched every second while /live would say yes; it is removed at the end.",
    )
    metrics: bool = setting(
        False,
        Switch(),
        "Also answer /metrics at the health port, for Prometheus: attempts, run times, waits and slots.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = setting(
        "info", WordChoice(("debug", "info", "warning", "error")), "Least level that is written.", "-l"
    )
    log_format: Literal["text", "json"] = setting(
        "text", WordChoice(("text", "json")), "Lines for people, or one JSON object a line."
    )
    log_config: str | None = setting(
        None,
        Text("FILE"),
        "File that configures logging: a dictConfig in JSON or TOML, or an .ini file.",
    )
    logging: bool = setting(
        True,
        Switch(),
        "Set up logging; with --no-logging the app does that.",
    )
    log_tasks: bool | None = setting(
        None,
        Switch(),
        "Write a line for each success, or only for failures; unless given on a terminal, in text.",
        "--log-tasks/--quiet-tasks",
    )


def list_command_settings(config: ServerConfig) -> list[str]:
    """Return the names of those settings which are given, and which only `pyasynq worker` obeys."""
    if not isinstance(config, WorkerConfig):
        return []
    obeyed = {one.name for one in fields(ServerConfig)} | {"with_scheduler", "logging"}
    return [
        one.name
        for one, _ in settings_of(config)
        if one.name not in obeyed and getattr(config, one.name) != one.default
    ]
