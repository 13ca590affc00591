"""Hooks and cancellation reasons of each ending of an attempt, in each kind of handler."""

from __future__ import annotations

import asyncio
import json
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    App,
    CancelReason,
    Inspector,
    ServerConfig,
    Snooze,
    TaskCanceledError,
    TaskTimeoutError,
    UndecodableMessageError,
    WorkerDiedError,
    context,
)
from pyasynq.events import LeaseLost, MessageQuarantined, WorkerDied
from tests import child_tasks as work
from tests.contract.test_hooks import listen
from tests.fix_engine import serving, trust_redis
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Awaitable, Callable
    from pathlib import Path

    from pyasynq import Task
    from tests.factories import Tasks
    from tests.fix_engine import Running
    from tests.invariants import RedisClient


@dataclass
class Scene:
    """A worker, and the file in which a handler that waits says that it has begun, then why it ended."""

    running: Running
    url: str
    client: RedisClient
    tasks: Tasks
    path: Path

    async def enqueue(self, how: str, **options: Any) -> None:
        """Enqueue a task whose handler ends in this way."""
        payload = json.dumps({"how": how, "path": str(self.path)}).encode()
        await self.running.client.enqueue("ending", payload, task_id="a", **options)

    async def finish(self) -> None:
        """Wait until the attempt has ended."""
        await self.running.finished("a")

    async def begin(self, **options: Any) -> None:
        """Enqueue a task whose handler waits, and wait until it does."""
        await self.enqueue("wait", **options)
        await asyncio.to_thread(wait_until, self.path.exists)

    async def run_out(self) -> None:
        """End the time of the running attempt, without waiting for it."""
        engine = self.running.server._engine
        assert engine is not None
        [attempt] = engine._roster.snapshot()
        attempt.deadline = attempt.started
        await self.finish()


def leave_behind(crashes: int) -> Callable[[Tasks], None]:
    """Return a function that makes a task which a dead worker has left."""

    def leave(tasks: Tasks) -> None:
        payload = json.dumps({"how": "return", "path": ""}).encode()
        lease = tasks.client.time()[0] - 60
        tasks.active("a", type="ending", payload=payload, token="dead/1", lease=lease, crashes=crashes)

    return leave


def damage(tasks: Tasks) -> None:
    """Make a task that cannot be decoded."""
    tasks.pending("a")
    tasks.client.hset(tasks.keys.task("a"), "msg", b"\xff\xff")


async def succeed(scene: Scene) -> None:
    """Return from the handler."""
    await scene.enqueue("return")
    await scene.finish()


async def fail(scene: Scene) -> None:
    """Raise an error with a retry left."""
    await scene.enqueue("fail", max_retry=1)
    await scene.finish()


async def fail_for_good(scene: Scene) -> None:
    """Raise an error without a retry left."""
    await scene.enqueue("fail", max_retry=0)
    await scene.finish()


async def snooze(scene: Scene) -> None:
    """Ask for another time."""
    await scene.enqueue("snooze", max_retry=0)
    await scene.finish()


async def put_back(scene: Scene) -> None:
    """Put a task back whose type has no handler here."""
    await scene.running.client.enqueue("unknown", b"{}", task_id="a", max_retry=0)
    await scene.finish()


async def shut_down(scene: Scene) -> None:
    """Shut the worker down while the handler runs."""
    await scene.begin()
    await scene.running.server.shutdown()


async def cancel(scene: Scene) -> None:
    """Cancel the running attempt from outside."""
    await scene.begin()
    async with Inspector(scene.url) as inspector:
        await inspector.cancel("a", outcome="archive")
    await scene.finish()


async def time_out(scene: Scene) -> None:
    """Reach the attempt's timeout."""
    await scene.begin(timeout=600)
    await scene.run_out()


async def pass_deadline(scene: Scene) -> None:
    """Reach the task's deadline."""
    await scene.begin(max_retry=0, deadline=datetime.now(UTC) + timedelta(seconds=600))
    await scene.run_out()


async def await_death(scene: Scene) -> None:
    """Wait until the worker has found the task of a dead one."""
    await scene.running.recorder.wait(WorkerDied)


async def run_again(scene: Scene) -> None:
    """Find the task of a dead worker, and run it here."""
    await await_death(scene)
    await scene.finish()


async def await_quarantine(scene: Scene) -> None:
    """Wait until the worker has archived what it cannot decode."""
    await scene.running.recorder.wait(MessageQuarantined)


async def lose_lease(scene: Scene) -> None:
    """Have another worker own the task while the handler runs."""
    await scene.begin()
    scene.client.hset(scene.tasks.keys.task("a"), "x:attempt", "another/1")
    await scene.running.recorder.wait(LeaseLost)
    await scene.finish()
    scene.client.flushall()


async def delete(scene: Scene) -> None:
    """Delete a task that waits."""
    await scene.enqueue("return", process_in=3_600)
    async with Inspector(scene.url) as inspector:
        await inspector.delete_task("default", "a")


@dataclass(frozen=True)
class Ending:
    """A way in which an attempt ends, and what hooks, middleware and the handler are told.

    Attributes:
        bring_about: makes task `a` end in this way.
        kinds: kinds of the hooks that are called, sorted.
        error: class of the error that hooks of failures get.
        reason: why the attempt is cancelled.
        kills: whether a child process is killed at once, so that its handler is not told.
        prepare: makes the task before the worker starts.
    """

    bring_about: Callable[[Scene], Awaitable[None]]
    kinds: list[str] = field(default_factory=list)
    error: type[BaseException] | None = None
    reason: CancelReason | None = None
    kills: bool = False
    prepare: Callable[[Tasks], None] = lambda _tasks: None


ENDINGS = {
    "success": Ending(succeed, ["success"]),
    "error, retries left": Ending(fail, ["error", "retry"], ValueError),
    "error, none left": Ending(fail_for_good, ["archived", "error"], ValueError),
    "snooze": Ending(snooze),
    "requeue": Ending(put_back),
    "shutdown": Ending(shut_down, reason=CancelReason.SHUTDOWN),
    "cancel": Ending(cancel, ["archived", "error"], TaskCanceledError, CancelReason.CANCEL),
    "timeout": Ending(time_out, ["error", "retry"], TaskTimeoutError, CancelReason.TIMEOUT, kills=True),
    "deadline": Ending(
        pass_deadline, ["archived", "error"], TaskTimeoutError, CancelReason.DEADLINE, kills=True
    ),
    "worker killed": Ending(
        run_again, ["error", "success"], WorkerDiedError, prepare=leave_behind(crashes=0)
    ),
    "worker killed, poison": Ending(
        await_death, ["archived", "error"], WorkerDiedError, prepare=leave_behind(crashes=8)
    ),
    "lost lease": Ending(lose_lease, reason=CancelReason.LEASE_LOST, kills=True),
    "undecodable": Ending(await_quarantine, ["archived"], UndecodableMessageError, prepare=damage),
    "deleted by hand": Ending(delete),
}
"""The table of the page on hooks."""


def make_local_app(place: str) -> App:
    """Return an app whose handler runs in the worker's own process: a coroutine, or a plain function."""
    app = App()

    async def wait(how: str, path: str) -> Snooze | None:
        if how != "wait":
            return work.end_as_told(how, path)
        work.write(path, "begun")
        try:
            await asyncio.sleep(3_600)
        finally:
            work.write(path, str(context().cancelled.reason))
        return None

    app.task("ending")(wait if place == "coroutine" else work.end_as_told)
    return app


def make_app(place: str, monkeypatch: pytest.MonkeyPatch) -> App:
    """Return an app without hooks and middleware, with the task `ending` in this kind of handler."""
    if place != "process":
        return make_local_app(place)
    monkeypatch.setattr(work.app, "_hooks", type(work.app._hooks)())
    monkeypatch.setattr(work.app._registry, "_middleware", [])
    monkeypatch.setattr(work.app._registry, "_routes", {})
    return work.app


def watch(app: App) -> set[CancelReason | None]:
    """Give an app middleware; return the reasons that it sees when a handler has ended."""
    seen: set[CancelReason | None] = set()

    @app.use
    async def look(task: Task, call_next: Callable[[Task], Awaitable[Any]]) -> Any:
        assert context().cancelled.reason is None
        try:
            return await call_next(task)
        finally:
            seen.add(context().cancelled.reason)

    return seen


@pytest.mark.sample(14)
@pytest.mark.parametrize("name", ENDINGS)
@pytest.mark.parametrize("place", ["coroutine", "thread", "process"])
@run_async
async def test_an_ending_calls_its_hooks_and_tells_its_reason(
    redis_url: str,
    redis_client: RedisClient,
    tasks: Tasks,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    damage_allowed: None,
    place: str,
    name: str,
) -> None:
    """Hooks, middleware and the handler are told the same, in each kind of handler."""
    ending = ENDINGS[name]
    app, path = make_app(place, monkeypatch), tmp_path / "told"
    calls, seen = listen(app), watch(app)
    trust_redis(monkeypatch)
    ending.prepare(tasks)
    config = ServerConfig(shutdown_timeout=0, cancel_timeout=20, on_unknown="return")
    async with serving(redis_url, app, config) as running:
        await ending.bring_about(Scene(running, redis_url, redis_client, tasks, path))
    told = [end for kind, end in calls if kind != "success"]
    assert ending.kinds == sorted(kind for kind, _ in calls)
    assert {type(end.error) for end in told} <= {ending.error}
    assert {end.reason for end in told} <= {ending.reason}
    assert {ending.reason} - {None} == seen - {None}
    if ending.reason is not None:
        expected = "begun" if place == "process" and ending.kills else ending.reason
        assert expected == path.read_text("ascii")
