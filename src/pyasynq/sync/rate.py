# Generated from src/pyasynq/rate.py by tools/unasync.py; change that file and run `make sync`.
"""A semaphore shared by tasks on all hosts: `Semaphore`, as in Asynq's package x/rate."""

from __future__ import annotations

import logging
import math
import warnings
from typing import TYPE_CHECKING, Self
from weakref import WeakKeyDictionary

from pyasynq._broker.semaphore import acquire_token, release_token
from pyasynq._checks import check_name, check_whole, parse_instant, parse_positive_seconds
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
    """A distributed semaphore: limits how many tasks do something at once, on all hosts, in Python and in Go.

        semaphore = Semaphore("redis://localhost:6379/0", scope="pdf-renderer", max_tokens=4)

        @app.task("render")
        def render(page: int) -> None:
            with semaphore:  # raises SemaphoreFullError when four others hold a token
                ...

    A token belongs to the running task, and expires at the task's deadline, so that a crashed task does not
    hold it for ever.
    The semaphore never waits: a handler that gets no token raises, and its task is retried. The server's
    `is_failure` decides whether that spends a retry. All users of a scope must give the same `max_tokens`.
    The asyncio semaphore (`pyasynq.Semaphore`) belongs to the event loop that uses it. The blocking one
    (`pyasynq.sync.Semaphore`), for handlers that are plain functions, may be shared by threads. It connects
    with the first call; `close` it at the end.

    Args:
        url: as for `Client`.
        scope: name of the shared resource.
        max_tokens: number of tasks that may hold a token at once, at least 1.
        timeout: time that one call may wait for Redis, including reconnecting and resending.
        clock: for tests; tokens expire by the clock of Redis.
        client_name: the name in `CLIENT LIST`.

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
        seconds = parse_positive_seconds("timeout", timeout)
        self._scope = check_name("scope", scope)
        self._max_tokens = max_tokens
        self._clock = clock
        self._deadlines: WeakKeyDictionary[RunningTask, int] = WeakKeyDictionary()
        """Unix second at which the token of each attempt of this process expires."""
        self._driver = BlockingDriver(
            parse_redis_url(url), client_name=client_name, timeout=seconds, clock=clock
        )

    def acquire(self, *, task_id: str | None = None, deadline: datetime | None = None) -> bool:
        """Take a token for the running task; return False when none is free.

        While all tokens are taken, it returns False, even for a task that holds one. If a token is free and
        the task already holds one, only its deadline changes.
        A call that is cancelled may have taken a token.

        Args:
            task_id: id under which the token is held; needed outside handlers.
            deadline: aware time at which the token expires; by default the deadline of the attempt.

        Raises:
            ServerStateError: outside a handler, without a `task_id` and a `deadline`.
            ConfigurationError: when the task has neither a timeout nor a deadline.
            RedisError: when Redis cannot be reached within the timeout, or refuses.
        """
        until = deadline if deadline is not None else context().deadline
        if until is None:
            raise ConfigurationError(
                f"semaphore {self._scope!r}: the task has neither timeout nor deadline, so that a crash "
                "would keep its token for ever; give it one"
            )
        seconds = math.ceil(parse_instant("deadline", until).timestamp)
        plan = acquire_token(
            self._scope,
            self._max_tokens,
            context().task_id if task_id is None else check_name("task_id", task_id),
            deadline=seconds,
            now=self._clock.redis_now(),
        )
        taken = self._driver.run(plan)
        running = current_task.get(None)
        if taken and task_id is None and running is not None:
            self._deadlines[running] = seconds
        return taken

    def release(self, *, task_id: str | None = None) -> None:
        """Release the task's token.

        An attempt that has lost its lease does not release the token of the attempt after it.

        Raises:
            SemaphoreNotHeldError: when the task does not hold a token any more, or a later attempt at it
                holds the token.
            ServerStateError: outside a handler, without a `task_id`.
            RedisError: when Redis cannot be reached within the timeout, or refuses.
        """
        holder = context().task_id if task_id is None else check_name("task_id", task_id)
        running = current_task.get(None) if task_id is None else None
        deadline = None if running is None else self._deadlines.get(running)
        # All attempts at a task with a deadline of its own hold their tokens until the same second.
        is_lost = (
            running is not None
            and isinstance(running.cause, LeaseExpiredError)
            and getattr(running.message, "deadline", 0) > 0
        )
        if is_lost or not self._driver.run(release_token(self._scope, holder, deadline=deadline)):
            raise SemaphoreNotHeldError(self._scope, holder)

    def close(self) -> None:
        """Close the connections; tokens stay with their tasks. Idempotent."""
        self._driver.close()

    def __enter__(self) -> Self:
        """Take a token for the task. Raises `SemaphoreFullError`, and what `acquire` raises."""
        if not self.acquire():
            raise SemaphoreFullError(self._scope, self._max_tokens)
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        """Release the token.

        If that fails, the error is only logged, since the work is done: the token expires by itself.
        """
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
