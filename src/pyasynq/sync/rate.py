# Generated from src/pyasynq/rate.py by tools/unasync.py; change that file and run `make sync`.
"""The door for handlers that share something scarce: `Semaphore`, as in Asynq's package x/rate."""

from __future__ import annotations

import logging
import math
import warnings
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from pyasynq._broker.semaphore import acquire_token, release_token
from pyasynq._checks import check_whole, checked_name, instant_of, positive_seconds_of
from pyasynq._clock import SYSTEM_CLOCK, Clock
from pyasynq._redis.driver import BlockingDriver
from pyasynq._redis.url import parse_redis_url
from pyasynq._visible_text import visible
from pyasynq.context import context, current_task
from pyasynq.errors import (
    ConfigurationError,
    LeaseExpiredError,
    RedisError,
    SemaphoreFullError,
    SemaphoreNotHeldError,
)

if TYPE_CHECKING:
    from datetime import datetime
    from types import TracebackType

    from pyasynq._redis.clients import RedisSource
    from pyasynq.context import RunningTask
    from pyasynq.options import Duration

_log = logging.getLogger("pyasynq")


class Semaphore:
    """Lets at most so many tasks do something at once, on all hosts, in Python and in Go.

        semaphore = Semaphore("redis://localhost:6379/0", scope="pdf-renderer", max_tokens=4)

        @app.task("render")
        def render(page: int) -> None:
            with semaphore:  # raises SemaphoreFullError when four others are at it
                ...

    A token belongs to the task that runs, and lapses at its deadline, so that a crash keeps none for long.
    Nobody waits for one: a handler that gets none raises, and its task is retried. `is_failure` of the
    server decides whether that spends a retry.

    All that share a scope must give the same `max_tokens`. The asyncio semaphore (`pyasynq.Semaphore`)
    belongs to the event loop that uses it, the blocking one (`pyasynq.sync.Semaphore`), for handlers that
    are plain functions, may be shared by threads. It connects with the first call; `close` it at the end.

    Args:
        url: as for `Client`.
        scope: name of what is shared.
        max_tokens: how many tasks may hold a token at once, at least 1.
        timeout: how long one call may wait for Redis, with reconnecting and sending again.
        clock: for tests; tokens lapse by the clock of Redis.
        client_name: what `CLIENT LIST` shows.

    Raises:
        ConfigurationError: for a URL or a value that cannot work.
    """

    def __init__(
        self,
        url: RedisSource,
        *,
        scope: str,
        max_tokens: int,
        timeout: Duration = 5.0,
        clock: Clock = SYSTEM_CLOCK,
        client_name: str = "pyasynq-semaphore",
    ) -> None:
        check_whole("max_tokens", max_tokens, 1)
        seconds = positive_seconds_of("timeout", timeout)
        self._scope = checked_name("scope", scope)
        self._max_tokens = max_tokens
        self._clock = clock
        self._deadlines: WeakKeyDictionary[RunningTask, int] = WeakKeyDictionary()
        """Until when the attempts of this process took their tokens."""
        self._driver = BlockingDriver(
            parse_redis_url(url), client_name=client_name, timeout=seconds, clock=clock
        )

    def acquire(self, *, task_id: str | None = None, deadline: datetime | None = None) -> bool:
        """Take a token for the task that runs here; return False when none is free.

        A task that holds a token and asks again gets False while all are taken; otherwise its deadline is
        set anew. A call that is cancelled may have taken a token.

        Args:
            task_id: outside of handlers, who holds the token.
            deadline: aware time until which it is held; that of the attempt unless given.

        Raises:
            ServerStateError: outside of a handler, without a `task_id` and a `deadline`.
            ConfigurationError: when the task has neither a timeout nor a deadline.
            RedisError: when Redis cannot be reached within the time-out, or refuses.
        """
        until = deadline if deadline is not None else context().deadline
        if until is None:
            raise ConfigurationError(
                f"semaphore {self._scope!r}: the task has neither timeout nor deadline, so that a crash "
                "would keep its token for ever; give it one"
            )
        seconds = math.ceil(instant_of("deadline", until).timestamp)
        plan = acquire_token(
            self._scope,
            self._max_tokens,
            context().task_id if task_id is None else checked_name("task_id", task_id),
            deadline=seconds,
            now=self._clock.redis_now(),
        )
        taken = self._driver.run(plan)
        running = current_task.get(None)
        if taken and task_id is None and running is not None:
            self._deadlines[running] = seconds
        return taken

    def release(self, *, task_id: str | None = None) -> None:
        """Give the token back.

        An attempt that has lost its lease does not give back the token of the attempt after it.

        Raises:
            SemaphoreNotHeldError: when the task holds none, or not any more, or another attempt at it does.
            ServerStateError: outside of a handler, without a `task_id`.
            RedisError: when Redis cannot be reached within the time-out, or refuses.
        """
        holder = context().task_id if task_id is None else checked_name("task_id", task_id)
        running = current_task.get(None) if task_id is None else None
        deadline = None if running is None else self._deadlines.get(running)
        # Attempts at a task with a deadline of its own take their tokens until the same second.
        is_lost = (
            running is not None
            and isinstance(running.cause, LeaseExpiredError)
            and getattr(running.message, "deadline", 0) > 0
        )
        if is_lost or not self._driver.run(release_token(self._scope, holder, deadline=deadline)):
            raise SemaphoreNotHeldError(self._scope, holder)

    def close(self) -> None:
        """Close the connections; tokens stay with their tasks. Closing twice is harmless."""
        self._driver.close()

    def __enter__(self) -> Self:
        """Take a token for the task. Raises `SemaphoreFullError`, and what `acquire` raises."""
        if not self.acquire():
            raise SemaphoreFullError(self._scope, self._max_tokens)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Give the token back. If that fails it lapses at the deadline: the work is done, so no error."""
        try:
            self.release()
        except (RedisError, SemaphoreNotHeldError) as failure:
            _log.warning("a token was not given back: %s", visible(failure))

    def __del__(self) -> None:
        """Warn about a semaphore that has connections and was never closed."""
        driver = getattr(self, "_driver", None)
        if driver is not None and driver.abandon():
            warnings.warn(f"unclosed {self!r}", ResourceWarning, source=self, stacklevel=2)

    def __repr__(self) -> str:
        return f"<{type(self).__module__}.Semaphore {self._scope!r} of {self._max_tokens}>"
