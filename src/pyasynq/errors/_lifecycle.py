"""Errors of servers, schedulers and test kits in the wrong state."""

from typing import TYPE_CHECKING

from pyasynq._human_text import counted
from pyasynq.errors._base import PyasynqError
from pyasynq.errors._configuration import ConfigurationError

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping


class ServerStateError(PyasynqError, RuntimeError):
    """The server's state does not allow the request, such as a second start."""


class ForeignRedisError(ConfigurationError):
    """A test kit is in use, and the program tried to reach a Redis that is not the kit's.

    Attributes:
        address: where that Redis is, without the password.
    """

    def __init__(self, address: str) -> None:
        super().__init__(
            f"a test kit is in use, and something wants to speak to Redis at {address}, which is not the "
            "kit's: go through the app under test or the kit's url, or allow it by use(..., allow=[...])"
        )
        self.address = address


class DrainTimeoutError(PyasynqError, TimeoutError):
    """Tasks that a test kit ran did not end within its time limit (`patience`); they were interrupted.

    Attributes:
        tasks: type and id of each task.
        seconds: the time limit.
    """

    def __init__(self, tasks: "Iterable[str]", seconds: float) -> None:
        self.tasks = tuple(tasks)
        self.seconds = seconds
        super().__init__(
            f"still running after {seconds:g} s of real time: {', '.join(self.tasks)}; where handlers wait "
            "for one another the kit needs use(..., concurrency=2), for long ones use(..., patience=...)"
        )


class EndlessDrainError(PyasynqError):
    """A test kit has run very many tasks at one instant, and more are due: probably an endless loop.

    Attributes:
        types: task types and how often each ran, the most frequent first.
    """

    def __init__(self, types: "Mapping[str, int]") -> None:
        self.types = dict(types)
        often = ", ".join(
            f"{name!r} {counted(count, 'time')}" for name, count in list(self.types.items())[:3]
        )
        super().__init__(
            f"{sum(self.types.values())} tasks ran at one instant and there are more ({often}): does a task "
            "enqueue itself, or fail, without a delay?"
        )


class HandlerExitError(PyasynqError):
    """A handler under a test kit raised an exception that is not an error: `SystemExit` or a cancellation."""

    def __init__(self, raised: BaseException) -> None:
        super().__init__(
            f"a handler raised {type(raised).__qualname__}; a worker goes on, and retries the task"
        )


class SchedulerStateError(PyasynqError, RuntimeError):
    """The scheduler's state does not allow the request, such as a second start."""


class ServerNotFoundError(PyasynqError, LookupError):
    """No live server has this id.

    Attributes:
        server_id: the id.
    """

    def __init__(self, server_id: str) -> None:
        super().__init__(f"no live server found: {server_id!r}")
        self.server_id = server_id


class ScheduleNotFoundError(PyasynqError, LookupError):
    """A scheduler has no entry with this id.

    Attributes:
        entry_id: the id.
    """

    def __init__(self, entry_id: str) -> None:
        super().__init__(f"no scheduler entry found: {entry_id!r}")
        self.entry_id = entry_id
