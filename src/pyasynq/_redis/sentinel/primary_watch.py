"""Which server is the primary of a group under Sentinel: known once in a process, for all connections.

After a fail-over the old primary may go on answering, for ten seconds and longer when it was not dead, and
what it is told then is lost. So the Sentinels are asked every second, and as soon as anybody in the process
learns of another primary, each connection that leads elsewhere is cut. Whoever uses it connects anew.
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
    address_in,
    question,
    search,
    sentinel_target,
)
from pyasynq._redis.thread_waiter import ThreadWaiter, start_thread
from pyasynq.errors import ForeignRedisError

if TYPE_CHECKING:
    from collections.abc import Generator

    from pyasynq._redis.addresses import Address
    from pyasynq._redis.sentinel.search import Enter
    from pyasynq._redis.steps import OpenAnswer
    from pyasynq._redis.url import RedisTarget

_INTERVAL: Final = 1.0
_PATIENCE: Final = 1.0
"""Seconds that a Sentinel may take to answer the one who asks every second."""


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
        self._sentinels = list(target.sentinels.addresses)
        self._primary: Address | None = None
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
            sentinels, changes = list(self._sentinels), self._changes
        found = yield from search(self._target, sentinels, seconds)
        if not isinstance(found, Found):
            return found
        with self._lock:
            if self._primary != found.primary:
                if self._changes != changes:
                    return "the primary has changed meanwhile"
                self._change(found.primary)
            self._sentinels.remove(found.sentinel)
            self._sentinels.insert(0, found.sentinel)
            self._leads_to[connection] = found.primary
        return None

    def suspects(self, primary: Address) -> bool:
        """Whether this is not the primary that is known."""
        with self._lock:
            return self._primary != primary

    def sentinels(self) -> list[RedisTarget]:
        """Return how to connect to the Sentinels, the one that has found the primary first."""
        with self._lock:
            return [sentinel_target(self._target, sentinel) for sentinel in self._sentinels]

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

    def _change(self, primary: Address) -> None:
        self._primary = primary
        self._changes += 1
        for connection, leads_to in list(self._leads_to.items()):
            if leads_to != primary:
                del self._leads_to[connection]
                connection.cut()


def _watch(reference: weakref.ref[PrimaryWatch], over: ThreadWaiter) -> None:
    asking = BlockingConnection()
    try:
        while not over.wait(_INTERVAL):
            watch = reference()
            if watch is None or watch.is_over(over):
                return
            with contextlib.suppress(ForeignRedisError):  # a test kit is in use that has another server
                primary = _ask(watch, asking)
                if primary is not None and watch.suspects(primary):
                    # It must be a primary, and whoever else has learned something since is right.
                    trial = BlockingConnection()
                    perform(watch.enter(trial, _PATIENCE), trial)
                    trial.close()
            del watch
    finally:
        asking.close()


def _ask(watch: PrimaryWatch, asking: Any) -> Address | None:
    """Return what the first Sentinel that answers says; the connection stays open for the next time."""
    command = question(watch.target)
    received = asking.exchange([command], _PATIENCE)
    if received.broken is None:
        return address_in(received.replies[0])
    for sentinel in watch.sentinels():
        if asking.open(sentinel, _PATIENCE) is None:
            received = asking.exchange([command], _PATIENCE)
            if received.broken is None and (primary := address_in(received.replies[0])) is not None:
                return primary
        asking.close()
    return None


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
