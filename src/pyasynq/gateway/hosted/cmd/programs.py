"""Checks of commands against this machine: program, folder and user, before any task runs them."""

from __future__ import annotations

import os
import pwd
import stat
from pathlib import Path
from typing import TYPE_CHECKING

from pyasynq.errors import InvalidOptionError

from .isolation import is_root

if TYPE_CHECKING:
    from pyasynq.gateway.configurations import CommandSettings


def check_command(name: str, command: CommandSettings) -> None:
    """Check program, folder and user of a task type's command.

    Raises:
        InvalidOptionError: the command cannot run here, or its program could be replaced, because it is
            writable. The error names the field.
    """
    _check_program(f"tasks.{name}.argv[0]", Path(command.program))
    if command.cwd is not None and not Path(command.cwd).is_dir():
        raise InvalidOptionError(f"tasks.{name}.cwd", str, "is not a folder of this machine")
    if command.user is not None:
        find_user(f"tasks.{name}.user", command.user)


def find_user(path: str, user: str) -> tuple[int, int, list[int]]:
    """Return the ids of a user, its main group, and all its groups.

    Raises:
        InvalidOptionError: the user does not exist, or the service does not run as root and is another user.
    """
    try:
        found = pwd.getpwnam(user)
    except KeyError:
        raise InvalidOptionError(path, str, "this machine has no such user") from None
    if not is_root() and found.pw_uid != os.geteuid():
        remedy = "needs a service that runs as root: leave it out, or run the service as this user"
        raise InvalidOptionError(path, str, remedy)
    return found.pw_uid, found.pw_gid, os.getgrouplist(user, found.pw_gid)


def _check_program(path: str, program: Path) -> None:
    try:
        real = program.resolve(strict=True)
        mode = real.stat().st_mode
    except (OSError, RuntimeError):
        raise InvalidOptionError(path, str, "there is no such program on this machine") from None
    if not stat.S_ISREG(mode) or not os.access(real, os.X_OK):
        raise InvalidOptionError(path, str, "is not a program that the service's user may execute")
    if mode & stat.S_IWOTH:
        raise InvalidOptionError(path, str, "any user could replace the program: chmod o-w")
    if is_root():
        return
    if os.access(real, os.W_OK) or os.access(real.parent, os.W_OK):
        remedy = (
            "the service's user may write to the program or its folder, so that a task which goes astray "
            "could replace what later tasks run: give both to root"
        )
        raise InvalidOptionError(path, str, remedy)
