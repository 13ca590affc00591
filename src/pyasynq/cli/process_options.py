"""Hidden options with which a supervisor starts its child processes."""

from __future__ import annotations

import os
import stat
from typing import Final

import click

SUPERVISED: Final = "--supervised"
SUPERVISOR: Final = "--supervisor"
LISTENER: Final = "--listener"


def inherited_socket(_ctx: click.Context, _param: click.Parameter, value: int | None) -> int | None:
    """Check that the value of an option is the file descriptor of a socket inherited from the supervisor.

    Raises:
        BadParameter: if it is not a socket.
    """
    try:
        is_socket = value is None or stat.S_ISSOCK(os.fstat(value).st_mode)
    except (OSError, OverflowError):
        is_socket = False
    if not is_socket:
        raise click.BadParameter(
            f"{value} is not a socket of a supervisor, which alone sets this option: use --processes"
        )
    return value
