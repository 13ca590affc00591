"""Sentry cron monitors for an app's schedules: slugs, settings, and check-ins of runs."""

from __future__ import annotations

import math
import re
import uuid
from collections import Counter
from contextlib import suppress
from datetime import UTC, timedelta
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from sentry_sdk.crons import capture_checkin

from pyasynq._cron import CalendarSchedule, IntervalSchedule, parse_cron, read_fields
from pyasynq.context import context
from pyasynq.control import Cancel
from pyasynq.errors import ConfigurationError, RevokeTask
from pyasynq.options import DEFAULT_TIMEOUT_SECONDS, resolve_options

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from datetime import tzinfo

    from sentry_sdk._types import MonitorConfig

    from pyasynq._scheduler.entry import ScheduleEntry
    from pyasynq.app import App
    from pyasynq.hooks import AttemptEnd
    from pyasynq.task import Task

_TICK_ID: Final = re.compile(r"([0-9a-f]{32}):[0-9]+")
"""Id of a task that a scheduler has enqueued: id of the entry, a colon, and the Unix time of the tick."""
_MINUTE: Final = timedelta(minutes=1)
_LONGEST_SLUG: Final = 50  # characters; the limit of Sentry
_ID_DIGITS: Final = 8  # hexadecimal digits of an entry's id in a slug, if a task type has several schedules


class Monitor(NamedTuple):
    """A Sentry cron monitor for one schedule.

    Attributes:
        slug: name of the monitor, unique in the Sentry project.
        config: settings of the monitor; a check-in with settings creates or updates the monitor in Sentry.
    """

    slug: str
    config: MonitorConfig


class CheckIns:
    """Check-ins for the runs of an app's schedules.

    A run begins with the first attempt of a tick's task, and ends when the task succeeds, is cancelled by its
    handler, or is archived. Retries belong to the same run.

    Args:
        app: the app that declares the schedules.
    """

    def __init__(self, app: App) -> None:
        self._app = app
        self._monitors: dict[str, Monitor] | None = None
        """Monitors by id of entry; None until the first tick, since modules may still declare schedules."""

    async def watch(self, task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
        """Send the check-ins of an attempt; middleware of an app."""
        running = context()
        monitor = self._find(running.task_id)
        if monitor is None:
            return await call_next(task)
        run = _identify_run(running.queue, running.task_id)
        if running.retried == 0:
            capture_checkin(monitor.slug, run, "in_progress", monitor_config=monitor.config)
        try:
            result = await call_next(task)
        except (Cancel, RevokeTask):
            capture_checkin(monitor.slug, run, "ok")
            raise
        capture_checkin(monitor.slug, run, "ok")
        return result

    def fail(self, end: AttemptEnd) -> None:
        """Send the check-in of a run that has failed for good; a hook of an app."""
        monitor = self._find(end.task_id)
        if monitor is not None:
            capture_checkin(monitor.slug, _identify_run(end.queue, end.task_id), "error")

    def _find(self, task_id: str) -> Monitor | None:
        tick = _TICK_ID.fullmatch(task_id)
        if tick is None:
            return None
        if self._monitors is None:
            self._monitors = {}
            # If a schedule is invalid, no scheduler can start, so there are no ticks.
            with suppress(ConfigurationError):
                entries, zone = self._app._list_entries(), self._app._scheduler_config.zone  # noqa: SLF001 - not for users
                self._monitors = make_monitors(entries, zone)
        return self._monitors.get(tick[1])


def _identify_run(queue: str, task_id: str) -> str:
    """Return the check-in id of a tick's task: the same for all its attempts, in any process."""
    return uuid.uuid5(uuid.NAMESPACE_OID, f"{queue}:{task_id}").hex


def make_monitors(entries: list[ScheduleEntry], zone: tzinfo) -> dict[str, Monitor]:
    """Return monitors by id of entry. Leave out schedules that Sentry cannot describe.

    Args:
        entries: all entries of the app.
        zone: time zone of cron expressions that do not name one.
    """
    types = Counter(_make_slug(entry.task.type) for entry in entries)
    monitors: dict[str, Monitor] = {}
    for entry in entries:
        config = _make_config(entry.spec, zone)
        if config is not None:
            slug = _make_slug(entry.task.type)
            if types[slug] > 1:
                slug = f"{slug[: _LONGEST_SLUG - _ID_DIGITS - 1]}-{entry.id[:_ID_DIGITS]}"
            timeout = resolve_options(entry.task.options).timeout or DEFAULT_TIMEOUT_SECONDS
            config["max_runtime"] = math.ceil(timeout / 60)
            monitors[entry.id] = Monitor(slug, config)
    return monitors


def _make_config(spec: str, zone: tzinfo) -> MonitorConfig | None:
    """Convert a schedule to Sentry's monitor configuration; return None if Sentry cannot describe it.

    Sentry supports intervals of whole minutes, and time zones that have a name.
    """
    schedule = parse_cron(spec, location=zone)
    if isinstance(schedule, IntervalSchedule):
        minutes, rest = divmod(schedule.period, _MINUTE)
        return None if rest else {"schedule": {"type": "interval", "value": minutes, "unit": "minute"}}
    if not isinstance(schedule, CalendarSchedule):
        return None
    name = "UTC" if schedule.zone == UTC else getattr(schedule.zone, "key", None)
    if not isinstance(name, str):
        return None
    return {"schedule": {"type": "crontab", "value": read_fields(spec)}, "timezone": name}


def _make_slug(task_type: str) -> str:
    """Convert a task type to a monitor's slug: lower-case letters, digits, `-` and `_`."""
    return re.sub(r"[^a-z0-9_]+", "-", task_type.lower()).strip("-")[:_LONGEST_SLUG] or "schedule"
