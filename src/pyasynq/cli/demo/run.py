"""The demo's course: enqueue, watch, kill one worker, watch its tasks come back, and read what is left."""

from __future__ import annotations

import asyncio
import time
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from pyasynq.cli.demo.progress import LeaseView, RateMeter, Snapshot, WorkerView
from pyasynq.cli.demo.summary import Kill, Remains, Summary, path_of, summarize
from pyasynq.cli.demo.tasks import QUEUE, measure
from pyasynq.errors import PyasynqError
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.cli.demo.display import Display
    from pyasynq.cli.demo.sources import Sources
    from pyasynq.cli.demo.workers import Worker
    from pyasynq.info import QueueInfo
    from pyasynq.inspector import Inspector
    from pyasynq.task import TaskInfo

_KILL_AT_SHARE: Final = 0.1
_LOOK_INTERVAL_SECONDS: Final = 0.2
_WORKERS_READY_SECONDS: Final = 30.0
_STANDSTILL_SECONDS: Final = 90.0
_PAGE_SIZE: Final = 500


class DemoError(PyasynqError):
    """The demo could not go on; the message quotes the log of the worker concerned."""


@dataclass(slots=True)
class _Course:
    """What the demo itself must remember between two looks at Redis."""

    started: float
    enqueued: list[str]
    meter: RateMeter = field(default_factory=RateMeter)
    victim: Worker | None = None
    killed: float = 0.0
    killed_at_share: float = 0.0
    held: frozenset[str] = frozenset()
    first_back: float | None = None
    last_back: float | None = None
    changed: float = 0.0
    last_counts: tuple[int, ...] = ()


class Demo:
    """One run, on workers that have been started. The inspector is all that it knows Redis by."""

    def __init__(
        self, inspector: Inspector, workers: Sequence[Worker], sources: Sources, display: Display
    ) -> None:
        self._inspector = inspector
        self._workers = workers
        self._sources = sources
        self._display = display
        self._worker_of_server: dict[str, Worker] = {}

    async def run(self, *, kill: bool) -> Summary:
        """Enqueue every file, wait until each task is completed or archived, and sum up what Redis holds then.

        Raises:
            DemoError: when a worker ends by itself, or nothing moves for 90 seconds.
        """
        await self._workers_ready()
        course = await self._enqueue()
        while True:
            queue = await self._inspector.queue_info(QUEUE)
            active = await self._inspector.list_tasks(QUEUE, TaskState.ACTIVE, page_size=_PAGE_SIZE)
            self._check_course(course, queue)
            self._note_recovery(course, active)
            snapshot = self._snapshot(course, queue, active)
            self._display.show(snapshot)
            if queue.unfinished == 0:
                return await self._sum_up(course)
            if kill and course.victim is None and snapshot.share >= _KILL_AT_SHARE:
                await self._kill_one(course, snapshot.share, active)
            await asyncio.sleep(_LOOK_INTERVAL_SECONDS)

    async def _workers_ready(self) -> None:
        pids = {worker.pid: worker for worker in self._workers}
        deadline = time.monotonic() + _WORKERS_READY_SECONDS
        while len(self._worker_of_server) < len(self._workers):
            servers = await self._inspector.servers()
            self._worker_of_server = {server.id: pids[server.pid] for server in servers if server.pid in pids}
            for worker in self._workers:
                if worker.exit_code is not None or time.monotonic() > deadline:
                    message = f"{worker.name} did not start; its log ends with:\n{worker.last_words}"
                    raise DemoError(message)
            await asyncio.sleep(_LOOK_INTERVAL_SECONDS / 4)
        self._display.say(
            " and ".join(f"{worker.name} (pid {worker.pid})" for worker in self._workers) + " are ready."
        )

    async def _enqueue(self) -> _Course:
        started = time.monotonic()
        files = (*self._sources.planted, *self._sources.files)
        async with measure.app:
            results = await measure.enqueue_many({"path": str(path)} for path in files)
        for result in results:
            if not result:
                message = f"a task was not enqueued: {result.error or result.status}"
                raise DemoError(message)
        took = time.monotonic() - started
        self._display.say(
            f"{len(results):,} tasks enqueued in {took:.2f} s, {len(self._sources.planted)} of them broken files planted by the demo."
        )
        return _Course(started, [result.task_id for result in results if result.task_id], changed=started)

    def _check_course(self, course: _Course, queue: QueueInfo) -> None:
        for worker in self._workers:
            if worker is not course.victim and worker.exit_code is not None:
                message = f"{worker.name} ended with exit code {worker.exit_code}; its log ends with:\n{worker.last_words}"
                raise DemoError(message)
        counts = (queue.pending, queue.active, queue.retry, queue.completed, queue.archived)
        now = time.monotonic()
        if counts != course.last_counts:
            course.last_counts, course.changed = counts, now
        elif now > course.changed + _STANDSTILL_SECONDS:
            words = "\n".join(worker.last_words for worker in self._workers)
            message = f"nothing has moved for {_STANDSTILL_SECONDS:g} s; the workers' logs end with:\n{words}"
            raise DemoError(message)

    def _held_by(self, worker: Worker | None, active: Sequence[TaskInfo]) -> list[TaskInfo]:
        return [task for task in active if self._worker_of_server.get(task.server_id) is worker]

    async def _kill_one(self, course: _Course, share: float, active: Sequence[TaskInfo]) -> None:
        victim = max(self._workers, key=lambda worker: len(self._held_by(worker, active)))
        if not self._held_by(victim, active):
            return
        victim.kill()
        course.victim, course.killed, course.killed_at_share = victim, time.monotonic(), share
        # What a dead server holds is what Redis says after its death; what it said before may be settled by now.
        active = await self._inspector.list_tasks(QUEUE, TaskState.ACTIVE, page_size=_PAGE_SIZE)
        course.held = frozenset(task.id for task in self._held_by(victim, active))
        self._display.say(
            f"{victim.name} (pid {victim.pid}) is killed with SIGKILL; it holds {len(course.held)} tasks, whose leases now run down."
        )

    def _note_recovery(self, course: _Course, active: Sequence[TaskInfo]) -> None:
        if course.victim is None or course.last_back is not None:
            return
        still_held = {task.id for task in self._held_by(course.victim, active)}
        since_kill = time.monotonic() - course.killed
        if course.first_back is None and course.held - still_held:
            course.first_back = since_kill
        if not still_held & course.held:
            course.last_back = since_kill
            self._display.say(
                f"The tasks of {course.victim.name} are pending again, {since_kill:.0f} s after the kill."
            )

    def _snapshot(self, course: _Course, queue: QueueInfo, active: Sequence[TaskInfo]) -> Snapshot:
        now = time.monotonic()
        finished = queue.completed + queue.archived
        workers = [
            WorkerView(
                worker.name,
                worker.pid,
                len(self._held_by(worker, active)),
                now - course.killed if worker is course.victim else None,
            )
            for worker in self._workers
        ]
        abandoned = self._held_by(course.victim, active) if course.victim else []
        leases = [
            LeaseView(
                self._sources.name_of(path_of(task)),
                (task.lease_expires_at - queue.timestamp).total_seconds(),
            )
            for task in abandoned
            if task.lease_expires_at is not None
        ]
        return Snapshot(
            elapsed=now - course.started,
            total=len(course.enqueued),
            queue=queue,
            rate=course.meter.rate(now, finished),
            workers=workers,
            leases=sorted(leases, key=lambda lease: lease.seconds_left),
        )

    async def _sum_up(self, course: _Course) -> Summary:
        seconds = time.monotonic() - course.started
        kill = None
        if course.victim is not None:
            kill = Kill(
                worker=course.victim.name,
                pid=course.victim.pid,
                at_share=course.killed_at_share,
                held=course.held,
                first_back=course.first_back,
                last_back=course.last_back,
            )
        remains = Remains(
            queue=await self._inspector.queue_info(QUEUE),
            completed=await self._all_tasks(TaskState.COMPLETED),
            archived=await self._all_tasks(TaskState.ARCHIVED),
        )
        return summarize(remains, self._sources, enqueued=course.enqueued, kill=kill, seconds=seconds)

    async def _all_tasks(self, state: TaskState) -> list[TaskInfo]:
        tasks: list[TaskInfo] = []
        while True:
            page = 1 + len(tasks) // _PAGE_SIZE
            found = await self._inspector.list_tasks(QUEUE, state, page=page, page_size=_PAGE_SIZE)
            tasks.extend(found)
            if len(found) < _PAGE_SIZE:
                return tasks
