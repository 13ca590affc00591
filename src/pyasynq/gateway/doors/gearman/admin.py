"""Text commands (admin protocol) of Gearman, as `gearadmin` and monitoring programs send them."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from pyasynq._checks import parse_whole_number
from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError, QueueNotFoundError, TaskNotFoundError
from pyasynq.task import TaskState

from .handles import find_task, task_handle
from .worker_side import UNIQUE_HEADER

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.task import TaskInfo

    from .parts import DoorParts

_END: Final = ".\n"
_UNKNOWN: Final = "ERR unknown_command Unknown+server+command\n"
_UNKNOWN_JOB: Final = "ERR UNKNOWN_JOB\r\n"
_CANCELLED: Final = "cancelled by Gearman"
_KNOWN_STATES: Final = (TaskState.ACTIVE, TaskState.PENDING, TaskState.SCHEDULED, TaskState.RETRY)
"""Task states that are shown as Gearman jobs."""
_PAGE: Final = 500
_MOST_JOBS: Final = 10_000


async def answer_command(parts: DoorParts, line: bytes) -> bytes:
    """Return the answer to a command line of the text protocol."""
    word, *arguments = line.decode("utf-8", "replace").split() or [""]
    command = _COMMANDS.get(word.lower())
    if command is None:
        return _UNKNOWN.encode()
    try:
        answer = await command(parts, arguments)
    except PyasynqError as error:
        answer = _refuse("failed", visible(error))
    return answer.encode()


def _refuse(code: str, text: str) -> str:
    return f"ERR {code} {text.replace(' ', '+')}\n"


async def _answer_status(parts: DoorParts, _: list[str]) -> str:
    """List for each function: its name, all jobs, running jobs, and the workers of all instances."""
    types = parts.list_functions()
    infos = {info.queue: info for info in await parts.operator.queue_infos(types)}
    workers = await parts.count_workers()
    lines = []
    for name in types:
        info = infos.get(name)
        running = 0 if info is None else info.active
        waiting = 0 if info is None else info.pending
        lines.append(f"{visible(name)}\t{waiting + running}\t{running}\t{workers[name]}\n")
    return "".join([*lines, _END])


async def _answer_workers(parts: DoorParts, _: list[str]) -> str:
    """List the connections here and the workers of other instances: number, address, name, functions."""
    peers = [(one.address, one.name, tuple(one.worker.functions)) for one in parts.sessions]
    for other in await parts.workers.read_others():
        peers += [(other.address, other.name, other.functions)] * other.connections
    lines = []
    for number, (address, name, functions) in enumerate(peers, 1):
        words = " ".join(visible(function) for function in functions)
        lines.append(f"{number} {visible(address)} {visible(name)} : {words}\n")
    return "".join([*lines, _END])


async def _answer_show(parts: DoorParts, arguments: list[str]) -> str:
    """List the jobs, or their unique ids, as gearmand does."""
    match [word.lower() for word in arguments]:
        case ["jobs"]:
            show = _describe_job
        case ["unique", "jobs"]:
            show = _show_unique
        case _:
            return "ERR UNKNOWN_SHOW_ARGUMENTS\r\n"
    jobs = await _list_jobs(parts)
    return "".join([*(line + "\n" for job in jobs if (line := show(job)) is not None), _END])


async def _list_jobs(parts: DoorParts) -> list[TaskInfo]:
    """Return the running, waiting, scheduled and retry jobs of all functions, 10,000 at most."""
    jobs: list[TaskInfo] = []
    for queue in parts.list_functions():
        for state in _KNOWN_STATES:
            page = _PAGE
            number = 0
            while page == _PAGE and len(jobs) < _MOST_JOBS:
                number += 1
                try:
                    found = await parts.operator.tasks(queue, state, number, _PAGE)
                except QueueNotFoundError:
                    found = []
                jobs += found
                page = len(found)
    return jobs[:_MOST_JOBS]


def _describe_job(job: TaskInfo) -> str | None:
    """Return a job's line: handle, crashes of its workers, 0 (not ignored), and whether it waits."""
    handle = task_handle(job.queue, job.id)
    if handle is None:
        return None
    waits = int(job.state is TaskState.PENDING)
    return f"{visible(handle.decode('utf-8', 'surrogateescape'))}\t{job.crashes}\t0\t{waits}"


def _show_unique(job: TaskInfo) -> str | None:
    return visible(job.headers.get(UNIQUE_HEADER, ""))


async def _answer_cancel(parts: DoorParts, arguments: list[str]) -> str:
    """Delete a job; a running one is cancelled first, and its worker's later answer has no effect."""
    if len(arguments) != 2 or arguments[0].lower() != "job":
        return _UNKNOWN
    found = find_task(arguments[1].encode("utf-8", "surrogateescape"), parts.list_functions())
    if found is None:
        return _UNKNOWN_JOB
    queue, task_id = found
    try:
        info = await parts.operator.task(queue, task_id)
        if info.state is TaskState.ACTIVE:
            await parts.operator.cancel_task(queue, task_id, "delete", reason=_CANCELLED)
        elif info.state in _KNOWN_STATES:
            await parts.operator.delete_task(queue, task_id, reason=_CANCELLED)
        else:
            return _UNKNOWN_JOB
    except TaskNotFoundError:
        return _UNKNOWN_JOB
    return "OK\r\n"


async def _answer_version(_: DoorParts, __: list[str]) -> str:
    return f"OK {version('pyasynq')}\n"


async def _answer_pid(_: DoorParts, __: list[str]) -> str:
    return f"OK {os.getpid()}\n"


async def _answer_maxqueue(parts: DoorParts, arguments: list[str]) -> str:
    """Set the limit `max_run` of a type; 0 removes it. Jobs above the limit wait; gearmand drops them."""
    name = arguments[0] if arguments else ""
    number = parse_whole_number(arguments[1]) if len(arguments) > 1 else None
    if name not in parts.list_types() or (len(arguments) > 1 and number is None):
        return _refuse("invalid_args", "give a task type and a number")
    await parts.operator.set_queue_limits(name, max_run=number or None, reason="maxqueue by Gearman")
    return "OK\n"


async def _answer_shutdown(_: DoorParts, __: list[str]) -> str:
    return _refuse("not_allowed", "stop the service by a signal")


_COMMANDS: Final[dict[str, Callable[[DoorParts, list[str]], Awaitable[str]]]] = {
    "status": _answer_status,
    "workers": _answer_workers,
    "show": _answer_show,
    "cancel": _answer_cancel,
    "version": _answer_version,
    "getpid": _answer_pid,
    "maxqueue": _answer_maxqueue,
    "shutdown": _answer_shutdown,
}
