"""Linux kernel calls that Python does not have, by prctl(2). On other systems each call returns False."""

from __future__ import annotations

import ctypes
import os
import signal
import sys
from typing import Final

IS_LINUX: Final = sys.platform == "linux"
_SET_PARENT_DEATH_SIGNAL: Final = 1
_SET_CHILD_SUBREAPER: Final = 36
_SET_NO_NEW_PRIVILEGES: Final = 38
_GET_NO_NEW_PRIVILEGES: Final = 39

_prctl = ctypes.CDLL(None, use_errno=True).prctl if IS_LINUX else None


def become_subreaper() -> bool:
    """Become the child subreaper: the parent of orphaned descendants."""
    return _call(_SET_CHILD_SUBREAPER, 1) == 0


def die_with_parent(parent: int) -> bool:
    """Let the kernel kill this process when its parent ends; exit if the parent has ended already."""
    is_set = _call(_SET_PARENT_DEATH_SIGNAL, signal.SIGKILL) == 0
    if os.getppid() != parent:
        os._exit(1)
    return is_set


def forbid_new_privileges() -> bool:
    """Set no_new_privs: no program that this process executes gains rights by a set-user-ID bit."""
    return _call(_SET_NO_NEW_PRIVILEGES, 1) == 0


def can_forbid_new_privileges() -> bool:
    """Return whether `forbid_new_privileges` works here."""
    return _call(_GET_NO_NEW_PRIVILEGES, 0) >= 0


def _call(option: int, value: int) -> int:
    if _prctl is None:
        return -1
    # The arguments of prctl(2) are unsigned longs; unused ones must be 0.
    return int(_prctl(option, *map(ctypes.c_ulong, (value, 0, 0, 0))))
