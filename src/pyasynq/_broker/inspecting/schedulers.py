"""Plans that describe, pause and run the entries of running schedulers, and list their history."""

from __future__ import annotations

from collections import defaultdict
from dataclasses import replace
from typing import TYPE_CHECKING, Final

from pyasynq._broker import schedules
from pyasynq._broker.queue_registry import register_queues
from pyasynq._broker.schedules import (
    list_enqueue_events,
    read_pauses,
    read_scheduler,
    record_enqueue_event,
)
from pyasynq._broker.servers import list_record_keys
from pyasynq._checks import check_name, page_bounds
from pyasynq._clock import Instant
from pyasynq._wire.keys import SCHEDULERS_KEY
from pyasynq._wire.messages import SchedulerEnqueueEvent
from pyasynq._wire.options_text import Option, OptionName, parse_option
from pyasynq.errors import InvalidOptionError, ScheduleNotFoundError
from pyasynq.info import EntryPauseResult, EntryRun, SchedulerEntryInfo, SchedulerEvent
from pyasynq.options import DEFAULT_MAX_PAYLOAD
from pyasynq.task import EnqueueStatus, Task

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pyasynq._broker.schedules import SchedulerRecord
    from pyasynq._redis.plan import Plan
    from pyasynq._wire.messages import SchedulerEntry

_ENGINE: Final = "pyasynq"
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


def find_schedulers(now: Instant | None) -> Plan[list[Plan[SchedulerRecord]]]:
    """Return one plan for each running scheduler; the plan reads the scheduler's entries."""
    return [read_scheduler(key) for key in (yield from list_record_keys(SCHEDULERS_KEY, now))]


def describe_entries(records: Iterable[SchedulerRecord]) -> list[SchedulerEntryInfo]:
    """Return the entries of schedulers, without their pauses; leave out entries that cannot be read."""
    entries = []
    for record in records:
        for entry in record.entries:
            try:
                entries.append(_describe_entry(record.scheduler_id, entry))
            except InvalidOptionError:
                continue
    return entries


def plan_pauses(entries: Sequence[SchedulerEntryInfo]) -> list[Plan[list[SchedulerEntryInfo]]]:
    """Return a plan for each queue, which adds the pauses to its entries."""
    by_queue: defaultdict[str, list[SchedulerEntryInfo]] = defaultdict(list)
    for entry in entries:
        by_queue[entry.queue].append(entry)
    return [_complete(queue, some) for queue, some in by_queue.items()]


def _complete(queue: str, entries: Sequence[SchedulerEntryInfo]) -> Plan[list[SchedulerEntryInfo]]:
    pauses = yield from read_pauses(queue, [entry.id for entry in entries])
    return [
        replace(
            entry,
            engine=_ENGINE if pause.is_known else "",
            paused_since=None if pause.since is None else Instant(pause.since).to_datetime(),
        )
        for entry, pause in zip(entries, pauses, strict=True)
    ]


def sort_entries(
    entries: Sequence[SchedulerEntryInfo], completed: Iterable[Sequence[SchedulerEntryInfo]]
) -> list[SchedulerEntryInfo]:
    """Return `completed`, the entries of each queue with their pauses, in the order of `entries`."""
    by_key = {(entry.scheduler_id, entry.id): entry for some in completed for entry in some}
    return [by_key[entry.scheduler_id, entry.id] for entry in entries]


def scheduler_entries(now: Instant | None = None) -> Plan[list[SchedulerEntryInfo]]:
    """Return the entries of all running schedulers; records that cannot be read are left out."""
    records = []
    for plan in (yield from find_schedulers(now)):
        record = yield from plan
        records.append(record)
    entries = describe_entries(records)
    completed = []
    for pauses in plan_pauses(entries):
        some = yield from pauses
        completed.append(some)
    return sort_entries(entries, completed)


def pause_entry(entry_id: str, *, pauses: bool, now: Instant | None) -> Plan[EntryPauseResult]:
    """Pause an entry, or with `pauses=False`, end its pause; return its new state.

    Raises:
        ScheduleNotFoundError: when no running scheduler has the entry.
    """
    entry = yield from _find_entry(entry_id, now)
    since = yield from schedules.pause_queue_entry(entry.queue, entry_id, pauses=pauses, now=now)
    paused_since = Instant(since).to_datetime() if since else None
    return EntryPauseResult(entry_id, entry.queue, since is not None, paused_since)


def run_entry(
    entry_id: str, options: Mapping[str, object], *, now: Instant, redis_now: Instant | None
) -> Plan[EntryRun]:
    """Enqueue the task of an entry now, and return it; the ticks of the entry stay as they are.

    An option of `options` applies only if the entry's record does not set it. Headers are added to those of
    the record.

    Raises:
        ScheduleNotFoundError: when no running scheduler has the entry.
        DuplicateTaskError: when another task holds the lock of the entry's task.
        TaskIDConflictError: when the entry names a task id that exists.
    """
    from pyasynq._broker.enqueueing.chunks import compose_checked  # noqa: PLC0415 - lists need none of it
    from pyasynq._broker.enqueueing.enqueue import enqueue_run, split_runs  # noqa: PLC0415 - as above
    from pyasynq._broker.enqueueing.enqueue_rules import build_task_info  # noqa: PLC0415 - as above

    entry = yield from _find_entry(entry_id, redis_now)
    given = {
        name: value for name, value in options.items() if name == "headers" or name not in entry.task.options
    }
    composed = compose_checked(entry.task, given, now=now, max_payload=DEFAULT_MAX_PAYLOAD)
    [run] = split_runs([composed])
    result = (yield from enqueue_run(run, now=redis_now)).get(0)
    if result is not None and result.error is not None:
        raise result.error
    yield from register_queues([composed.settings.queue])
    info = build_task_info(composed, result, now)
    if info.enqueue_status not in {EnqueueStatus.EXISTING, EnqueueStatus.IGNORED}:
        event = SchedulerEnqueueEvent(task_id=info.id, enqueue_time=now.to_datetime())
        yield from record_enqueue_event(entry_id, event)
    unread = tuple(text for text in entry.options if not isinstance(parse_option(text), Option))
    return EntryRun(entry_id, info, unread)


def _find_entry(entry_id: str, now: Instant | None) -> Plan[SchedulerEntryInfo]:
    check_name("entry_id", entry_id)
    for plan in (yield from find_schedulers(now)):
        for entry in describe_entries([(yield from plan)]):
            if entry.id == entry_id:
                return entry
    raise ScheduleNotFoundError(entry_id)


def _describe_entry(scheduler_id: str, entry: SchedulerEntry) -> SchedulerEntryInfo:
    task = Task(entry.task_type, entry.task_payload or None, **_options(entry.enqueue_options))  # type: ignore[arg-type]
    return SchedulerEntryInfo(
        id=entry.id,
        spec=entry.spec,
        task=task,
        options=entry.enqueue_options,
        next_enqueue_at=entry.next_enqueue_time,
        previous_enqueue_at=entry.prev_enqueue_time,
        scheduler_id=scheduler_id,
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
