"""Hooks of an app: functions that a worker calls when an attempt has ended, and at its own start and end."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, Literal, TypeAlias

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable

    from pyasynq.context import CancelReason
    from pyasynq.events import Outcome

    AttemptHook: TypeAlias = Callable[["AttemptEnd"], Awaitable[None] | None]
    WorkerHook: TypeAlias = Callable[[], Awaitable[None] | None]

HookKind: TypeAlias = Literal["error", "retry", "archived", "success"]
"""Kind of a hook: called for a failed attempt, for a retried or archived task, or for a success."""

HOOK_SECONDS: Final = 5.0
"""Maximum seconds that one hook may run."""


@dataclass(frozen=True, slots=True)
class AttemptEnd:
    """The end of an attempt, for hooks. It holds no payload, which may be secret."""

    queue: str
    task_id: str
    task_type: str
    """Type of the task; empty if the task cannot be decoded."""
    retried: int
    """Number of retries spent before this attempt."""
    max_retry: int
    outcome: Outcome | None
    """Outcome of the attempt; None if its worker died and the task is pending again."""
    error: BaseException | None
    """The error of the attempt, without its traceback; `WorkerDiedError` if the worker died."""
    traceback: str = field(default="", repr=False)
    """The error's traceback as text, as it is stored with the task."""
    reason: CancelReason | None = None
    """Why the attempt was cancelled; None if it was not."""
    seconds: float | None = None
    """Duration of the attempt in seconds; None if its worker died."""
    delay: float | None = None
    """Seconds until the next attempt; None if there is none, or it starts at once."""


@dataclass(slots=True)
class Hooks:
    """Hooks by kind, in the order of their declaration. Written by the app, read by its workers."""

    error: list[AttemptHook] = field(default_factory=list)
    retry: list[AttemptHook] = field(default_factory=list)
    archived: list[AttemptHook] = field(default_factory=list)
    success: list[AttemptHook] = field(default_factory=list)
    start: list[WorkerHook] = field(default_factory=list)
    stop: list[WorkerHook] = field(default_factory=list)

    def of(self, kind: HookKind) -> list[AttemptHook]:
        """Return the hooks of a kind."""
        found: list[AttemptHook] = getattr(self, kind)
        return found

    @property
    def watch_attempts(self) -> bool:
        """Whether a hook for ends of attempts is registered."""
        return bool(self.error or self.retry or self.archived or self.success)


def name_of_hook(hook: Any) -> str:
    """Return the name of a hook for logs."""
    return getattr(hook, "__qualname__", type(hook).__qualname__)
