"""Start of a command, with its resource limits and its user.

A keeper spawns a command without limits and user (posix_spawn), because a fork of Python takes several times
as long. For any other command the keeper forks. The child sets limits and user, then executes the program.

Spawning prlimit(1) of util-linux would take less CPU than the fork (1.2 ms instead of 3.1 ms).
But prlimit runs a file without a known header in a shell, and hides which step of the start has failed.
"""

from __future__ import annotations

import errno
import functools
import os
import resource
import signal
from contextlib import suppress
from typing import TYPE_CHECKING, Any, Final

from . import kernel

if TYPE_CHECKING:
    from collections.abc import Sequence

    from .control_group import ControlGroup

_STATUS: Final = 3
"""Descriptor for the error of a command that did not start; it is closed when the command starts."""
_LAST_STREAM: Final = 2
_DESCRIPTORS: Final = "/proc/self/fd"
_MOST_DESCRIPTORS: Final = 1 << 20
_NOT_STARTED: Final = 127


class StartError(Exception):
    """Error: a command did not start.

    Attributes:
        stage: step that failed, such as `cwd`, `user`, `limits`, `cgroup` or `program`.
        number: error number of the operating system (errno).
    """

    def __init__(self, stage: str, number: int) -> None:
        self.stage = stage
        self.number = number
        super().__init__(f"{stage}: {os.strerror(number)}")


def prepare_keeper() -> None:
    """Set what all commands of this keeper inherit: no open descriptors, core dumps or new privileges."""
    kernel.forbid_new_privileges()
    _set_limit(resource.RLIMIT_CORE, 0)
    with suppress(OSError):
        for name in os.listdir(_DESCRIPTORS):  # noqa: PTH208 - as names
            if int(name) > _LAST_STREAM:
                # `listdir` names its own descriptor too, which is closed by now.
                with suppress(OSError):
                    os.set_inheritable(int(name), False)


def can_spawn(order: dict[str, Any], launcher: int) -> bool:
    """Return whether a command can be spawned: `posix_spawn` cannot set limits or a user.

    A spawned command outlives a killed keeper until the launcher kills it, so the launcher must be alive.
    """
    needs_nothing = order.get("user") is None and not any(one is not None for one in order["limits"].values())
    return kernel.IS_LINUX and needs_nothing and os.getppid() == launcher


def spawn_command(order: dict[str, Any], streams: Sequence[int], group: ControlGroup | None) -> int:
    """Start a command as `start_command` does, if `can_spawn` allows it."""
    try:
        os.chdir(order["cwd"])
    except OSError as error:
        raise StartError("cwd", error.errno or errno.EIO) from None
    umask = os.umask(order["umask"])
    try:
        pid = os.posix_spawn(
            order["argv"][0],
            order["argv"],
            order["env"],
            file_actions=[(os.POSIX_SPAWN_DUP2, one, place) for place, one in enumerate(streams)],
            setsid=True,
            setsigmask=(),
            setsigdef=_find_ignored_signals(),
        )
    except OSError as error:
        raise StartError("program", error.errno or errno.EIO) from None
    finally:
        os.umask(umask)
        os.chdir("/")
    if group is not None:
        # Processes that the command started before this line stay outside the group; /proc shows their
        # parents.
        try:
            group.add(pid)
        except ProcessLookupError:
            pass
        except OSError as error:
            os.kill(pid, signal.SIGKILL)
            raise StartError("cgroup", error.errno or errno.EIO) from None
    return pid


def start_command(order: dict[str, Any], streams: Sequence[int], group: ControlGroup | None) -> int:
    """Start a command; return its process id.

    Args:
        order: `argv`, `env`, `cwd`, `umask`, `limits`, and `user` with the ids of user and groups.
        streams: descriptors of its standard input, output and error.
        group: control group that it joins.

    Raises:
        StartError: it did not start.
    """
    read, write = os.pipe()
    parent = os.getpid()
    _find_ignored_signals()  # once, before the fork
    pid = os.fork()
    if pid == 0:
        _replace(order, streams, group, write, parent)
    os.close(write)
    with os.fdopen(read, "rb") as status:
        told = status.read()
    if told:
        os.waitpid(pid, 0)
        stage, _, number = told.decode().partition(" ")
        raise StartError(stage, int(number))
    return pid


def _replace(
    order: dict[str, Any], streams: Sequence[int], group: ControlGroup | None, status: int, parent: int
) -> None:
    """Execute the program of a command in place of this process; end it if that fails."""
    stage = ["start"]
    try:
        _prepare(streams, group, status, stage)
        _limit(order, group, stage)
        kernel.forbid_new_privileges()
        # The kernel resets this setting when the process changes its user.
        kernel.die_with_parent(parent)
        stage[0] = "program"
        os.execve(order["argv"][0], order["argv"], order["env"])  # noqa: S606 - no shell reads it
    except MemoryError:
        _tell(stage[0], errno.ENOMEM)
    except OSError as error:
        _tell(stage[0], error.errno or errno.EIO)
    except BaseException:  # noqa: BLE001 - this process must not go on as a second keeper
        _tell(stage[0], errno.EINVAL)
    finally:
        os._exit(_NOT_STARTED)


def _tell(stage: str, number: int) -> None:
    os.write(_STATUS, f"{stage} {number}".encode())


def _prepare(streams: Sequence[int], group: ControlGroup | None, status: int, stage: list[str]) -> None:
    """Close all descriptors except the streams, and reset the signal settings of the keeper."""
    for place, descriptor in enumerate(streams):
        os.dup2(descriptor, place)
    os.dup2(status, _STATUS, inheritable=False)
    os.closerange(_STATUS + 1, _MOST_DESCRIPTORS)
    os.setsid()
    # Python ignores some signals, and the launcher others; a program would inherit that.
    for number in _find_ignored_signals():
        signal.signal(number, signal.SIG_DFL)
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    if group is not None:
        stage[0] = "cgroup"
        group.join()


@functools.cache
def _find_ignored_signals() -> list[int]:
    """Return the signals that this process ignores; called once, before its first command."""
    return [one for one in signal.valid_signals() if signal.getsignal(one) is signal.SIG_IGN]


def _limit(order: dict[str, Any], group: ControlGroup | None, stage: list[str]) -> None:
    """Set resource limits, user, working folder and umask.

    The process limit is set after the change of user, because the kernel counts the new user's processes.
    """
    limits = order["limits"]
    stage[0] = "limits"
    _set_limit(resource.RLIMIT_CORE, 0)
    _set_limit(resource.RLIMIT_NOFILE, limits.get("files"))
    _set_limit(resource.RLIMIT_FSIZE, limits.get("file_size"))
    if (cpu := limits.get("cpu")) is not None:
        # The hard limit is one second higher. At this limit, SIGKILL ends a program that catches SIGXCPU.
        _set_limit(resource.RLIMIT_CPU, max(1, int(cpu)), grace=1)
    if order.get("user") is not None:
        stage[0] = "user"
        user, main_group, groups = order["user"]
        os.setgroups(groups)
        os.setgid(main_group)
        os.setuid(user)
    stage[0] = "cwd"
    os.chdir(order["cwd"])
    os.umask(order["umask"])
    stage[0] = "limits"
    if group is None or not group.limits_processes:
        _set_limit(resource.RLIMIT_NPROC, limits.get("processes"))
    if group is None or not group.limits_memory:
        _set_limit(resource.RLIMIT_AS, limits.get("memory"))


def _set_limit(kind: int, value: int | None, *, grace: int = 0) -> None:
    """Set a soft resource limit, and a hard limit that is `grace` higher.

    Neither becomes higher than the present hard limit.
    """
    if value is not None:
        most = resource.getrlimit(kind)[1]
        wanted = (value, value + grace)
        soft, hard = wanted if most == resource.RLIM_INFINITY else (min(one, most) for one in wanted)
        resource.setrlimit(kind, (soft, hard))
