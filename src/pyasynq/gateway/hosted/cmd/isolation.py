"""Isolation of commands: the mechanisms that this host offers, and the missing ones."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Final

from pyasynq.errors import ConfigurationError

from .launcher import kernel
from .launcher.control_group import can_make_groups, find_own_group

if TYPE_CHECKING:
    from pathlib import Path

    from pyasynq.gateway.configurations import CommandRules

_NO_GROUPS: Final = "control groups (this host has no cgroup v2 in which the service may make some)"
_NO_SUBREAPER: Final = "death of processes that leave the command's process group (it needs Linux)"
_NO_PRIVILEGES: Final = "a bar to programs that gain rights, as by set-user-ID (it needs Linux)"


@dataclass(frozen=True, slots=True)
class Isolation:
    """Isolation of commands on this host.

    Attributes:
        group: control group, in which each command gets a child group; None to use no control groups.
        missing: mechanisms that the host does not offer.
    """

    group: Path | None = None
    missing: tuple[str, ...] = ()

    def describe(self) -> str:
        """Return a clause about the isolation for the log."""
        kind = "process trees and control groups" if self.group is not None else "process trees"
        return f"commands are isolated by {kind}" + "".join(f"; missing: {one}" for one in self.missing)


def find_isolation(rules: CommandRules) -> Isolation:
    """Return the isolation that the rules ask for, as far as this host offers it.

    Raises:
        ConfigurationError: the rules require the isolation, and the host lacks a part.
    """
    missing = []
    if not kernel.IS_LINUX:
        missing.append(_NO_SUBREAPER)
    if not kernel.can_forbid_new_privileges():
        missing.append(_NO_PRIVILEGES)
    group = find_own_group() if rules.isolation != "process" else None
    if group is not None and not can_make_groups(group):
        group = None
    if group is None and rules.isolation != "process":
        missing.append(_NO_GROUPS)
    if rules.require and missing:
        remedy = "run it where there is that, or take commands.require out of the file"
        raise ConfigurationError(f"commands.require: this host lacks {'; '.join(missing)}: {remedy}")
    return Isolation(group, tuple(missing))


def is_root() -> bool:
    """Return whether this process runs as root."""
    return os.geteuid() == 0
