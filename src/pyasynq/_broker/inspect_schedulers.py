"""Looking at the periodic tasks of running schedulers, and at what they have enqueued."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._broker.arguments import time_arguments
from pyasynq._broker.plan import CommandCall, Plan, Replay, ScriptCall
from pyasynq._broker.scripts import SERVER_LIST
from pyasynq._wire.keys import SCHEDULERS, scheduler_history_key
from pyasynq._wire.messages import SchedulerEnqueueEvent, SchedulerEntry, UndecodableMessageError
from pyasynq._wire.options_text import Option, OptionName, parse_option
from pyasynq.errors import InvalidOptionError
from pyasynq.info import SchedulerEntryInfo, SchedulerEvent
from pyasynq.options import OPTION_NAMES
from pyasynq.task import Task

if TYPE_CHECKING:
    from collections.abc import Iterable

    from pyasynq._clock import Instant

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
    """Return the entries of all running schedulers; records that cannot be decoded are left out."""
    entries = []
    for key in (yield ScriptCall(SERVER_LIST, (SCHEDULERS,), time_arguments(now), Replay.SAFE)):
        values = yield CommandCall(("LRANGE", key, 0, -1), key.decode(), Replay.SAFE)
        # A scheduler pushes its entries to the left, one after another.
        for data in reversed(values):
            try:
                entries.append(_entry(SchedulerEntry.decode(data)))
            except (UndecodableMessageError, InvalidOptionError):
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
        elif (name := _FIELDS[option.name]) in OPTION_NAMES:
            options[name] = option.value
    return options | ({"headers": headers} if headers else {})


def scheduler_events(entry_id: str, start: int, stop: int) -> Plan[list[SchedulerEvent]]:
    """Return what an entry has enqueued, newest first, from position `start` to before `stop`."""
    key = scheduler_history_key(entry_id)
    events = []
    for data in (yield CommandCall(("ZREVRANGE", key, start, stop - 1), key, Replay.SAFE)):
        try:
            event = SchedulerEnqueueEvent.decode(data)
        except UndecodableMessageError:
            continue
        events.append(SchedulerEvent(event.task_id, event.enqueue_time))
    return events
