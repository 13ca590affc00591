"""Commands of the text protocol, as `gearadmin` and monitoring programs send them."""

from __future__ import annotations

import os
from importlib.metadata import version
from typing import TYPE_CHECKING, Final

from pyasynq._checks import parse_whole_number
from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from .parts import DoorParts

_END: Final = ".\n"


async def answer_command(parts: DoorParts, line: bytes) -> bytes:
    """Return the answer to a line."""
    word, *arguments = line.decode("utf-8", "replace").split() or [""]
    command = _COMMANDS.get(word.lower())
    if command is None:
        return b"ERR unknown_command Unknown+server+command\n"
    try:
        answer = await command(parts, arguments)
    except PyasynqError as error:
        answer = _refuse("failed", visible(error))
    return answer.encode()


def _refuse(code: str, text: str) -> str:
    return f"ERR {code} {text.replace(' ', '+')}\n"


async def _answer_status(parts: DoorParts, _: list[str]) -> str:
    """Function, jobs that wait or run, jobs that run, workers of this instance."""
    types = [name for name, one in parts.list_types().items() if one.kind == "worker"]
    infos = await parts.operator.queue_infos(types)
    known = {info.queue: info for info in infos}
    lines = []
    for name in sorted(types):
        info = known.get(name)
        running = 0 if info is None else info.active
        waiting = 0 if info is None else info.pending
        lines.append(f"{visible(name)}\t{waiting + running}\t{running}\t{parts.count_workers(name)}\n")
    return "".join([*lines, _END])


async def _answer_workers(parts: DoorParts, _: list[str]) -> str:
    """Address, name and functions of each connection of this instance."""
    lines = []
    for number, session in enumerate(parts.sessions, 1):
        functions = " ".join(visible(name) for name in session.worker.functions)
        lines.append(f"{number} {session.address} {session.name} : {functions}\n")
    return "".join([*lines, _END])


async def _answer_version(_: DoorParts, __: list[str]) -> str:
    return f"OK {version('pyasynq')}\n"


async def _answer_pid(_: DoorParts, __: list[str]) -> str:
    return f"OK {os.getpid()}\n"


async def _answer_maxqueue(parts: DoorParts, arguments: list[str]) -> str:
    """Set `max_run` of a type, or remove it by 0. Jobs above it wait, where gearmand drops them."""
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
    "version": _answer_version,
    "getpid": _answer_pid,
    "maxqueue": _answer_maxqueue,
    "shutdown": _answer_shutdown,
}
