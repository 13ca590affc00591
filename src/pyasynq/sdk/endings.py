"""Reports of ended tasks to the program that has enqueued them, as tasks of the team's own queue.

The Lua script that ends a task also writes a completion callback to an outbox (transactional outbox). The
callback is then moved to the team's queue. A worker retries `on_finished` until it succeeds. So each end is
reported at least once, even if a process dies.
"""

from __future__ import annotations

import inspect
import json
from asyncio import to_thread
from dataclasses import dataclass
from typing import TYPE_CHECKING

from pyasynq.context import context
from pyasynq.errors import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.task import Task

    OnFinished = Callable[["EndReport"], Awaitable[object] | object]


@dataclass(frozen=True, slots=True)
class EndReport:
    """Report of the end of a task.

    Attributes:
        key: idempotency key: repeated reports of the same end have the same key.
        task_id: id of the task, as text.
        task_name: name of the task's type.
        outcome: `succeeded`; `archived`, after its last attempt or by hand; `cancelled`, by its handler or by
            an operator; or `deleted`, by hand.
        error: beginning of the last error; empty for none.
    """

    key: str
    task_id: str
    task_name: str
    outcome: str
    error: str = ""


def name_endings(team: str) -> str:
    """Return the task name, which is also the queue, of the reports about ended tasks of a team.

    Raises:
        ConfigurationError: without a team.
    """
    if not team:
        raise ConfigurationError('team: on_finished needs the name of your team, as in team="starmap"')
    return f"{team}-finished"


def make_ending_handler(on_finished: OnFinished) -> Callable[[Task], Awaitable[None]]:
    """Return a handler that reports ended tasks to a function; a plain function runs in a thread.

    An error of the function fails the attempt, so the report is repeated later.

    Raises:
        ConfigurationError: if `on_finished` is not a function.
    """
    if not callable(on_finished):
        raise ConfigurationError("on_finished must be a function that takes the end of a task")
    is_plain = not inspect.iscoroutinefunction(on_finished)

    async def tell(task: Task) -> None:
        told = json.loads(task.payload or b"")
        ending = EndReport(
            context().task_id, told["id"], told["type"], told["outcome"], told.get("error", "")
        )
        answer = await to_thread(on_finished, ending) if is_plain else on_finished(ending)
        if inspect.isawaitable(answer):
            await answer

    return tell
