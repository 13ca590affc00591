"""Plans that put tasks into a queue, many at once: a lone task is a batch of one."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING, Final, TypeAlias

from pyasynq._broker.arguments import FIRST_SEND, MAX_ARGUMENTS, MAX_BYTES, MAX_TASKS, time_arguments
from pyasynq._broker.enqueueing.enqueue_rules import (
    build_enqueued,
    build_refusal,
    build_result_by_rules,
    build_task_info,
    new_task_arguments,
)
from pyasynq._broker.scripts import (
    GROUP_ADD,
    GROUP_SCHEDULE,
    TASK_ENQUEUE,
    TASK_ENQUEUE_BY_RULES,
    TASK_ENQUEUE_FRONT,
    TASK_ENQUEUE_UNIQUE,
    TASK_SCHEDULE,
    TASK_SCHEDULE_UNIQUE,
)
from pyasynq._broker.stored import display_name
from pyasynq._broker.task_events import encode_event, publish_events
from pyasynq._redis.durability import Confirmation, durably
from pyasynq._redis.plan import Argument, Plan, Replay, ScriptCall
from pyasynq._wire.keys import queue_keys
from pyasynq.errors import NotDurableError, RedisError
from pyasynq.task import EnqueueResult, EnqueueStatus, TaskState

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from pyasynq._broker.enqueueing.compose import Composed
    from pyasynq._clock import Instant
    from pyasynq._redis.script import Script

OtherResults: TypeAlias = dict[int, EnqueueResult]
"""Results of the tasks that were not enqueued as new tasks, by position; usually empty."""

_SCRIPTS: Final[dict[tuple[TaskState, bool], Script]] = {
    (TaskState.PENDING, False): TASK_ENQUEUE,
    (TaskState.PENDING, True): TASK_ENQUEUE_UNIQUE,
    (TaskState.SCHEDULED, False): TASK_SCHEDULE,
    (TaskState.SCHEDULED, True): TASK_SCHEDULE_UNIQUE,
}
_WIDTHS: Final[dict[str, int]] = {
    TASK_ENQUEUE.name: 2,
    TASK_ENQUEUE_UNIQUE.name: 5,
    TASK_ENQUEUE_FRONT.name: 5,
    TASK_SCHEDULE.name: 3,
    TASK_SCHEDULE_UNIQUE.name: 6,
    GROUP_ADD.name: 6,
    GROUP_SCHEDULE.name: 7,
    TASK_ENQUEUE_BY_RULES.name: 14,
}
"""Number of arguments for one task, by the name of its script."""
_IN_REDIS: Final = (EnqueueStatus.ENQUEUED, EnqueueStatus.REPLACED, EnqueueStatus.EXISTING)
_NO_REPLICAS_ASKED: Final = Confirmation(0, "they were not asked")


class EnqueueRun:
    """Tasks of one queue that fit into one script call."""

    __slots__ = ("most", "positions", "queue", "script", "size", "tasks")

    def __init__(self, queue: str, script: Script) -> None:
        self.queue = queue
        self.script = script
        """The script that stores tasks of this kind."""
        self.most = min(MAX_TASKS, MAX_ARGUMENTS // _WIDTHS[script.name])
        """Largest number of tasks in one call."""
        self.tasks: list[Composed] = []
        """The tasks, in the order in which they join the queue."""
        self.positions: list[int] = []
        """Position of each task in the sequence that was split."""
        self.size = 0
        """Total bytes of their messages."""


def split_runs(composed: Sequence[Composed]) -> list[EnqueueRun]:
    """Split tasks into runs of one queue and one kind: at most 1,000 tasks, 3,850 arguments and 4 MB each.

    Runs of one queue follow one another in the order of their tasks; tasks of other queues between them do
    not end a run.
    """
    runs: list[EnqueueRun] = []
    open_runs: dict[str, EnqueueRun] = {}
    for position, item in enumerate(composed):
        settings, size = item.settings, len(item.encoded)
        queue = settings.queue
        if item.rules is not None or item.finished:
            script = TASK_ENQUEUE_BY_RULES
        elif settings.front:
            script = TASK_ENQUEUE_FRONT
        elif settings.group:
            script = GROUP_ADD if item.state is TaskState.AGGREGATING else GROUP_SCHEDULE
        else:
            script = _SCRIPTS[item.state, bool(item.lock)]
        run = open_runs.get(queue)
        if (
            run is None
            or run.script is not script
            or len(run.tasks) == run.most
            or run.size + size > MAX_BYTES
        ):
            run = open_runs[queue] = EnqueueRun(queue, script)
            runs.append(run)
        run.tasks.append(item)
        run.positions.append(position)
        run.size += size
    return runs


def enqueue_run(run: EnqueueRun, *, now: Instant | None) -> Plan[OtherResults]:
    """Put the tasks of a run into their queue; return, by position, results of tasks that are not new.

    Nothing is written for a refused task. After a lost reply the call is resent; a task that is in Redis
    exactly as it was sent counts as enqueued, not as a conflict. A registrar writes the name of the queue.
    """
    keys = queue_keys(run.queue)
    if run.script is TASK_ENQUEUE_BY_RULES:
        return (yield from _enqueue_by_rules(run, now))
    args: list[Argument] = [FIRST_SEND, keys.task_prefix]
    state = run.tasks[0].state
    if state is TaskState.PENDING:
        target = keys.pending
        args += time_arguments(now)
    elif state is TaskState.SCHEDULED:
        target = keys.scheduled
    else:
        target = keys.groups
        args += (keys.group_prefix, *time_arguments(now))
    if run.script is TASK_ENQUEUE:
        # One loop instead of a call for each task, which would cost 5 % of an `enqueue_many`.
        for item in run.tasks:
            args += (item.id, item.encoded)
    else:
        for item in run.tasks:
            args += _group_arguments(item) if item.settings.group else _task_arguments(item)
    targets = (target, keys.limits) if run.script is TASK_ENQUEUE_FRONT else (target,)
    refusals = yield ScriptCall(run.script, targets, tuple(args), Replay.BY_TOKEN)
    return {
        position: build_refusal(run.tasks[position], code, display_name(holder))
        for position, code, holder in zip(refusals[::3], refusals[1::3], refusals[2::3], strict=True)
    }


def enqueue_and_publish(run: EnqueueRun, *, now: Instant, max_length: int) -> Plan[OtherResults]:
    """Put tasks into their queue as `enqueue_run` does, then publish an event for each enqueued task.

    If publishing fails, the tasks are still enqueued.
    """
    others = yield from enqueue_run(run, now=now)
    events = [
        encode_event("enqueued", run.queue, now, task_id=item.id, type=item.type)
        for position, item in enumerate(run.tasks)
        if position not in others
    ]
    try:
        yield from publish_events(run.queue, events, max_length=max_length)
    except RedisError:
        return others
    return others


def enqueue_durably(
    enqueue: Callable[[EnqueueRun], Plan[OtherResults]], run: EnqueueRun, *, now: Instant
) -> Plan[OtherResults]:
    """Enqueue as `enqueue_run` does; a task that too few replicas have gets `NotDurableError` as its result.

    WAIT is called once, for the largest number of replicas that any task requires.
    """
    wanted = max(item.settings.replicas for item in run.tasks)
    if not wanted:
        return (yield from enqueue(run))
    marker = queue_keys(run.queue).fence
    others, confirmation = yield from durably(enqueue(run), marker=marker, replicas=wanted)
    known = confirmation or _NO_REPLICAS_ASKED
    for position, item in enumerate(run.tasks):
        result = others[position] if position in others else build_enqueued(item)
        if result.status in _IN_REDIS and known.replicas < item.settings.replicas:
            info = build_task_info(item, result, now)
            error = NotDurableError(info, known.replicas, item.settings.replicas, known.cause)
            others[position] = replace(result, error=error)
    return others


def _enqueue_by_rules(run: EnqueueRun, now: Instant | None) -> Plan[OtherResults]:
    keys = queue_keys(run.queue)
    tail = [argument for item in run.tasks for argument in new_task_arguments(item)]
    head = (FIRST_SEND, keys.task_prefix, keys.group_prefix, *time_arguments(now))
    reply = yield ScriptCall(
        TASK_ENQUEUE_BY_RULES, (*keys.places, keys.lease), (*head, *tail), Replay.BY_TOKEN
    )
    return {
        position: build_result_by_rules(run.tasks[position], code, holder, now)
        for position, code, *holder in reply
    }


def _task_arguments(item: Composed) -> list[Argument]:
    args: list[Argument] = [item.id, item.encoded]
    if item.state is TaskState.SCHEDULED:
        args.append(item.score)
    if item.lock or item.settings.front:
        args += [item.lock, item.lock_ttl, item.lock_rule]
    return args


def _group_arguments(item: Composed) -> list[Argument]:
    args: list[Argument] = [item.id, item.encoded, item.settings.group]
    args += (item.lock, item.lock_ttl, item.lock_rule)
    if item.state is TaskState.SCHEDULED:
        args.append(item.score)
    return args
