"""Permissions of operators, the roles that bundle them, and the user who has them for some queues."""

from __future__ import annotations

import enum
from dataclasses import dataclass, field
from types import MappingProxyType
from typing import TYPE_CHECKING, Final

from pyasynq.errors import InvalidOptionError, nearest

from .patterns import EVERYTHING, matches_any

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class Permission(enum.StrEnum):
    """A named right of a user for all queues that match some patterns."""

    TASKS_VIEW = "tasks.view"
    """See queues, tasks, servers, schedules and findings; payloads, results and headers are withheld."""
    PAYLOAD_VIEW = "payload.view"
    """See payloads, results, headers, progress and whole errors, without the secrets in them."""
    TASKS_RUN = "tasks.run"
    """Run waiting or failed tasks now, and change when they are due."""
    TASKS_CANCEL = "tasks.cancel"
    """Cancel running tasks."""
    TASKS_ARCHIVE = "tasks.archive"
    """Archive tasks."""
    TASKS_DELETE = "tasks.delete"
    """Delete tasks, and undo deletions."""
    TASKS_EDIT = "tasks.edit"
    """Change payloads and options of tasks, and move tasks to another queue."""
    TASKS_ENQUEUE = "tasks.enqueue"
    """Enqueue tasks, copies of others included."""
    QUEUES_PAUSE = "queues.pause"
    """Pause and resume queues."""
    QUEUES_LIMITS = "queues.limits"
    """Change the limits and the order of queues."""
    QUEUES_DELETE = "queues.delete"
    """Delete queues."""
    SERVERS_STOP = "servers.stop"
    """Quiet and stop servers, if the user has this right for all of their queues."""
    SCHEDULES_RUN = "schedules.run"
    """Run the task of a schedule now."""
    SCHEDULES_PAUSE = "schedules.pause"
    """Pause and resume schedules."""
    OPERATIONS_RUN = "operations.run"
    """Act on many tasks at once, with the permission of the verb; set marks, share views, snooze findings."""
    DOCTOR_REPAIR = "doctor.repair"
    """Repair what the doctor finds."""
    AUDIT_VIEW = "audit.view"
    """Read the audit, as far as it concerns the queues that the user sees."""
    SETTINGS_ADMIN = "settings.admin"
    """Change settings of all users, and see Redis' reports about itself."""


class ProgramPermission(enum.StrEnum):
    """A right of programs. The role `admin` has three of these rights; other roles have none."""

    WORK_LEASE = "work.lease"
    """Take tasks and settle them."""
    RESULTS_READ = "results.read"
    """Wait for a task by its id, and read its result."""
    TYPES_EDIT = "types.edit"
    """Change configurations of task types."""
    KEYS_ADMIN = "keys.admin"
    """Make and revoke API keys."""
    METRICS_READ = "metrics.read"
    """Read metrics of all queues."""


AnyPermission = Permission | ProgramPermission

_ADMIN: Final = frozenset(Permission)
_RESERVED: Final = {Permission.QUEUES_DELETE, Permission.DOCTOR_REPAIR, Permission.SETTINGS_ADMIN}

ROLES: Final[Mapping[str, frozenset[AnyPermission]]] = MappingProxyType(
    {
        "viewer": frozenset({Permission.TASKS_VIEW}),
        "operator": _ADMIN - _RESERVED,
        "admin": _ADMIN
        | {ProgramPermission.KEYS_ADMIN, ProgramPermission.METRICS_READ, ProgramPermission.TYPES_EDIT},
    }
)
"""Permissions of each role, the weakest role first."""

_BY_NAME: Final[Mapping[str, AnyPermission]] = {
    **{one.value: one for one in Permission},
    **{one.value: one for one in ProgramPermission},
}


def permission_named(name: str) -> AnyPermission:
    """Return the permission of this name. Raises `InvalidOptionError` if there is none."""
    try:
        return _BY_NAME[name]
    except KeyError:
        known = f"must be the name of a permission{nearest(str(name), _BY_NAME)}"
        raise InvalidOptionError("permission", name, known) from None


@dataclass(frozen=True, slots=True)
class User:
    """A person or a program, with permissions and the way of authentication.

    Use `User.with_role` for one of the three roles, or give `grants` for anything else.
    """

    name: str
    grants: Mapping[AnyPermission, tuple[str, ...]] = field(default_factory=dict)
    """Patterns of queue names for which the user has a permission, by permission."""
    role: str = ""
    """Name of the role, for display; it grants nothing by itself."""
    login: str = ""
    """Way in which the user was authenticated, such as `password`, `oidc`, `proxy`, `key` or `cli`."""
    address: str = ""
    """Network address that the user comes from; empty for the command line."""

    @classmethod
    def with_role(
        cls,
        name: str,
        role: str,
        *,
        queues: str | Iterable[str] = EVERYTHING,
        login: str = "",
        address: str = "",
    ) -> User:
        """Return a user with the permissions of a role, for the queues that match one of the patterns.

        Raises:
            InvalidOptionError: if there is no such role.
        """
        if role not in ROLES:
            known = ", ".join(ROLES)
            raise InvalidOptionError("role", role, f"must be one of {known}{nearest(str(role), ROLES)}")
        patterns = (queues,) if isinstance(queues, str) else tuple(queues)
        return cls(name, dict.fromkeys(ROLES[role], patterns), role, login, address)

    @classmethod
    def local(cls) -> User:
        """Return the person at this terminal, `USER@HOST`, who may do everything that Redis allows."""
        import getpass  # noqa: PLC0415 - needed at a terminal only
        import socket  # noqa: PLC0415 - needed at a terminal only

        try:
            person = getpass.getuser()
        except (KeyError, OSError, ImportError):  # no entry for this user id, as in some containers
            person = "unknown"
        return cls.with_role(f"{person}@{socket.gethostname()}", "admin", login="cli")

    def patterns(self, permission: AnyPermission) -> tuple[str, ...]:
        """Return the patterns of the queues for which the user has a permission."""
        return self.grants.get(permission, ())


@dataclass(frozen=True, slots=True)
class Access:
    """Permissions of one user in one interface (dashboard, command line or HTTP API), within its limits."""

    user: User
    queues: tuple[str, ...] = (EVERYTHING,)
    """Patterns of the queues that the interface shows to any user."""
    read_only: bool = False
    """Whether the interface refuses every change, whatever the user's permissions are."""

    def __post_init__(self) -> None:
        """Check that `user` is a `User`, not a name. Raises `InvalidOptionError`."""
        user: object = self.user
        if not isinstance(user, User):
            raise InvalidOptionError("user", type(user).__name__, "must be a User, such as User.local()")

    def may(self, permission: AnyPermission, queue: str) -> bool:
        """Return whether the user has a permission for a queue."""
        patterns = self.user.patterns(permission)
        return bool(patterns) and matches_any(queue, self.queues) and matches_any(queue, patterns)

    def may_everywhere(self, permission: AnyPermission) -> bool:
        """Return whether the user has a permission for every queue, also for those that do not exist yet."""
        return EVERYTHING in self.queues and EVERYTHING in self.user.patterns(permission)

    def may_somewhere(self, permission: AnyPermission) -> bool:
        """Return whether the user has a permission for any pattern of queues, which may match no queue."""
        return bool(self.queues) and bool(self.user.patterns(permission))

    def sees(self, queue: str) -> bool:
        """Return whether the user may know that a queue exists."""
        return self.may(Permission.TASKS_VIEW, queue)
