"""Our side of a comparison: clients, inspector, and servers whose services are led round by round."""

from __future__ import annotations

import asyncio
import threading
from dataclasses import asdict, replace
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any, NamedTuple

from pyasynq import RevokeTask, ServerConfig, SkipRetry, Task, context
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.engine import Engine
from pyasynq._engine.handlers.routes import OneRoute
from pyasynq._engine.lease.lease_errors import ServerStopping
from pyasynq._engine.run.attempt import Phase
from pyasynq._engine.services.subscriber import Subscriber
from pyasynq._engine.settings import EngineSettings
from pyasynq._redis.facts import RedisFacts
from pyasynq._redis.url import parse_redis_url
from pyasynq.errors import (
    DuplicateTaskError,
    PyasynqError,
    QueueNotEmptyError,
    QueueNotFoundError,
    RedisError,
    TaskIDConflictError,
    TaskNotFoundError,
)
from pyasynq.events import Events
from pyasynq.sync import Client, Inspector
from tests.interop.steps import (
    GRACE_PERIOD,
    MAX_DELAY,
    MAX_SIZE,
    NOT_FAILURES,
    QUEUES,
    RETRY_DELAY,
    SLOTS,
    Answer,
    Step,
    aggregate_payload,
)

if TYPE_CHECKING:
    from collections.abc import Coroutine
    from datetime import timedelta

    from pyasynq._background.service import Service
    from pyasynq.task import TaskInfo

_REFUSALS = {
    DuplicateTaskError: "duplicate",
    TaskIDConflictError: "conflict",
    QueueNotFoundError: "queue not found",
    QueueNotEmptyError: "queue not empty",
    TaskNotFoundError: "task not found",
}
_SETTINGS = EngineSettings(forward_gap=0.0, look_interval=0.0)
_MOMENTS = {"deadline", "process_at"}
_LONG_AGO = 10**6
PATIENCE = 60.0
"""Seconds that a call may take on a machine that is busy with other things."""


class HandlerError(Exception):
    """What a handler fails with."""


class Ending(NamedTuple):
    """How a handler is to end."""

    kind: str
    text: str
    result: bytes | None


class StillEngine:
    """A server that is put together and not started: its services do their rounds when they are told."""

    def __init__(self, url: str, config: ServerConfig, facts: RedisFacts) -> None:
        self.endings: asyncio.Queue[Ending] = asyncio.Queue()
        self.engine = Engine(
            parse_redis_url(url),
            OneRoute(self._handle),
            config,
            _SETTINGS,
            clock=SYSTEM_CLOCK,
            events=Events(),
            task_state=None,
            owns_process=False,
        )
        self.services: dict[str, Service] = {one.name: one for one in self.engine._build(facts)}
        self.begun = asyncio.Event()

    async def _handle(self, task: Task) -> bytes | None:
        self.begun.set()
        ending = await self.endings.get()
        if ending.result is not None:
            await context().write_result(ending.result)
        match ending.kind:
            case "succeed":
                return None
            case "skip":
                raise SkipRetry(ending.text)
            case "revoke":
                raise RevokeTask(ending.text)
        raise HandlerError(ending.text)

    async def take(self) -> Any:
        """Ask the queues once; return the task that came, "over" when its deadline was over, or None."""
        intake, runner = self.engine._intake, self.engine._runner
        self.begun.clear()
        intake.taking = True
        intake.board.ask_all_again()
        while not intake.board.all_empty:
            await self.services["processor"].round()
            if runner.running:
                break
        intake.taking = False
        for attempt in list(runner.running):
            assert attempt.task is not None
            called = asyncio.ensure_future(self.begun.wait())
            await asyncio.wait({called, attempt.task}, return_when=asyncio.FIRST_COMPLETED)
            called.cancel()
            if not self.begun.is_set():
                await self._settle()
                return "over"
            message = attempt.message
            return attempt.queue, attempt.id, message.type, message.payload, dict(message.headers)
        return None

    async def finish(self, ending: Ending) -> None:
        """End the handler and write the outcome."""
        [attempt] = self.engine._runner.running
        if ending.kind == "vanish":
            attempt.phase = Phase.ABANDONED
            self.engine._roster.remove(attempt)
        self.endings.put_nowait(ending)
        await self._settle()

    async def stop(self) -> None:
        """Put the task back as a shutdown does."""
        [attempt] = self.engine._runner.running
        attempt.cancel(ServerStopping(), monotonic=SYSTEM_CLOCK.monotonic())
        await self._settle()

    async def cancel(self, task_id: str) -> None:
        """Hear the call for a task and write the outcome."""
        subscriber = self.services["subscriber"]
        assert isinstance(subscriber, Subscriber)
        await subscriber._cancel(task_id)
        await self._settle()

    async def _settle(self) -> None:
        assert await self.engine._runner.running.wait_until_idle(10)
        await self.services["processor"].leave()
        assert not self.engine._settles.outstanding, "an outcome was not written"


async def _aggregate(group: str, tasks: list[Task]) -> Task:
    return Task(f"aggregate:{group}", aggregate_payload([(one.type, one.payload) for one in tasks]))


class OurSide:
    """A method for each operation."""

    def __init__(self, url: str) -> None:
        self._url = url
        self._runner = asyncio.Runner()
        self._client = Client(url, timeout=PATIENCE)
        self._inspector = Inspector(url, timeout=PATIENCE)
        self._refuse = False
        config = ServerConfig(
            concurrency=1,
            queues={queue: len(QUEUES) - place for place, queue in enumerate(QUEUES)},
            strict_priority=True,
            burst=True,  # an engine in burst mode does not wait for pushes of Redis
            retry_delay=lambda retried, error, task: RETRY_DELAY,
            is_failure=lambda error: not str(error).startswith(NOT_FAILURES),
            crash_limit=1_000,  # Asynq has none, and takes suspects like other tasks
        )
        self._config = config
        self._background: StillEngine
        self._grouping: StillEngine
        self._workers: dict[str, StillEngine] = {}
        self._wait(self._build())

    async def _build(self) -> None:
        # A recoverer rests for a while after Redis was started; this one was started long ago.
        facts = RedisFacts("redis", (7,), "", _LONG_AGO, SYSTEM_CLOCK.now())
        self._background = StillEngine(self._url, self._config, facts)
        grouping = replace(
            self._config,
            queues={QUEUES[0]: 1},
            group_aggregator=self._aggregate_group,
            group_grace_period=GRACE_PERIOD,
            group_max_delay=MAX_DELAY,
            group_max_size=MAX_SIZE,
        )
        self._grouping = StillEngine(self._url, grouping, facts)
        self._workers = {slot: StillEngine(self._url, self._config, facts) for slot in SLOTS}

    def close(self) -> None:
        """Close all connections."""
        self.begin()
        self._client.close()
        self._inspector.close()

        async def close() -> None:
            for one in (self._background, self._grouping, *self._workers.values()):
                await one.engine._watcher.close()
                await one.engine.close()

        self._wait(close())
        self._runner.close()

    def begin(self) -> None:
        """Have workers forget what they run, and clients what they have registered."""
        for worker in self._workers.values():
            if worker.engine._runner.running:
                self._wait(worker.finish(Ending("vanish", "", None)))
        self._new_client()

    def do(self, step: Step) -> Answer:
        """Perform a step."""
        try:
            return Answer(getattr(self, f"_{step.operation}")(**step.arguments))
        except RedisError:
            raise  # that Redis cannot be reached is not a refusal
        except PyasynqError as error:
            return Answer(None, _REFUSALS.get(type(error), "other"))

    def _wait(self, work: Coroutine[Any, Any, Any]) -> Any:
        return self._runner.run(work)

    def _new_client(self) -> None:
        self._client.close()
        # `close` waits 0.1 s for the registration of a queue name, which takes longer on a busy machine.
        for thread in threading.enumerate():
            if thread.name == "pyasynq registration of queues":
                thread.join()
        self._client = Client(self._url, timeout=PATIENCE)

    def _enqueue(self, task_type: str, payload: bytes | None, options: dict[str, Any]) -> Any:
        given: Any = {name: _moment(value) if name in _MOMENTS else value for name, value in options.items()}
        return task_view(self._client.enqueue(Task(task_type, payload, **given)))

    def _take(self, slot: str) -> Any:
        return self._wait(self._workers[slot].take())

    def _finish(self, slot: str, kind: str, text: str, result: bytes | None) -> None:
        self._wait(self._workers[slot].finish(Ending(kind, text, result)))

    def _cancel(self, slot: str, queue: str, task_id: str) -> None:
        self._inspector.cancel(task_id)  # in any queue, as in Asynq
        self._wait(self._workers[slot].cancel(task_id))

    def _stop(self, slot: str) -> None:
        self._wait(self._workers[slot].stop())

    def _forward(self) -> None:
        self._wait(self._work_once("forwarder"))

    def _delete_expired(self) -> None:
        self._wait(self._work_once("janitor"))

    def _recover(self) -> None:
        self._wait(self._work_once("recoverer"))

    async def _work_once(self, service: str) -> None:
        """Let a service do a round, after the look that tells it where there is work."""
        await self._background.services["queue_look"].round()
        await self._background.services[service].round()

    def _aggregate(self, refuse: bool) -> None:
        self._refuse = refuse
        aggregator = self._grouping.engine._aggregator
        assert aggregator is not None

        async def look() -> None:
            await aggregator.round()
            await aggregator.wait_until_idle(10)

        self._wait(look())
        # Another server would look at the group again at once.
        aggregator._pauses.clear()
        aggregator._backoffs.clear()

    async def _aggregate_group(self, group: str, tasks: list[Task]) -> Task:
        if self._refuse:
            raise HandlerError("refused")
        return await _aggregate(group, tasks)

    def _run_task(self, queue: str, task_id: str) -> None:
        self._inspector.run_task(queue, task_id)

    def _archive_task(self, queue: str, task_id: str) -> None:
        self._inspector.archive_task(queue, task_id)

    def _delete_task(self, queue: str, task_id: str) -> None:
        self._inspector.delete_task(queue, task_id)

    def _update_payload(self, queue: str, task_id: str, payload: bytes) -> None:
        self._inspector.update_payload(queue, task_id, payload)

    def _run_all(self, queue: str, state: str, group: str) -> int:
        return self._inspector.run_all(queue, state, group=group).done

    def _archive_all(self, queue: str, state: str, group: str) -> int:
        return self._inspector.archive_all(queue, state, group=group, trim=True).done

    def _delete_all(self, queue: str, state: str, group: str) -> int:
        return self._inspector.delete_all(queue, state, group=group).done

    def _pause_queue(self, queue: str) -> None:
        self._inspector.pause_queue(queue)

    def _unpause_queue(self, queue: str) -> None:
        self._inspector.unpause_queue(queue)

    def _remove_queue(self, queue: str, force: bool) -> None:
        self._inspector.remove_queue(queue, force=force)

    def _queues(self) -> Any:
        return self._inspector.queues()

    def _groups(self, queue: str) -> Any:
        return {one.name: one.size for one in self._inspector.groups(queue)}

    def _task_info(self, queue: str, task_id: str) -> Any:
        return task_view(self._inspector.task_info(queue, task_id))

    def _list_tasks(self, queue: str, state: str, group: str, page: int) -> Any:
        found = self._inspector.list_tasks(queue, state, page, 2, group=group)
        return [task_view(one) for one in found]

    def _queue_info(self, queue: str) -> Any:
        found = self._inspector.queue_info(queue, memory=True)
        info = {**asdict(found), "size": found.size, "latency": found.latency.total_seconds()}
        for name in ("queue", "memory_usage", "memory_at", "timestamp", "paused_until", "limits", "due"):
            del info[name]
        return info

    def _history(self, queue: str) -> Any:
        days = self._inspector.history(queue, 2)
        return [(one.day.isoformat(), one.processed, one.failed) for one in days]


def task_view(info: TaskInfo) -> dict[str, Any]:
    """Return our description of a task in the words of both sides."""
    return {
        "id": info.id,
        "queue": info.queue,
        "type": info.type,
        "payload": info.payload,
        "headers": dict(info.headers),
        "state": info.state.value,
        "max_retry": info.max_retry,
        "retried": info.retried,
        "last_error": info.last_error,
        "last_failed_at": _unix(info.last_failed_at),
        "timeout": _seconds(info.timeout),
        "deadline": _unix(info.deadline),
        "group": info.group,
        "next_process_at": _unix(info.next_process_at),
        "is_orphaned": info.is_orphaned,
        "retention": _seconds(info.retention),
        "completed_at": _unix(info.completed_at),
        "result": info.result or b"",
    }


def _moment(seconds: float) -> datetime:
    return datetime.fromtimestamp(seconds, UTC)


def _unix(moment: datetime | None) -> float:
    return 0.0 if moment is None else moment.timestamp()


def _seconds(duration: timedelta | None) -> float:
    return 0.0 if duration is None else duration.total_seconds()
