"""The Redis instances of a dashboard: one operator for each event loop, and a cache shared by viewers."""

from __future__ import annotations

import asyncio
import logging
import math
import time
from collections import OrderedDict
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Final, TypeVar

from pyasynq._visible_text import visible
from pyasynq.errors import PyasynqError
from pyasynq.operations import Operator, Redactor, User
from pyasynq.web.auth.signed_out import SignedOutSessions
from pyasynq.web.live.channel import Channels

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable, Coroutine, Hashable

    from pyasynq.metrics import QueueMetrics
    from pyasynq.operations import OperationInfo
    from pyasynq.web.examinations import ExaminationRun
    from pyasynq.web.settings import Settings

_log = logging.getLogger("pyasynq.web")
_T = TypeVar("_T")

_MOST_ANSWERS: Final = 500
_DASHBOARD: Final = User("dashboard")
_LOAD_SHARE: Final = 50
"""Cache lifetime as a multiple of the computing time: an answer that takes 1 s is kept for 50 s."""
_LONGEST_AGE: Final = 60.0
_PATIENCE: Final = 0.03
"""Seconds for which a viewer waits for a new answer while an old one can be shown."""
_LONGEST_STALE: Final = 30.0
"""Seconds for which an answer may be shown after it has expired (stale-while-revalidate)."""
_LONGEST_CHANGE: Final = 5.0
"""Seconds that a change normally takes at most; no stale answer from before its end is shown."""


@dataclass(slots=True)
class _Answer:
    """A cached answer, or one that is being computed; times are monotonic, in seconds."""

    began: float
    last: _Answer | None
    """The previous answer, until this one has been computed."""
    took: float = math.inf
    """Seconds that the newest answer took to compute; infinite before there was an answer."""
    fresh_until: float = 0.0
    future: asyncio.Future[Any] = field(init=False)

    def is_shared(self, now: float) -> bool:
        """Return whether all callers get this answer now: it is being computed, or it is fresh."""
        # `Target.close` cancels answers that are being computed.
        is_pending = not self.future.done()
        return is_pending or (not self.future.cancelled() and now <= self.fresh_until)

    def may_be_shown_stale(self, changed: float) -> bool:
        """Return whether this answer may be shown after it expired (stale-while-revalidate).

        It has no error, began after the last change had ended (`changed`), and expired at most 30 s ago.
        """
        is_recent = self.began >= changed and time.monotonic() < self.fresh_until + _LONGEST_STALE
        return is_recent and not self.future.cancelled() and self.future.exception() is None


class Target:
    """One Redis instance of the dashboard, with its connections and its cache.

    Args:
        name: first segment of the path in the dashboard's URLs; empty for the only instance.
        source: URL or address of Redis, as for `Client`.
        settings: settings of the dashboard.
    """

    def __init__(self, name: str, source: Any, settings: Settings) -> None:
        self.name = name
        self._source = source
        self._settings = settings
        self._operators: dict[asyncio.AbstractEventLoop, Operator] = {}
        self._channels: dict[asyncio.AbstractEventLoop, Channels] = {}
        self._metrics: dict[asyncio.AbstractEventLoop, QueueMetrics] = {}
        self._answers: OrderedDict[Hashable, _Answer] = OrderedDict()
        self._changed = 0.0
        """Monotonic time by which the last change should have ended: its start, plus `_LONGEST_CHANGE`."""
        self._running: dict[asyncio.Task[Any], asyncio.AbstractEventLoop] = {}
        self.examinations: dict[tuple[asyncio.AbstractEventLoop, Hashable], ExaminationRun] = {}
        """The last examination by the doctor, by event loop and permissions."""
        self._counts: dict[Hashable, dict[str, tuple[str, str]]] = {}
        self.signed_out = SignedOutSessions(lambda: self.operator(_DASHBOARD))
        """Sessions that were ended, in any process of the dashboard."""
        self.label = name or _label(source)
        """Address of Redis for viewers, without the password."""
        self.summary = ""
        """Version and memory of Redis, once a page has read them."""

    def operator(self, user: User) -> Operator:
        """Return an operator for a user, on connections that all users of this event loop share."""
        loop = asyncio.get_running_loop()
        own = self._operators.get(loop)
        if own is None:
            for other in [one for one in self._operators if one.is_closed()]:
                del self._operators[other]
            own = self._operators[loop] = Operator(
                self._source,
                _DASHBOARD,
                queues=self._settings.queues,
                read_only=self._settings.read_only,
                redactor=self._settings.redactor or Redactor(),
                show=self._settings.show,
                types=self._settings.types,
                environment=self._settings.environment.name if self._settings.environment else "",
            )
        return own.for_user(user)

    def channels(self) -> Channels:
        """Return the channels of live pages in the running loop."""
        loop = asyncio.get_running_loop()
        if loop not in self._channels:
            for ended in [one for one in self._channels if one.is_closed()]:
                del self._channels[ended]
            self._channels[loop] = Channels()
        return self._channels[loop]

    def metrics(self) -> QueueMetrics:
        """Return the metrics of all queues of the dashboard, in the running loop."""
        from pyasynq.metrics.queues import METRICS_USER, QueueMetrics  # noqa: PLC0415 - few are scraped

        loop = asyncio.get_running_loop()
        if loop not in self._metrics:
            for ended in [one for one in self._metrics if one.is_closed()]:
                del self._metrics[ended]
            self._metrics[loop] = QueueMetrics(self.operator(METRICS_USER), attention=True)
        return self._metrics[loop]

    async def recent(
        self, user: User, question: Hashable, ask: Callable[[], Awaitable[_T]], seconds: float = 2.0
    ) -> _T:
        """Return a cached answer, or a new one if it has expired; users with equal permissions share it.

        If a new answer takes longer than 30 ms, return the last one instead (stale-while-revalidate, RFC
        5861), unless it expired 30 seconds ago, or a user of this dashboard has changed something since.

        Args:
            user: user whose permissions decide about the answer.
            question: cache key of the answer.
            ask: computes a new answer; it runs once for all concurrent callers (single flight).
            seconds: lifetime of the answer; longer, up to a minute, if this answer and the last took long.
        """
        known = self._find_answer((asyncio.get_running_loop(), access_key(user), question), ask, seconds)
        result: _T
        last = known.last
        if last is not None and last.may_be_shown_stale(self._changed):
            await asyncio.wait([known.future], timeout=_PATIENCE)
            if not known.future.done():
                result = last.future.result()
                return result
        # A viewer who disconnects must not cancel the answer for the others.
        result = await asyncio.shield(known.future)
        return result

    def _find_answer(self, key: Hashable, ask: Callable[[], Awaitable[Any]], seconds: float) -> _Answer:
        """Return the cached answer, or begin a new one if there is none or it is no longer fresh."""
        known = self._answers.get(key)
        now = time.monotonic()
        if known is not None and known.is_shared(now):
            return known
        answer = self._answers[key] = _Answer(now, known)
        answer.future = self.start(self._ask(answer, ask, seconds))
        # A waiting viewer gets the exception; without one, asyncio would report it as never retrieved.
        answer.future.add_done_callback(lambda done: done.cancelled() or done.exception())
        self._answers.move_to_end(key)
        if len(self._answers) > _MOST_ANSWERS:
            self._answers.popitem(last=False)
        return answer

    async def _ask(self, answer: _Answer, ask: Callable[[], Awaitable[_T]], seconds: float) -> _T:
        last_took = answer.last.took if answer.last is not None else math.inf
        work = 0.0
        try:
            result = await ask()
            answer.took = time.monotonic() - answer.began
            # One slow answer may have waited, such as for Redis to restart; two have a lasting cause.
            work = min(answer.took, last_took)
            return result
        except BaseException:
            # Redis was probably unavailable: the failure must not delay the next answer.
            answer.took = last_took
            raise
        finally:
            age = max(seconds, work * _LOAD_SHARE)
            answer.fresh_until = time.monotonic() + min(age, _LONGEST_AGE)
            answer.last = None

    def expect_change(self) -> None:
        """Show no stale answer from before the end of the change that a request is about to make."""
        self._changed = time.monotonic() + _LONGEST_CHANGE

    def forget(self, user: User, question: Hashable) -> None:
        """Drop a cached answer, because a form has changed its data."""
        self._answers.pop((asyncio.get_running_loop(), access_key(user), question), None)

    async def run_operation(self, user: User, operation_id: str, seconds: float) -> OperationInfo | None:
        """Run an operation in the background; return it if it ends within `seconds`, else None.

        If this process dies, any other process can resume the operation.
        """
        task = self.start(self._run(user, operation_id))
        ended, _ = await asyncio.wait([task], timeout=seconds)
        return task.result() if ended and not task.cancelled() else None

    def start(self, work: Coroutine[Any, Any, _T]) -> asyncio.Task[_T]:
        """Run a coroutine in the background of this loop, until `close` at the latest."""
        loop = asyncio.get_running_loop()
        task = loop.create_task(work, name="pyasynq-web-work")
        self._running[task] = loop
        task.add_done_callback(lambda done: self._running.pop(done, None))
        return task

    def access_of(self, user: User) -> tuple[asyncio.AbstractEventLoop, Hashable]:
        """Return the cache key of a user: event loop and permissions; users with equal keys share answers."""
        return (asyncio.get_running_loop(), access_key(user))

    async def _run(self, user: User, operation_id: str) -> OperationInfo | None:
        try:
            return await self.operator(user).run_operation(operation_id)
        except PyasynqError as error:
            # The operation's page shows its progress, and has the button that continues it.
            _log.warning("the operation %s was interrupted: %s", visible(operation_id), visible(str(error)))
            return None

    def counts(self, user: User) -> dict[str, tuple[str, str]]:
        """Return the navigation counts that pages have stored: text and color tone by name."""
        return self._counts.get(access_key(user), {})

    def note_count(self, user: User, name: str, text: str, tone: str = "") -> None:
        """Cache a count for the navigation; called by pages that have read the count."""
        if len(self._counts) > _MOST_ANSWERS:
            self._counts.clear()
        self._counts.setdefault(access_key(user), {})[name] = (text, tone)

    async def close(self) -> None:
        """Close the connections of the running loop."""
        loop = asyncio.get_running_loop()
        running = [task for task, own_loop in self._running.items() if own_loop is loop]
        for task in running:
            task.cancel()
        await asyncio.gather(*running, return_exceptions=True)
        for key in [key for key in self.examinations if key[0] is loop]:
            del self.examinations[key]
        if metrics := self._metrics.pop(loop, None):
            await metrics.close()
        own = self._operators.pop(loop, None)
        if own is not None:
            await own.close()


def access_key(user: User) -> Hashable:
    """Return a key for a user's permissions; users with equal permissions share cached answers."""
    return tuple(sorted((str(permission), patterns) for permission, patterns in user.grants.items()))


def _label(source: object) -> str:
    if isinstance(source, str):
        address = source.rpartition("@")[2].removeprefix("redis://").partition("?")[0]
        return "this machine" if source.startswith(("unix:", "embedded:")) else address
    return type(source).__name__
