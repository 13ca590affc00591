"""The primary of a group under Sentinel: known once in a process, for all connections.

After a fail-over the old primary may go on answering, for ten seconds and longer when it was not dead, and
what it is told then is lost. So the Sentinels are asked every second. As soon as any part of the process
learns of another primary, each connection that leads elsewhere is cut, and its user connects again.

All Sentinels are asked, over connections that stay open, because one of them may be cut off from the others.
With three Sentinels this takes half a millisecond of processor time a second; asking one took a quarter.
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
    Ask,
    Found,
    primary_target,
    questions,
    rank,
    read_named,
    search,
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
"""Seconds that a Sentinel may take to answer the thread that asks every second."""
_SHORT_PATIENCE: Final = 0.5
"""The same for one that did not answer the last time: it delays the next look."""


class Cuttable(Protocol):
    """A connection that can be broken from another thread."""

    def cut(self) -> None:
        """Break it, so that whoever waits for a reply learns of it."""


class PrimaryWatch:
    """One group's primary, as far as this process knows. Thread-safe.

    A thread asks the Sentinels as long as anybody is registered with `join` and not gone.
    """

    def __init__(self, target: RedisTarget) -> None:
        assert target.sentinels is not None  # noqa: S101 - for mypy: only targets under Sentinel come here
        self.pid = os.getpid()
        self._target = target
        self._lock = threading.RLock()  # a signal handler may come back in here
        self._silent: tuple[Address, ...] = ()
        """Sentinels that have named no primary when they were asked last."""
        self._known: Named | None = None
        self._changes = 0
        self._leads_to: weakref.WeakKeyDictionary[Cuttable, Address] = weakref.WeakKeyDictionary()
        self._members: weakref.WeakSet[object] = weakref.WeakSet()
        self._over: ThreadWaiter | None = None

    def join(self, member: object) -> None:
        """Keep the watch up, until the member leaves or is destroyed."""
        with self._lock:
            self._members.add(member)
            if self._over is None:
                over = ThreadWaiter()
                start_thread(
                    partial(_watch, weakref.ref(self), over), f"pyasynq watches {self._target.address}"
                )
                # Last: if this is interrupted before, the next call starts a thread, and the first one ends.
                self._over = over

    def leave(self, member: object) -> None:
        """Take back `join`; the thread ends with the last member."""
        with self._lock:
            self._members.discard(member)
            self._end_if_alone()

    def enter(self, connection: Cuttable, seconds: float) -> Generator[Ask | Enter, Any, OpenAnswer]:
        """Find the primary, have the connection opened to it, and cut it when another one is found later."""
        with self._lock:
            sentinels, silent = self.sentinels(), set(self._silent)
            known, changes = self._known, self._changes
        found = yield from search(self._target, sentinels, seconds, known=known, silent=silent)
        if not isinstance(found, Found):
            return found
        with self._lock:
            self.note(found.heard, found.silent)
            if not self.follow(found.named, changes):
                return "the primary has changed meanwhile"
            self._leads_to[connection] = found.named.primary
        return None

    def suspects(self, primary: Address) -> bool:
        """Whether this is not the primary that is known."""
        with self._lock:
            return self._known is None or self._known.primary != primary

    def sentinels(self) -> list[Address]:
        """Return the Sentinels in the order in which to ask them, those that were silent last."""
        with self._lock:
            group = self._target.sentinels
            assert group is not None  # noqa: S101 - as above
            return [*(one for one in group.addresses if one not in self._silent), *self._silent]

    def is_silent(self, sentinel: Address) -> bool:
        """Whether a Sentinel has named no primary when it was asked last."""
        with self._lock:
            return sentinel in self._silent

    def note(self, heard: Collection[Address] = (), silent: Collection[Address] = ()) -> None:
        """Remember which Sentinels have named a primary, and which have not."""
        with self._lock:
            kept = [one for one in self._silent if one not in heard and one not in silent]
            self._silent = (*kept, *silent)

    def judge(self, named: Mapping[Address, Named]) -> tuple[Named | None, int]:
        """Return what to believe of the answers of Sentinels, and the number of changes so far."""
        with self._lock:
            ranked = rank(named, self._known, len(self.sentinels()))
            return (ranked[0] if ranked else None), self._changes

    def follow(self, named: Named, changes: int) -> bool:
        """Take this for the primary, unless it has changed since the change of this number."""
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
        """What is watched."""
        return self._target

    def is_over(self, over: ThreadWaiter) -> bool:
        """Whether the thread that waits here has nothing to watch any more."""
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
            with contextlib.suppress(ForeignRedisError):  # a test kit is in use that has another server
                _look(watch, connections)
            del watch
    finally:
        for connection in connections.values():
            connection.close()


def _look(watch: PrimaryWatch, connections: dict[Address, BlockingConnection]) -> None:
    """Ask the Sentinels, and follow the primary that is to be believed.

    All that have answered before are asked. Of those that have not, one is asked each time, last: a Sentinel
    that swallows all we send does not delay what the others know.
    """
    named: dict[Address, Named] = {}
    silent: list[Address] = []
    for sentinel in watch.sentinels():
        if named and watch.is_silent(sentinel):
            silent.append(sentinel)
        elif (answer := _ask(watch, connections, sentinel, _PATIENCE)) is not None:
            named[sentinel] = answer
    believed, changes = watch.judge(named)
    # It must be a primary, and what another thread has learned meanwhile is right.
    if believed is not None and (
        not watch.suspects(believed.primary) or _is_primary(watch.target, believed.primary)
    ):
        watch.follow(believed, changes)
    for sentinel in silent[:1]:
        _ask(watch, connections, sentinel, _SHORT_PATIENCE)


def _ask(
    watch: PrimaryWatch, connections: dict[Address, BlockingConnection], sentinel: Address, seconds: float
) -> Named | None:
    """Ask a Sentinel; the connection stays open for the next time."""
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


def perform(steps: Generator[Ask | Enter, Any, OpenAnswer], connection: Any) -> OpenAnswer:
    """Do what `PrimaryWatch.enter` asks for, with a connection for threads."""
    answer: Any = None
    try:
        while True:
            step = steps.send(answer)
            if not isinstance(step, Ask):
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


async def perform_async(steps: Generator[Ask | Enter, Any, OpenAnswer], connection: Any) -> OpenAnswer:
    """Do the same with a connection for asyncio."""
    answer: Any = None
    try:
        while True:
            step = steps.send(answer)
            if not isinstance(step, Ask):
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


def watch_of(target: RedisTarget) -> PrimaryWatch:
    """Return this process's watch of a group."""
    with _watches_lock:
        watch = _watches.get(target)
        if watch is None or watch.pid != os.getpid():
            watch = _watches[target] = PrimaryWatch(target)
        return watch


def _renew_lock() -> None:
    global _watches_lock  # noqa: PLW0603 - whoever held it at the fork is not in the child
    _watches_lock = threading.RLock()


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_renew_lock)
