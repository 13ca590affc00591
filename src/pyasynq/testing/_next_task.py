"""Running one task now, whatever else waits."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final

from pyasynq._redis.plan import CommandCall, Replay, ask
from pyasynq._wire.keys import queue_keys
from pyasynq.task import Task

if TYPE_CHECKING:
    from pyasynq._redis.driver import BlockingDriver

_NOT_NOW: Final = ("process_at", "process_in", "group")


def without_waiting(task: Task) -> Task:
    """Return a task that is pending as soon as it is enqueued."""
    options = {name: value for name, value in task.options.items() if name not in _NOT_NOW}
    return Task(task.type, task.payload, **options)  # type: ignore[arg-type] # some of the options of a task


def put_in_front(driver: BlockingDriver, queue: str, task_id: str) -> None:
    """Make a pending task the next one of its queue."""
    pending = queue_keys(queue).pending
    for command in (("LREM", pending, 1, task_id), ("RPUSH", pending, task_id)):
        driver.run(ask(CommandCall(command, pending, Replay.NEVER)))
