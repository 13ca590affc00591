"""Looking at the periodic tasks of running schedulers, and at what they have enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.schedules import list_enqueue_events, list_schedulers
from pyasynq._checks import page_bounds
from pyasynq._wire.options_text import Option, OptionName, parse_option
from pyasynq.errors import InvalidOptionError
from pyasynq.info import SchedulerEntryInfo, SchedulerEvent
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._clock import Instant
    from pyasynq._redis.plan import Plan
    from pyasynq._wire.messages import SchedulerEntry

_FIELDS: Final = {
    OptionName.MAX_RETRY: "max_retry",
    OptionName.QUEUE: "queue",
    OptionName.TASK_ID: "task_id",
    OptionName.TIMEOUT: "timeout",
    OptionName.DEADLINE: "deadline",
    OptionName.UNIQUE: "unique",
    OptionName.PROCESS_AT: "process_at",
    OptionName.PROCESS_IN: "process_in",
    OptionName.RETENTION: "retention",
    OptionName.GROUP: "group",
}


def scheduler_entries(now: Instant | None = None) -> Plan[list[SchedulerEntryInfo]]:
    """Return the entries of all running schedulers; records that cannot be read are left out."""
    entries = []
    for scheduler in (yield from list_schedulers(now)):
        for entry in scheduler.entries:
            try:
                entries.append(_entry(entry))
            except InvalidOptionError:
                continue
    return entries


def _entry(entry: SchedulerEntry) -> SchedulerEntryInfo:
    task = Task(entry.task_type, entry.task_payload or None, **_options(entry.enqueue_options))  # type: ignore[arg-type]
    return SchedulerEntryInfo(
        id=entry.id,
        spec=entry.spec,
        task=task,
        options=entry.enqueue_options,
        next_enqueue_at=entry.next_enqueue_time,
        previous_enqueue_at=entry.prev_enqueue_time,
    )


def _options(texts: Iterable[str]) -> dict[str, object]:
    options: dict[str, object] = {}
    headers: dict[str, str] = {}
    for option in map(parse_option, texts):
        if not isinstance(option, Option):
            continue
        if isinstance(option.value, tuple):
            headers.update([option.value])
        else:
            options[_FIELDS[option.name]] = option.value
    return options | ({"headers": headers} if headers else {})


def scheduler_events(entry_id: str, *, page: int, page_size: int) -> Plan[list[SchedulerEvent]]:
    """Return one page of what an entry has enqueued, newest first."""
    start, stop = page_bounds(page, page_size)
    events = yield from list_enqueue_events(entry_id, start, stop - 1)
    return [SchedulerEvent(event.task_id, event.enqueue_time) for event in events]
