"""Publisher service: publishes task events; it never delays or fails other work."""

from __future__ import annotations

import asyncio
import math
from collections import Counter, deque
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from pyasynq._background.service import Service
from pyasynq._broker.task_events import DROPPED, encode_event, publish_events
from pyasynq._engine.failure_text import error_line
from pyasynq.errors import PyasynqError, RedisUnavailableError
from pyasynq.events import (
    EventsDropped,
    LeaseLapsed,
    MessageQuarantined,
    Outcome,
    TaskFinished,
    TaskPoisoned,
    TaskRecovered,
    TasksAggregated,
    TaskSettled,
    TaskStarted,
)

if TYPE_CHECKING:
    from collections.abc import Callable

    from pyasynq._engine.engine_parts import Parts


class Publisher(Service):
    """Subscriber of the engine's events, which sends them in batches from a bounded buffer."""

    name = "publisher"

    def __init__(self, parts: Parts) -> None:
        super().__init__(parts.events)
        self._parts = parts
        self._lengths = parts.config.event_stream_lengths
        self._buffer: deque[tuple[str, bytes]] = deque()
        self._dropped: Counter[str] = Counter()
        """Number of dropped events, by queue, that no published `dropped` event has reported yet."""
        self._untold: Counter[str] = Counter()
        """Number of dropped events, by queue, that no `EventsDropped` event has reported yet."""
        self._ended: dict[tuple[str, str], bytes] = {}
        """Encoded events of ended attempts, which are published when Redis has confirmed the outcome."""
        self._in_trouble = False
        self._called = False
        """Whether a round is scheduled already; after a failed round the next one always is."""
        self._unsubscribe: list[Callable[[], None]] = []

    async def enter(self) -> None:
        """Subscribe to the events."""
        subscribe = self.events.subscribe
        self._unsubscribe = [
            subscribe(TaskStarted, self._on_started),
            subscribe(TaskFinished, self._on_finished),
            subscribe(TaskSettled, self._on_settled),
            subscribe(TaskRecovered, self._on_recovered),
            subscribe(LeaseLapsed, self._on_lapsed),
            subscribe(TaskPoisoned, self._on_poisoned),
            subscribe(MessageQuarantined, self._on_quarantined),
            subscribe(TasksAggregated, self._on_aggregated),
        ]

    async def round(self) -> float:
        """Send the events in the buffer."""
        self._in_trouble = True
        try:
            await self._send()
        finally:
            self._report_dropped()
        self._in_trouble = False
        if self._buffer:
            return self._parts.settings.publish_gap
        self._called = False
        return math.inf

    async def leave(self) -> None:
        """Unsubscribe, and send the remaining events; drop and count them if the last round failed."""
        for unsubscribe in self._unsubscribe:
            unsubscribe()
        with suppress(PyasynqError):
            while self._buffer and not self._in_trouble:
                await self._send()
        while self._buffer:
            self._drop(self._buffer.popleft()[0], 1)
        self._report_dropped()

    async def _send(self) -> None:
        most = self._parts.settings.events_at_once
        batch: dict[str, list[bytes]] = {}
        for _ in range(min(most, len(self._buffer))):
            queue, event = self._buffer.popleft()
            batch.setdefault(queue, []).append(event)
        if not batch:
            return
        told = {queue: self._dropped.pop(queue, 0) for queue in batch}
        plans = []
        for queue, events in batch.items():
            if told[queue]:
                events.insert(0, self._encode(DROPPED, queue, count=told[queue]))
            plans.append(publish_events(queue, events, max_length=self._length(queue)))
        results: list[Any]
        try:
            results = await self._parts.driver.run_batch(plans)
        except Exception as error:  # noqa: BLE001 - raised below
            results = [error] * len(plans)
        first: Exception | None = None
        for (queue, events), result in zip(batch.items(), results, strict=True):
            if isinstance(result, Exception):
                first = first or result
                self._on_error(queue, events[1:] if told[queue] else events, told[queue], result)
        if first is not None:
            raise first

    def _on_error(self, queue: str, events: list[bytes], told: int, error: Exception) -> None:
        """Keep the events if Redis has certainly not received them; otherwise count them as dropped.

        `told` is the number of dropped events that the failed call should have reported; a later call reports
        it. Events are also kept after a TLS error, which occurs before anything is sent: the certificate may
        be renewed.
        """
        self._dropped[queue] += told
        room = self._parts.settings.event_buffer - len(self._buffer)
        kept = 0
        if isinstance(error, RedisUnavailableError):
            kept = min(room, len(events))
        self._buffer.extendleft((queue, event) for event in reversed(events[len(events) - kept :]))
        self._drop(queue, len(events) - kept)

    def _length(self, queue: str) -> int:
        """Return the number of events of a queue to keep; 0 if they are not published."""
        length = self._lengths.get(queue)
        return self._parts.config.event_stream_length(queue) if length is None else length

    def _publish(self, queue: str, event: bytes) -> None:
        if len(self._buffer) >= self._parts.settings.event_buffer:
            self._drop(queue, 1)
            return
        self._buffer.append((queue, event))
        if not self._called:
            # Events that are emitted until then are sent together with this one.
            self._called = True
            asyncio.get_running_loop().call_later(self._parts.settings.publish_gap, self.wake)

    def _drop(self, queue: str, events: int) -> None:
        if events:
            self._dropped[queue] += events
            self._untold[queue] += events

    def _report_dropped(self) -> None:
        untold, self._untold = self._untold, Counter()
        for queue, events in untold.items():
            self.events.emit(EventsDropped(queue, events))

    def _encode(self, kind: str, queue: str, **facts: str | float) -> bytes:
        return encode_event(
            kind, queue, self._parts.redis_time.now(), **{"server": self._parts.server_id, **facts}
        )

    def _on_started(self, event: TaskStarted) -> None:
        if self._length(event.queue):
            data = self._encode(
                "started",
                event.queue,
                task_id=event.task_id,
                type=event.task_type,
                retried=event.retried,
                waited="" if event.waited is None else round(event.waited, 6),
            )
            self._publish(event.queue, data)

    def _on_finished(self, event: TaskFinished) -> None:
        if not self._length(event.queue):
            return
        lost = event.outcome is Outcome.LET_GO
        error = ""
        if event.error is not None:
            error = error_line(event.error, self._parts.settings.event_error_bytes)
        data = self._encode(
            "lost" if lost else event.outcome.value,
            event.queue,
            task_id=event.task_id,
            type=event.task_type,
            retried=event.retried,
            max_retry=event.max_retry,
            seconds=round(event.seconds, 6),
            error=error,
        )
        if lost:
            self._publish(event.queue, data)
        else:
            self._ended[event.queue, event.task_id] = data

    def _on_settled(self, event: TaskSettled) -> None:
        data = self._ended.pop((event.queue, event.task_id), None)
        if data is not None and event.written:
            self._publish(event.queue, data)
        elif data is not None:
            self._publish(event.queue, self._encode("lost", event.queue, task_id=event.task_id))

    def _on_recovered(self, event: TaskRecovered) -> None:
        self._crash("recovered", event)

    def _on_lapsed(self, event: LeaseLapsed) -> None:
        self._on_recovered(TaskRecovered(event.queue, event.task_id, event.lapses, event.server_id))

    def _on_poisoned(self, event: TaskPoisoned) -> None:
        self._crash("poisoned", event)

    def _crash(self, kind: str, event: TaskRecovered | TaskPoisoned) -> None:
        if self._length(event.queue):
            data = self._encode(
                kind, event.queue, task_id=event.task_id, server=event.server_id, count=event.crashes
            )
            self._publish(event.queue, data)

    def _on_quarantined(self, event: MessageQuarantined) -> None:
        if self._length(event.queue):
            data = self._encode(
                Outcome.ARCHIVED.value, event.queue, task_id=event.task_id, error=event.reason
            )
            self._publish(event.queue, data)

    def _on_aggregated(self, event: TasksAggregated) -> None:
        if self._length(event.queue):
            data = self._encode("aggregated", event.queue, task_id=event.task_id, count=event.tasks)
            self._publish(event.queue, data)
