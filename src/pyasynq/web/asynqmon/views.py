"""Read-only routes of asynqmon."""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import QueueNotFoundError, TaskNotFoundError
from pyasynq.task import TaskState

from . import shapes
from .answer import ApiError, json_answer

if TYPE_CHECKING:
    from starlette.responses import Response

    from pyasynq.info import WorkerInfo

    from .answer import ApiRequest

_DAYS: Final = 10
_MOST_DAYS: Final = 90


async def answer_list_queues(ask: ApiRequest) -> Response:
    """Return the task counts of all queues."""
    infos = await ask.operator.queue_infos()
    memory = await ask.recent("asynqmon memory", partial(_read_memory_of_queues, ask))
    return json_answer(
        {"queues": [shapes.describe_queue_snapshot(info, memory.get(info.queue, 0)) for info in infos]}
    )


async def answer_get_queue(ask: ApiRequest) -> Response:
    """Return the task counts of a queue, and how many tasks it processed on each of the last ten days."""
    snapshot = await _snapshot(ask)
    history = await ask.operator.history(ask.queue, _DAYS)
    return json_answer({"current": snapshot, "history": shapes.describe_daily_statistics(history)})


async def answer_list_queue_statistics(ask: ApiRequest) -> Response:
    """Return how many tasks each queue processed on each of the last 90 days."""
    names = await ask.operator.queues()
    statistics = {
        name: shapes.describe_daily_statistics(await ask.operator.history(name, _MOST_DAYS)) for name in names
    }
    return json_answer({"stats": statistics})


async def answer_list_tasks(ask: ApiRequest) -> Response:
    """Return a page of the tasks of one state, with the counts of the queue."""
    page, size = ask.page()
    try:
        tasks = await ask.operator.tasks(ask.queue, ask.state, page, size, group=ask.group)
    except QueueNotFoundError:
        raise ApiError(500, "asynq: queue not found") from None
    snapshot = await _snapshot(ask)
    workers = await _find_workers(ask) if ask.state is TaskState.ACTIVE else {}
    answer: dict[str, Any] = {
        "tasks": [shapes.describe_listed_task(task, ask.limits, workers) for task in tasks],
        "stats": snapshot,
    }
    if ask.state is TaskState.ACTIVE:
        return json_answer(answer)
    if ask.state is TaskState.AGGREGATING:
        answer["groups"] = shapes.describe_group_sizes(await ask.operator.groups(ask.queue))
    # asynqmon builds these answers from a map, which Go encodes with sorted names.
    return json_answer(dict(sorted(answer.items())))


async def answer_list_groups(ask: ApiRequest) -> Response:
    """Return the groups of a queue."""
    snapshot = await _snapshot(ask)
    groups = await ask.operator.groups(ask.queue)
    return json_answer({"stats": snapshot, "groups": shapes.describe_group_sizes(groups)})


async def answer_get_task(ask: ApiRequest) -> Response:
    """Return a task; 404 with a short text if there is none."""
    try:
        task = await ask.operator.task(ask.queue, ask.names["task"])
    except QueueNotFoundError:
        raise ApiError(404, "queue not found") from None
    except TaskNotFoundError:
        raise ApiError(404, "task not found") from None
    return json_answer(shapes.describe_whole_task(task, ask.limits))


async def answer_list_servers(ask: ApiRequest) -> Response:
    """Return the live servers."""
    servers = await ask.operator.servers()
    return json_answer({"servers": [shapes.describe_running_server(one, ask.limits) for one in servers]})


async def answer_list_scheduler_entries(ask: ApiRequest) -> Response:
    """Return the entries of running schedulers."""
    entries = await ask.operator.schedules()
    return json_answer({"entries": [shapes.describe_scheduler_entry(entry, ask.limits) for entry in entries]})


async def answer_list_enqueue_events(ask: ApiRequest) -> Response:
    """Return one page of an entry's enqueue history."""
    page, size = ask.page()
    events = await ask.operator.schedule_events(ask.names["entry"], page, size)
    return json_answer({"events": [shapes.describe_enqueue_event(event) for event in events]})


async def _snapshot(ask: ApiRequest) -> dict[str, Any]:
    info = await ask.operator.queue(ask.queue)
    memory = await ask.recent(("asynqmon memory", ask.queue), partial(_read_memory_of_queue, ask))
    return shapes.describe_queue_snapshot(info, memory)


async def _read_memory_of_queues(ask: ApiRequest) -> dict[str, int]:
    infos = await ask.operator.queue_infos(memory=True)
    return {info.queue: info.memory_usage or 0 for info in infos}


async def _read_memory_of_queue(ask: ApiRequest) -> int:
    return (await ask.operator.queue(ask.queue, memory=True)).memory_usage or 0


async def _find_workers(ask: ApiRequest) -> dict[str, WorkerInfo]:
    servers = await ask.operator.servers()
    return {
        worker.task_id: worker
        for server in servers
        for worker in server.active_workers
        if worker.queue == ask.queue
    }
