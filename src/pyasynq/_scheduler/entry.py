"""Entries of a scheduler: an expression, a task, and an id that is the same in all schedulers."""

from __future__ import annotations

import hashlib
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Final, NamedTuple

from pyasynq._broker.enqueueing.chunks import with_options
from pyasynq._cron import parse_cron, uses_location
from pyasynq._scheduler.timetable import Timetable
from pyasynq._wire.messages import SchedulerEntry
from pyasynq._wire.options_text import OptionName, OptionValue, format_option
from pyasynq.errors import InvalidOptionError
from pyasynq.options import DEFAULT_QUEUE, check_combination, check_unattended, resolve_options

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping
    from datetime import tzinfo

    from pyasynq.config import Misfire
    from pyasynq.options import EnqueueSettings
    from pyasynq.task import Task

_ID_DIGITS: Final = 32
_NOT_OF_ENTRIES: Final = ("durable", "headers")
"""Options left out of an entry's text form: they are encoded separately, or entries cannot have them."""


class ScheduleEntry(NamedTuple):
    """A periodic task of a scheduler.

    Attributes:
        id: id of the entry; the same in every scheduler that has it.
        spec: the cron expression.
        task: the task that each tick enqueues, with all options.
        timetable: its ticks.
    """

    id: str
    spec: str
    task: Task
    timetable: Timetable

    @property
    def queue(self) -> str:
        """The queue that its tasks go to."""
        return self.task.options.get("queue", DEFAULT_QUEUE)

    def build_tick_task(self, tick: datetime) -> Task:
        """Build the task of a tick. Its id names entry and tick, unless the entry's options set a task id."""
        if "task_id" in self.task.options:
            return self.task
        return with_options(self.task, {"task_id": f"{self.id}:{int(tick.timestamp())}"})

    def record(self) -> SchedulerEntry:
        """Build the entry's record for dashboards."""
        return SchedulerEntry(
            id=self.id,
            spec=self.spec,
            task_type=self.task.type,
            task_payload=self.task.payload or b"",
            enqueue_options=tuple(option_texts(self.task.options)),
            next_enqueue_time=self.timetable.next,
            prev_enqueue_time=self.timetable.previous,
        )


def make_entry(entry_id: str, spec: str, task: Task, misfire: Misfire, location: tzinfo) -> ScheduleEntry:
    """Make a scheduler entry from its id, cron expression and task.

    Raises:
        CronError: for an invalid expression.
        InvalidOptionError: for options that contradict each other, or have no meaning for entries.
    """
    check_combination(task.options)
    check_unattended(task.options)
    return ScheduleEntry(entry_id, spec, task, Timetable(parse_cron(spec, location=location), misfire))


def new_entry(
    spec: str, task: Task, misfire: Misfire, location: tzinfo, taken: Collection[str]
) -> ScheduleEntry:
    """Return a new entry with an id that is not taken; raises what `make_entry` raises."""
    return make_entry(free_id(spec, task, taken, location), spec, task, misfire, location)


def entry_id(spec: str, task: Task, number: int, location: tzinfo = UTC) -> str:
    """Compute the id of an entry: a hash of everything it enqueues, and of its number among equal entries.

    The hash includes the scheduler's zone if the expression depends on it, and the zone is not UTC.
    """
    digest = hashlib.sha256()
    zone = _zone_text(location) if uses_location(spec) else ""
    payload = b"" if task.payload is None else b"=" + task.payload
    options = sorted([*option_texts(task.options), *_other_options(task.options)])
    for part in (
        spec.encode() + zone.encode(),
        task.type.encode(),
        payload,
        *map(str.encode, options),
        b"%d" % number,
    ):
        # Each part is prefixed with its length, so that different parts never give the same bytes.
        digest.update(b"%d:" % len(part) + part)
    return digest.hexdigest()[:_ID_DIGITS]


def free_id(spec: str, task: Task, taken: Iterable[str], location: tzinfo = UTC) -> str:
    """Return an unused id for a new entry, given the ids already taken."""
    taken = set(taken)
    number = 0
    while (found := entry_id(spec, task, number, location)) in taken:
        number += 1
    return found


def option_texts(options: Mapping[str, object]) -> Iterator[str]:
    """Yield options in Asynq's text form and order; skip options that have no text form.

    Raises:
        InvalidOptionError: for a duration above Go's maximum (int64 nanoseconds).
    """
    settings = resolve_options(options)
    for name, (option, value_of) in _TEXTS.items():
        if name in options:
            try:
                yield format_option(option, value_of(settings))
            except ValueError as error:
                raise InvalidOptionError(name, options[name], str(error)) from None
    for header in (settings.headers or {}).items():
        yield format_option(OptionName.HEADER, header)


def _zone_text(zone: tzinfo) -> str:
    """Return a text for a zone that is the same in every process: from its name, else its UTC offsets.

    It is empty for UTC.
    """
    name = getattr(zone, "key", None)
    if not isinstance(name, str):
        months = [datetime(2024, month, 1, tzinfo=zone) for month in range(1, 13)]
        offsets = sorted({str(month.utcoffset()) for month in months})
        name = "UTC" if offsets == ["0:00:00"] else " ".join(offsets)
    return "" if name == "UTC" else f" in {name}"


def _other_options(options: Mapping[str, object]) -> Iterator[str]:
    for name in options:
        if name not in _TEXTS and name not in _NOT_OF_ENTRIES:
            yield f"{name}={options[name]!r}"


def _instant(seconds: int) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


_TEXTS: Final[dict[str, tuple[OptionName, Callable[[EnqueueSettings], OptionValue]]]] = {
    "max_retry": (OptionName.MAX_RETRY, lambda settings: settings.max_retry),
    "queue": (OptionName.QUEUE, lambda settings: settings.queue),
    "task_id": (OptionName.TASK_ID, lambda settings: settings.task_id or ""),
    "timeout": (OptionName.TIMEOUT, lambda settings: timedelta(seconds=settings.timeout)),
    "deadline": (OptionName.DEADLINE, lambda settings: _instant(settings.deadline)),
    "unique": (OptionName.UNIQUE, lambda settings: timedelta(seconds=settings.unique_ttl)),
    "process_at": (
        OptionName.PROCESS_AT,
        lambda settings: settings.process_at.to_datetime() if settings.process_at else _instant(0),
    ),
    "process_in": (OptionName.PROCESS_IN, lambda settings: timedelta(seconds=settings.process_in or 0)),
    "group": (OptionName.GROUP, lambda settings: settings.group),
    "retention": (OptionName.RETENTION, lambda settings: timedelta(seconds=settings.retention)),
}
