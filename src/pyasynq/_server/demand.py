"""Who wants tasks and gets them: the slots of a server's handlers, or those who wait at a consumer."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

if TYPE_CHECKING:
    from collections.abc import Collection, Iterable, Sequence

    from pyasynq._server.attempt import Attempt
    from pyasynq._server.runner import Runner
    from pyasynq.config import ServerConfig


class Want:
    """So many tasks are wanted, of these queues, each with a lease of so many seconds.

    Attributes:
        queues: names; None for all queues of the engine.
        unasked: queues that are asked on behalf of this want whatever is known of them.
        renewed: whether the heartbeat is to renew the leases.
        in_flight: how many dequeue calls for it have not been answered.
    """

    __slots__ = ("in_flight", "lease", "limit", "queues", "renewed", "unasked")

    def __init__(
        self, limit: int, lease: int, queues: Iterable[str] | None = None, *, renewed: bool = True
    ) -> None:
        self.limit = limit
        self.lease = lease
        self.renewed = renewed
        self.queues = None if queues is None else frozenset(queues)
        self.unasked = set(self.queues or ())
        self.in_flight = 0

    def accepts(self, queue: str) -> bool:
        """Return whether tasks of a queue are wanted."""
        return self.queues is None or queue in self.queues

    def asked(self, queue: str) -> None:
        """Note that a dequeue call is sent for it."""
        self.in_flight += 1
        self.unasked.discard(queue)

    def heard(self, error: Exception | None) -> None:  # noqa: ARG002 - those who wait for an answer care
        """Note that a dequeue call was answered, or failed."""
        self.in_flight -= 1


class Demand(Protocol):
    """What the intake takes tasks for. All of it belongs to the event loop.

    Attributes:
        reserved: for how many tasks there are dequeue calls without an answer; the intake counts them.
        may_overlap: whether more may be asked for while there are such calls.
        least_aside: for how much room it is worth doing that.
    """

    reserved: int
    may_overlap: bool
    least_aside: int

    @property
    def running(self) -> Collection[Attempt]:
        """The attempts that hold a slot, oldest first."""

    @property
    def room(self) -> int:
        """How many tasks may be taken now."""

    def wants(self) -> Sequence[Want]:
        """Return what is wanted now, most urgent first; together no more than there is room for."""

    def start(self, attempt: Attempt, want: Want) -> None:
        """Take over an attempt that is on the roster. It may have come too late to be wanted."""


_LEAST_OVERLAPPED = 100
_MOST_AT_ONCE = 200


class Slots:
    """A server's demand: as many tasks, of all its queues, as handlers may run beside those that do.

    With enough slots no call asks for more than half of them: one half is filled while the other works.
    """

    def __init__(self, config: ServerConfig, runner: Runner, lease: int) -> None:
        self._concurrency = config.concurrency
        self.reserved = 0
        self.may_overlap = config.concurrency >= _LEAST_OVERLAPPED
        half = min(config.concurrency // 2, _MOST_AT_ONCE)
        self._most = half if self.may_overlap else config.concurrency
        self.least_aside = self._most // 2
        self._left = config.max_tasks
        self._runner = runner
        self._lease = lease

    @property
    def running(self) -> Collection[Attempt]:
        """The attempts whose handlers have not ended."""
        return self._runner.running

    @property
    def room(self) -> int:
        """How many handlers may be started now, beside those that calls under way may bring."""
        free = self._concurrency - len(self._runner.running)
        return max(0, (free if self._left is None else min(free, self._left)) - self.reserved)

    def wants(self) -> Sequence[Want]:
        """Return one want, for as many free slots as one call may fill."""
        room = min(self.room, self._most)
        return (Want(room, self._lease),) if room else ()

    def start(self, attempt: Attempt, want: Want) -> None:  # noqa: ARG002 - there is only one at a time
        """Run the handler."""
        if self._left is not None:
            self._left -= 1
        self._runner.start(attempt)
