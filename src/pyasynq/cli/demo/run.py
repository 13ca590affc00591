"""Steps of the demo: enqueue, kill one worker, watch the recovery of its tasks, collect the results."""

from __future__ import annotations

import asyncio
import time
from typing import TYPE_CHECKING, Final

from pyasynq.cli.demo.progress import DemoState, LeaseView, RateMeter, WorkerView
from pyasynq.cli.demo.summary import Remains, Summary, path_of, summarize
from pyasynq.cli.demo.tasks import QUEUE, measure
from pyasynq.cli.demo.worker_kill_record import WorkerKillRecord
from pyasynq.cli.output.progress import percent
from pyasynq.errors import PyasynqError
from pyasynq.task import TaskState

if TYPE_CHECKING:
    from collections.abc import Sequence

    from pyasynq.cli.demo.display import Display
    from pyasynq.cli.demo.sources import Sources
    from pyasynq.cli.demo.workers import Worker
    from pyasynq.client import Client
    from pyasynq.info import QueueInfo
    from pyasynq.operations import Operator
    from pyasynq.task import TaskInfo

_KILL_AT_SHARE: Final = 0.1
_LOOK_INTERVAL_SECONDS: Final = 0.2
_WORKERS_READY_SECONDS: Final = 30.0
_STANDSTILL_SECONDS: Final = 90.0
_PAGE_SIZE: Final = 500


class DemoError(PyasynqError):
    """Error: the demo cannot continue; the message quotes the log of the worker concerned."""


class Demo:
    """One run of the demo, on started workers. It reads Redis only through the operator."""

    def __init__(
        self,
        client: Client,
        operator: Operator,
        workers: Sequence[Worker],
        sources: Sources,
        display: Display,
    ) -> None:
        self._client = client
        self._operator = operator
        self._workers = workers
        self._sources = sources
        self._display = display
        self._worker_of_server: dict[str, Worker] = {}
        self._meter = RateMeter()
        self._patience = _Patience()
        self._kill_record: WorkerKillRecord | None = None

    async def run(self, *, kill: bool) -> Summary:
        """Enqueue every file, wait until each task is completed or archived, and return a summary.

        Raises:
            DemoError: when a worker exits by itself, or no task changes its state for 90 seconds.
        """
        await self._wait_for_workers()
        started = time.monotonic()
        enqueued = await self._enqueue()
        while True:
            queue = await self._operator.queue(QUEUE)
            active = await self._list_active_tasks()
            self._note_recovery(active)
            snapshot = self._snapshot(time.monotonic() - started, len(enqueued), queue, active)
            self._display.show(snapshot)
            if queue.unfinished == 0:
                return await self._sum_up(enqueued, time.monotonic() - started)
            if kill and self._kill_record is None and snapshot.share >= _KILL_AT_SHARE:
                await self._kill_one(snapshot.share, active)
            self._check_workers(queue)
            await asyncio.sleep(_LOOK_INTERVAL_SECONDS)

    async def _wait_for_workers(self) -> None:
        pids = {worker.pid: worker for worker in self._workers}
        deadline = time.monotonic() + _WORKERS_READY_SECONDS
        while len(self._worker_of_server) < len(self._workers):
            servers = await self._operator.servers(payloads=False)
            self._worker_of_server = {server.id: pids[server.pid] for server in servers if server.pid in pids}
            for worker in self._workers:
                if worker.exit_code is not None or time.monotonic() > deadline:
                    raise DemoError(f"{worker.name} did not start; its log ends with:\n{worker.last_words}")
            await asyncio.sleep(_LOOK_INTERVAL_SECONDS / 4)
        names = " and ".join(f"{worker.name} (pid {worker.pid})" for worker in self._workers)
        self._display.say(f"{names} are ready.")

    async def _enqueue(self) -> list[str]:
        started = time.monotonic()
        planted = self._sources.planted
        paths = (*planted, *self._sources.files)
        results = await self._client.enqueue_many(
            (measure.task(path=str(path)) for path in paths), on_error="return"
        )
        for result in results:
            if not result:
                raise DemoError(f"a task was not enqueued: {result.error or result.status}")
        took = time.monotonic() - started
        self._display.say(
            f"{len(results):,} tasks enqueued in {took:.2f} s, {len(planted)} planted ones first."
        )
        return [result.task_id for result in results if result.task_id]

    async def _list_active_tasks(self) -> list[TaskInfo]:
        return await self._operator.tasks(QUEUE, TaskState.ACTIVE, page_size=_PAGE_SIZE)

    def _find_held_tasks(self, worker: Worker, active: Sequence[TaskInfo]) -> list[TaskInfo]:
        return [task for task in active if self._worker_of_server.get(task.server_id) is worker]

    async def _kill_one(self, share: float, active: Sequence[TaskInfo]) -> None:
        victim = max(self._workers, key=lambda worker: len(self._find_held_tasks(worker, active)))
        if not self._find_held_tasks(victim, active):
            return
        victim.kill()
        held = [task.id for task in self._find_held_tasks(victim, await self._list_active_tasks())]
        self._kill_record = WorkerKillRecord(victim, share, held)
        self._display.say(
            f"{victim.name} (pid {victim.pid}) is killed with SIGKILL, {percent(share)} is done."
        )
        self._display.say(f"It holds {len(held)} tasks, whose leases are no longer renewed and run down.")

    def _note_recovery(self, active: Sequence[TaskInfo]) -> None:
        record = self._kill_record
        if record and record.update(task.id for task in self._find_held_tasks(record.worker, active)):
            name, age = record.worker.name, record.age
            self._display.say(f"The tasks of {name} are pending again, {age:.0f} s after the kill.")

    def _check_workers(self, queue: QueueInfo) -> None:
        for worker in self._workers:
            is_dead = self._kill_record is not None and worker is self._kill_record.worker
            if worker.exit_code is not None and not is_dead:
                how = f"{worker.name} ended with exit code {worker.exit_code}"
                raise DemoError(f"{how}; its log ends with:\n{worker.last_words}")
        if self._patience.is_over(queue):
            words = "\n".join(worker.last_words for worker in self._workers)
            how = f"nothing has moved for {_STANDSTILL_SECONDS:g} s"
            raise DemoError(f"{how}; the workers' logs end with:\n{words}")

    def _snapshot(
        self, elapsed: float, total: int, queue: QueueInfo, active: Sequence[TaskInfo]
    ) -> DemoState:
        dead = self._kill_record.worker if self._kill_record else None
        workers = [
            WorkerView(
                worker.name,
                worker.pid,
                running=len(self._find_held_tasks(worker, active)),
                killed_for=self._kill_record.age if self._kill_record and worker is dead else None,
            )
            for worker in self._workers
        ]
        leases = [
            LeaseView(
                self._sources.name_of(path_of(task)),
                (task.lease_expires_at - queue.timestamp).total_seconds(),
            )
            for task in (self._find_held_tasks(dead, active) if dead else ())
            if task.lease_expires_at is not None
        ]
        return DemoState(
            elapsed=elapsed,
            total=total,
            queue=queue,
            rate=self._meter.rate(elapsed, queue.completed + queue.archived),
            workers=workers,
            leases=sorted(leases, key=lambda lease: lease.seconds_left),
        )

    async def _sum_up(self, enqueued: Sequence[str], seconds: float) -> Summary:
        remains = Remains(
            queue=await self._operator.queue(QUEUE),
            completed=await self._list_all_tasks(TaskState.COMPLETED),
            archived=await self._list_all_tasks(TaskState.ARCHIVED),
        )
        kill = self._kill_record.to_kill() if self._kill_record else None
        return summarize(remains, self._sources, enqueued=enqueued, kill=kill, seconds=seconds)

    async def _list_all_tasks(self, state: TaskState) -> list[TaskInfo]:
        tasks: list[TaskInfo] = []
        while True:
            page = 1 + len(tasks) // _PAGE_SIZE
            found = await self._operator.tasks(QUEUE, state, page=page, page_size=_PAGE_SIZE)
            tasks.extend(found)
            if len(found) < _PAGE_SIZE:
                return tasks


class _Patience:
    """Timeout of 90 s without a change in a queue's task counts, longer than any lease or retry delay."""

    def __init__(self) -> None:
        self._counts: tuple[int, ...] = ()
        self._changed = time.monotonic()

    def is_over(self, queue: QueueInfo) -> bool:
        counts = (queue.pending, queue.active, queue.retry, queue.completed, queue.archived)
        if counts != self._counts:
            self._counts, self._changed = counts, time.monotonic()
        return time.monotonic() > self._changed + _STANDSTILL_SECONDS
