"""Access control for leases: the API key of a request, and the queues that it may use."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, TypeAlias

from pyasynq._visible_text import visible
from pyasynq.errors import nearest
from pyasynq.operations.patterns import matches_any
from pyasynq.web.api.problem import ProblemError

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Collection, Iterable

    from starlette.requests import Request


Authenticate: TypeAlias = "Callable[[Request], Awaitable[WorkKey | None]]"
"""Function that returns the API key of a request; None if it has none that is valid."""
WORK_SCOPE: Final = "work"


class WorkKey(Protocol):
    """Protocol of an API key: the fields that the lease routes read."""

    @property
    def id(self) -> str:
        """The key's id; tokens are bound to it."""

    @property
    def scopes(self) -> Collection[str]:
        """Names of the key's scopes; leases need `work`."""

    @property
    def queues(self) -> Iterable[str]:
        """Patterns of the queues that the key may use."""


@dataclass(frozen=True, slots=True)
class _CallbackKey:
    """Stand-in for an API key: hosts of `http` tasks settle by the lease token in the request alone."""

    id: str = "callback"
    scopes: frozenset[str] = frozenset({WORK_SCOPE})
    queues: tuple[str, ...] = ("*",)


CALLBACK_KEY: Final[WorkKey] = _CallbackKey()
"""Stand-in API key for requests with the lease token of a host: the token alone may settle its attempt."""


async def admit(request: Request, authenticate: Authenticate) -> WorkKey:
    """Return the API key of a request.

    Raises:
        ProblemError: the request has no valid key, or a key without the scope `work`.
    """
    key = await authenticate(request)
    if key is None:
        raise no_key()
    if WORK_SCOPE not in key.scopes:
        raise missing_scope(WORK_SCOPE)
    return key


def no_key() -> ProblemError:
    """Return the problem of a request without a valid API key."""
    detail, remedy = "The request has no valid API key.", "Send Authorization: Bearer KEY."
    headers = {"WWW-Authenticate": 'Bearer realm="pyasynq"'}
    return ProblemError(401, "no_key", detail, remedy, headers=headers)


def missing_scope(scope: str) -> ProblemError:
    """Return the problem of a key without the scope that the request needs."""
    remedy = f"Use a key with the scope {scope}."
    return ProblemError(403, "missing_scope", f"This key lacks the scope {scope}.", remedy, scope=scope)


def may_use(key: WorkKey, queue: str) -> bool:
    """Return whether a key may use a queue."""
    return matches_any(queue, key.queues)


def check_queue(key: WorkKey, queue: str, known: Collection[str] | None) -> None:
    """Check that a key may lease from a queue. The problem does not show the names of hidden queues.

    Args:
        key: key of the request.
        queue: name of the queue.
        known: names of all queues; None for any.

    Raises:
        ProblemError: the queue is unknown, or hidden from this key.
    """
    if may_use(key, queue) and (known is None or queue in known):
        return
    near = nearest(queue, (name for name in known or () if may_use(key, name)))
    remedy = (near.removeprefix("; ") or "name a queue that is configured, and that this key may use") + (
        "" if near else "."
    )
    detail = f"Queue {visible(queue)} is unknown to this key."
    raise ProblemError(404, "queue_not_found", detail, remedy[0].upper() + remedy[1:], field="queues")
