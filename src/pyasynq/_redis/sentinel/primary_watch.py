"""Watch over the primary of a Sentinel group: one for all connections of a process.

After a failover the old primary may go on answering, for ten seconds or longer if it was not dead. Writes to
it are lost. So a thread asks the Sentinels every second. As soon as any part of the process learns of another
primary, every connection to the old one is cut, and its user reconnects.

All Sentinels are asked, over connections that stay open, because one of them may be cut off from the others.
With three Sentinels this takes 0.5 ms of processor time a second; asking only one took a quarter of that.
"""

from __future__ import annotations

import contextlib
import os
import threading
import time
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Final, Protocol

from pyasynq._redis.connection_blocking import BlockingConnection
from pyasynq._redis.sentinel.search import (
    AskSentinel,
    FoundPrimary,
    find_primary,
    primary_target,
    questions,
    rank,
    read_named,
    sentinel_target,
)
from pyasynq._redis.thread_waiter import ThreadWaiter, start_thread
from pyasynq.errors import ForeignRedisError

if TYPE_CHECKING:
    from collections.abc import Collection, Generator, Mapping

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.sentinel.search import Enter, Named
    from pyasynq._redis.session import OpenAnswer
    from pyasynq._redis.url import RedisTarget

_INTERVAL: Final = 1.0
_PATIENCE: Final = 1.0
"""Seconds that a Sentinel may take to answer the watching thread."""
_SHORT_PATIENCE: Final = 0.5
"""Seconds for the answer of a Sentinel that did not answer last time: waiting delays the next round."""


class Cuttable(Protocol):
    """A connection that can be broken from another thread."""

    def cut(self) -> None:
        """Break the connection, so that a pending read fails."""


class PrimaryWatch:
    """Watch over the primary of one Sentinel group in this process. Thread-safe.

    A thread asks the Sentinels as long as there are members: objects that called `join` and have not left.
    """

    def __init__(self, target: RedisTarget) -> None:
        assert target.sentinels is not None  # noqa: S101 - for mypy: only targets under Sentinel come here
        self.pid = os.getpid()
        self._target = target
        self._lock = threading.RLock()  # reentrant: a signal handler may take it again
        self._silent: tuple[Address, ...] = ()
        """Sentinels that named no primary when last asked."""
        self._known: Named | None = None
        self._changes = 0
        self._leads_to: weakref.WeakKeyDictionary[Cuttable, Address] = weakref.WeakKeyDictionary()
        self._members: weakref.WeakSet[object] = weakref.WeakSet()
        self._over: ThreadWaiter | None = None

    def join(self, member: object) -> None:
        """Keep the watch running until the member leaves or is destroyed."""
        with self._lock:
            self._members.add(member)
            if self._over is None:
                over = ThreadWaiter()
                start_thread(
                    partial(_watch, weakref.ref(self), over), f"pyasynq watches {self._target.address}"
                )
                # Set last: if a signal handler raises before, the next call starts another thread, and this
                # one ends.
                self._over = over

    def leave(self, member: object) -> None:
        """End the membership; the thread ends with the last member."""
        with self._lock:
            self._members.discard(member)
            self._end_if_alone()

    def enter(self, connection: Cuttable, seconds: float) -> Generator[AskSentinel | Enter, Any, OpenAnswer]:
        """Find the primary, have a connection opened to it, and cut that when the primary changes later."""
        with self._lock:
            sentinels, silent = self.sentinels(), set(self._silent)
            known, changes = self._known, self._changes
        found = yield from find_primary(self._target, sentinels, seconds, known=known, silent=silent)
        if not isinstance(found, FoundPrimary):
            return found
        with self._lock:
            self.note(found.heard, found.silent)
            if not self.follow(found.named, changes):
                return "the primary has changed meanwhile"
            self._leads_to[connection] = found.named.primary
        return None

    def suspects(self, primary: Address) -> bool:
        """Return whether a server is not the primary that the watch knows."""
        with self._lock:
            return self._known is None or self._known.primary != primary

    def sentinels(self) -> list[Address]:
        """Return the Sentinels in the order to ask them, silent ones last."""
        with self._lock:
            group = self._target.sentinels
            assert group is not None  # noqa: S101 - as above
            return [*(one for one in group.addresses if one not in self._silent), *self._silent]

    def is_silent(self, sentinel: Address) -> bool:
        """Return whether a Sentinel named no primary when last asked."""
        with self._lock:
            return sentinel in self._silent

    def note(self, heard: Collection[Address] = (), silent: Collection[Address] = ()) -> None:
        """Record which Sentinels have named a primary (`heard`), and which have not (`silent`)."""
        with self._lock:
            kept = [one for one in self._silent if one not in heard and one not in silent]
            self._silent = (*kept, *silent)

    def judge(self, named: Mapping[Address, Named]) -> tuple[Named | None, int]:
        """Return the most credible primary that Sentinels name, and the number of changes so far."""
        with self._lock:
            ranked = rank(named, self._known, len(self.sentinels()))
            return (ranked[0] if ranked else None), self._changes

    def follow(self, named: Named, changes: int) -> bool:
        """Adopt this primary, and cut the connections to other servers (compare-and-set by change number).

        Return whether this primary is now the known one: False if it has changed since change `changes`.
        """
        with self._lock:
            if self.suspects(named.primary):
                if self._changes != changes:
                    return False
                self._changes += 1
                for connection, leads_to in list(self._leads_to.items()):
                    if leads_to != named.primary:
                        del self._leads_to[connection]
                        connection.cut()
            self._known = named
            return True

    @property
    def target(self) -> RedisTarget:
        """The target that is watched."""
        return self._target

    def is_over(self, over: ThreadWaiter) -> bool:
        """Return whether the thread that waits on `over` is to end; end the watch if it has no members."""
        with self._lock:
            self._end_if_alone()
            return over is not self._over

    def _end_if_alone(self) -> None:
        if not self._members and self._over is not None:
            self._over.wake()
            self._over = None


def _watch(reference: weakref.ref[PrimaryWatch], over: ThreadWaiter) -> None:
    connections: dict[Address, BlockingConnection] = {}
    try:
        while not over.wait(_INTERVAL):
            watch = reference()
            if watch is None or watch.is_over(over):
                return
            with contextlib.suppress(ForeignRedisError):  # a test kit with another server is in use
                _ask_sentinels(watch, connections)
            del watch
    finally:
        for connection in connections.values():
            connection.close()


def _ask_sentinels(watch: PrimaryWatch, connections: dict[Address, BlockingConnection]) -> None:
    """Ask the Sentinels for the primary, and adopt the most credible answer.

    All Sentinels that answered the last time are asked first. Then one of the others is asked: a Sentinel
    that silently drops packets must not delay the answers of the others.
    """
    named: dict[Address, Named] = {}
    silent: list[Address] = []
    for sentinel in watch.sentinels():
        if named and watch.is_silent(sentinel):
            silent.append(sentinel)
        elif (answer := _ask(watch, connections, sentinel, _PATIENCE)) is not None:
            named[sentinel] = answer
    believed, changes = watch.judge(named)
    # A new server must confirm that it is a primary; a change by another thread meanwhile takes precedence.
    if believed is not None and (
        not watch.suspects(believed.primary) or _is_primary(watch.target, believed.primary)
    ):
        watch.follow(believed, changes)
    for sentinel in silent[:1]:
        _ask(watch, connections, sentinel, _SHORT_PATIENCE)


def _ask(
    watch: PrimaryWatch, connections: dict[Address, BlockingConnection], sentinel: Address, seconds: float
) -> Named | None:
    """Ask a Sentinel for the primary, over a connection that stays open; return its answer, if any."""
    connection = connections.setdefault(sentinel, BlockingConnection())
    commands = questions(watch.target)
    answer = connection.exchange(commands, seconds)
    if not answer.sent and connection.open(sentinel_target(watch.target, sentinel), seconds) is None:
        answer = connection.exchange(commands, seconds)
    if (named := read_named(answer)) is None:
        connection.close()
        watch.note(silent=[sentinel])
    else:
        watch.note(heard=[sentinel])
    return named


def _is_primary(target: RedisTarget, address: Address) -> bool:
    trial = BlockingConnection()
    try:
        return trial.open(primary_target(target, address), _PATIENCE) is None
    finally:
        trial.close()


def perform(steps: Generator[AskSentinel | Enter, Any, OpenAnswer], connection: Any) -> OpenAnswer:
    """Perform the steps of `PrimaryWatch.enter` with a connection for threads."""
    answer: Any = None
    try:
        while True:
            step = steps.send(answer)
            if not isinstance(step, AskSentinel):
                answer = connection.open(step.target, step.seconds)
                if answer is not None:
                    connection.close()
                continue
            asking, deadline = type(connection)(), time.monotonic() + step.seconds
            try:
                answer = asking.open(step.target, step.seconds)
                if answer is None:
                    answer = asking.exchange(step.commands, deadline - time.monotonic())
            finally:
                asking.close()
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


async def perform_async(
    steps: Generator[AskSentinel | Enter, Any, OpenAnswer], connection: Any
) -> OpenAnswer:
    """Perform the steps of `PrimaryWatch.enter` with a connection for asyncio."""
    answer: Any = None
    try:
        while True:
            step = steps.send(answer)
            if not isinstance(step, AskSentinel):
                answer = await connection.open(step.target, step.seconds)
                if answer is not None:
                    await connection.close()
                continue
            asking, deadline = type(connection)(), time.monotonic() + step.seconds
            try:
                answer = await asking.open(step.target, step.seconds)
                if answer is None:
                    answer = await asking.exchange(step.commands, deadline - time.monotonic())
            finally:
                await asking.close()
    except StopIteration as stop:
        return stop.value  # type: ignore[no-any-return]


_watches: weakref.WeakValueDictionary[RedisTarget, PrimaryWatch] = weakref.WeakValueDictionary()
_watches_lock = threading.RLock()


def get_watch(target: RedisTarget) -> PrimaryWatch:
    """Return the one watch of this process over the primary of a Sentinel group."""
    with _watches_lock:
        watch = _watches.get(target)
        if watch is None or watch.pid != os.getpid():
            watch = _watches[target] = PrimaryWatch(target)
        return watch


def _renew_lock() -> None:
    global _watches_lock  # noqa: PLW0603 - the thread that held it at the fork is not in the child
    _watches_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
