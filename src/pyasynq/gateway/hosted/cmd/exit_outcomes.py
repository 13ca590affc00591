"""Outcome of a task by how its command ended: exit code, signal, or limit."""

from __future__ import annotations

import errno
import os
import signal
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq._human_text import bytes_text, duration
from pyasynq.control import Archive, Retry, Snooze

if TYPE_CHECKING:
    from pyasynq.control import Control
    from pyasynq.gateway.configurations import CommandLimits, CommandSettings

_ARCHIVED: Final = frozenset({os.EX_USAGE, os.EX_DATAERR, os.EX_NOPERM, os.EX_CONFIG})
"""Exit codes of sysexits.h for errors that another attempt cannot fix: 64, 65, 77 and 78."""
_NEAR: Final = 0.8
"""Fraction of the memory limit; if a failed command used more, its error mentions the limit."""
_STAGES: Final = {
    "folder": "the fresh folder of the attempt could not be made",
    "cgroup": "the control group of the command could not be made or joined",
    "limits": "the limits of the command could not be set",
    "user": "the user of the command could not be taken on",
    "cwd": "the folder of the command could not be entered",
    "program": "the program could not be started",
}


@dataclass(frozen=True, slots=True)
class CommandEnd:
    """End of a command: its wait status, and the resources that it used.

    Attributes:
        status: wait status of the program, as `os.wait` returns it.
        cpu: CPU seconds of all its processes.
        memory: peak memory (resident set) of its largest process, in bytes.
        left: number of processes that could not be killed.
        memory_kills: number of processes that the kernel killed for the memory limit of the control group.
        refused_forks: number of forks that the control group's process limit refused.
    """

    status: int | None
    cpu: float = 0.0
    memory: int = 0
    left: int = 0
    memory_kills: int = 0
    refused_forks: int = 0


def judge_end(end: CommandEnd, command: CommandSettings, last_line: str = "") -> Control | None:
    """Return the outcome that the end of a command means; None if the task is done.

    Args:
        end: end of the command.
        command: command of the task type.
        last_line: last line of its standard error, which the task's error ends with.
    """
    code = os.waitstatus_to_exitcode(end.status or 0)
    if code in command.snooze_codes:
        return Snooze(command.snooze_codes[code])
    if code == 0 or code in command.success_codes:
        return None
    told = f": {last_line}" if last_line else ""
    if code < 0:
        return Retry(reason=f"{_describe_signal(-code, end, command.limits)}{told}")
    reason = f"exit code {code}{_describe_limits(end, command.limits)}{told}"
    is_final = code in command.archive_codes or (code in _ARCHIVED and code not in command.retry_codes)
    return Archive(reason) if is_final else Retry(reason=reason)


def judge_failed_start(stage: str, number: int) -> Control:
    """Return the outcome of a command that did not start."""
    if stage == "program" and number == errno.E2BIG:
        return Archive("the arguments of the command are too long for this system")
    said = _STAGES.get(stage, "the command could not be started")
    return Retry(reason=f"{said}: {os.strerror(number)}")


def describe_program_end(status: int | None) -> str:
    """Return how a program has ended, for the log: `exit code 3`, `signal SIGSEGV`."""
    code = os.waitstatus_to_exitcode(status or 0)
    return f"exit code {code}" if code >= 0 else f"signal {_name_signal(-code)}"


def find_killing_limit(end: CommandEnd, limits: CommandLimits) -> str:
    """Return the limit at which a command was killed: `memory`, `cpu`, `file_size`; else empty."""
    number = -os.waitstatus_to_exitcode(end.status or 0)
    if number <= 0:
        return ""
    if end.memory_kills and limits.memory is not None:
        return "memory"
    is_at_cpu_limit = limits.cpu is not None and end.cpu >= limits.cpu
    if limits.cpu is not None and (
        number == signal.SIGXCPU or (number == signal.SIGKILL and is_at_cpu_limit)
    ):
        return "cpu"
    return "file_size" if number == signal.SIGXFSZ and limits.file_size is not None else ""


def _describe_signal(number: int, end: CommandEnd, limits: CommandLimits) -> str:
    match find_killing_limit(end, limits):
        case "memory":
            return f"killed at its memory limit of {bytes_text(limits.memory or 0)}"
        case "cpu":
            return f"killed at its CPU limit of {duration(limits.cpu or 0)}"
        case "file_size":
            return f"killed at its limit of {bytes_text(limits.file_size or 0)} for a file"
    return f"killed by signal {_name_signal(number)}{_describe_limits(end, limits)}"


def _describe_limits(end: CommandEnd, limits: CommandLimits) -> str:
    """Return a clause about the limits that the command reached; empty if it reached none."""
    said = []
    if limits.memory is not None and end.memory >= limits.memory * _NEAR:
        said.append(f"near its memory limit of {bytes_text(limits.memory)}")
    if end.refused_forks and limits.processes is not None:
        said.append(f"at its limit of {limits.processes:,} processes")
    return f" ({', '.join(said)})" if said else ""


def _name_signal(number: int) -> str:
    try:
        return signal.Signals(number).name
    except ValueError:
        return str(number)
