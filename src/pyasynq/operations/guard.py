"""One call of an `Operator` method (verb): its arguments, and the check of its permissions. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final

from pyasynq.errors import PermissionDeniedError, QueueNotFoundError

from .operation import PERMISSION_OF_ACT, Act
from .permissions import ROLES, Access, AnyPermission
from .verbs import Subject, Verb

if TYPE_CHECKING:
    import inspect
    from collections.abc import Sequence
    from types import FunctionType

_ARGUMENTS: Final = {
    Subject.QUEUE: "queue",
    Subject.QUEUES: "queues",
    Subject.SERVER: "server_id",
    Subject.SERVERS: "server_ids",
    Subject.ENTRY: "entry_id",
    Subject.TARGETS: "targets",
    Subject.OPERATION: "operation_id",
}


class OperatorCall:
    """A call of a method of `Operator`, with its arguments by name.

    Args:
        verb: the method's row in `VERBS`.
        bound: arguments of the call; the first one is the operator.

    Attributes:
        concerns: queues of the server, schedule or operation that the call names.
        needed: permissions that the call needs.
    """

    def __init__(self, verb: Verb, bound: inspect.BoundArguments) -> None:
        self.verb = verb
        self._bound = bound
        self.concerns: tuple[str, ...] = ()
        self.needed = verb.needed

    @staticmethod
    def check(verb: Verb, method: FunctionType) -> None:
        """Raise `TypeError` if a method lacks the argument that holds its subject, such as `queue`."""
        name = _ARGUMENTS.get(verb.subject)
        code = method.__code__
        if name is not None and name not in code.co_varnames[: code.co_argcount + code.co_kwonlyargcount]:
            raise TypeError(f"{verb.name} is about {verb.subject.value}, and takes no argument {name!r}")

    @property
    def args(self) -> tuple[Any, ...]:
        """Positional arguments for the method, the operator first."""
        return self._bound.args

    @property
    def kwargs(self) -> dict[str, Any]:
        """Named arguments for the method."""
        return self._bound.kwargs

    @property
    def arguments(self) -> dict[str, Any]:
        """All arguments that were given, by name."""
        return dict(self._bound.arguments)

    def argument(self, name: str) -> Any:
        """Return an argument; None if it was not given."""
        return self._bound.arguments.get(name)

    @property
    def queue(self) -> str:
        """Queue that the call is about; empty if the call is not about a single queue."""
        return str(self.argument("queue") or "")

    @property
    def queues(self) -> Sequence[str] | None:
        """The queues that the call is about; None for all."""
        names = self.argument("queues")
        return [names] if isinstance(names, str) else names

    @queues.setter
    def queues(self, names: Sequence[str]) -> None:
        self._bound.arguments["queues"] = names

    def name_servers(self, server_ids: Sequence[str]) -> None:
        """Replace the version in the call's arguments by the ids of the chosen servers."""
        self._bound.arguments["server_ids"] = server_ids

    def is_allowed(self, access: Access, queue: str) -> bool:
        """Return whether the user has every needed permission for a queue."""
        return all(access.may(permission, queue) for permission in self.needed)

    def add_act(self, act: Act) -> None:
        """Add the permission that an operation needs for its act."""
        self.needed = (*self.verb.needed, PERMISSION_OF_ACT[act])


def require_for_queue(access: Access, verb: Verb, queue: str, needed: tuple[AnyPermission, ...] = ()) -> None:
    """Check that the user has the permissions of a verb for one queue.

    `needed`, if given, replaces the permissions of the verb.

    Raises:
        QueueNotFoundError: the user does not see the queue, whether it exists or not.
        PermissionDeniedError: the user sees it, and lacks a permission.
    """
    for permission in needed or verb.needed:
        if not access.may(permission, queue):
            if not access.sees(queue):
                raise QueueNotFoundError(queue)
            raise denied(access, verb, queue, permission)


def require_somewhere(access: Access, verb: Verb, needed: tuple[AnyPermission, ...] = ()) -> None:
    """Check that the user has each permission of a verb for at least one pattern of queues.

    `needed`, if given, replaces the permissions of the verb.

    Raises:
        PermissionDeniedError: the user lacks one of these permissions for every pattern of queues.
    """
    for permission in needed or verb.needed:
        if not access.may_somewhere(permission):
            raise denied(access, verb, "", permission)


def require_everywhere(access: Access, verb: Verb) -> None:
    """Check that the user has the permissions of a verb for all queues.

    Raises:
        PermissionDeniedError: the user lacks one of the permissions.
    """
    for permission in verb.needed:
        if not access.may_everywhere(permission):
            raise denied(access, verb, "", permission)


def denied(
    access: Access, verb: Verb, queue: str, permission: AnyPermission | None = None
) -> PermissionDeniedError:
    """Return the error of a refused call: a missing permission, or a change through a read-only interface."""
    if verb.changes and access.read_only:
        return PermissionDeniedError(access.user.name, verb.name, "", queue)
    missing = permission or verb.permission
    holders = tuple(role for role, permissions in ROLES.items() if missing in permissions)
    return PermissionDeniedError(access.user.name, verb.name, missing.value, queue, holders)
