"""Completion callbacks: tasks that are enqueued when other tasks have ended."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Final, Protocol, runtime_checkable

from pyasynq._checks import check_new_name, is_whole
from pyasynq.errors._configuration import InvalidOptionError

if TYPE_CHECKING:
    from typing import Self

CALLBACK_ARGUMENTS: Final = ("id", "type", "outcome", "error")
"""Arguments of every callback, which are all text.

`outcome` is `"succeeded"`, `"archived"`, `"cancelled"` or `"deleted"`. `error` is the beginning of the last
error, empty if there was none.
"""


@dataclass(frozen=True, slots=True)
class Callback:
    """A task that is to be enqueued when another one has ended: `on_finished=Callback("report:ready")`.

    Its payload is a JSON object with the texts `id`, `type`, `outcome` and `error`.

    Attributes:
        type: its task type.
        queue: its queue.
        max_retry: maximum number of retries.
        timeout: time limit of one attempt, in whole seconds.
        retention: whole seconds for which it is kept after its success.

    Raises:
        InvalidOptionError: for a blank name, and for a number below zero.
    """

    type: str
    queue: str = "default"
    max_retry: int = 25
    timeout: int = 1800
    retention: int = 0

    def __post_init__(self) -> None:
        check_new_name("type", self.type)
        check_new_name("queue", self.queue)
        for name, least in (("max_retry", 0), ("timeout", 1), ("retention", 0)):
            value = getattr(self, name)
            if not is_whole(value, least) or value >= 1 << 31:
                raise InvalidOptionError(name, value, f"must be a whole number of at least {least}")

    def __pyasynq_callback__(self) -> Self:
        """Return this callback."""
        return self


@runtime_checkable
class HasCallback(Protocol):
    """Protocol of the values that `on_finished` takes: a `Callback`, or a typed task of an app."""

    def __pyasynq_callback__(self) -> Callback:
        """Return the callback to enqueue."""


def read_callback(name: str, value: object) -> Callback:
    """Return the callback that was given as the value of an option.

    Raises:
        InvalidOptionError: for a value that is neither a `Callback` nor a typed task.
        ConfigurationError: for a task that does not take the arguments of a callback.
    """
    if not isinstance(value, HasCallback):
        raise InvalidOptionError(
            name, value, "must be a task of the app, or Callback(type, queue) for one that is elsewhere"
        )
    return value.__pyasynq_callback__()
