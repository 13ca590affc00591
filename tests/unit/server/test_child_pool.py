from __future__ import annotations

import asyncio
import contextlib
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq import ServerConfig
from pyasynq._background.redis_time import RedisTime
from pyasynq._clock import SYSTEM_CLOCK
from pyasynq._engine.executor import frames, pool
from pyasynq._engine.executor.frames import MessageFrame
from pyasynq._engine.executor.order import Program
from pyasynq._engine.executor.pool import Children
from pyasynq._engine.run.attempt import Attempt
from pyasynq._engine.settings import DEFAULT_ENGINE_SETTINGS
from pyasynq._wire.messages import TaskMessage
from pyasynq.context import current_task
from pyasynq.errors import ChildProcessDiedError
from pyasynq.task import Task
from tests.child_tasks import plain_handler
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Callable

PROGRAM = Program("the handler", plain_handler, lambda found: True, dict)


class FakeChild:
    """Answers at once, and starts when it may."""

    made: list[FakeChild]
    may_start: asyncio.Event
    fails = False

    def __init__(self) -> None:
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        self.on_end: Callable[[Any], object] = lambda _: None
        self.prepared: set[str] = set()
        self.tasks = 0
        self.pid = 0
        self.made.append(self)

    @property
    def is_usable(self) -> bool:
        return not self.ended.done()

    async def set_up(self) -> None:
        await self.may_start.wait()
        if self.fails:
            raise OSError("no more sockets")

    async def ask(self, attempt: Attempt, order: MessageFrame, grace: Callable[[], float]) -> MessageFrame:
        await asyncio.sleep(0)
        if order.body == b"die":
            self.kill()
            raise ChildProcessDiedError(1, None)
        return MessageFrame(
            frames.READY if order.kind == frames.PREPARE else frames.RETURNED, {"kind": "none", "dropped": ""}
        )

    async def leave(self, seconds: float) -> None:
        await asyncio.sleep(0)
        self.kill()

    def kill(self, reason: str = "") -> None:
        if not self.ended.done():
            self.ended.set_result(0)
            self.on_end(self)


@pytest.fixture
def fakes(monkeypatch: pytest.MonkeyPatch) -> type[FakeChild]:
    """Children that are not processes."""
    FakeChild.made, FakeChild.fails = [], False
    monkeypatch.setattr(pool, "ExecutorChild", FakeChild)
    return FakeChild


def make_children(**config: Any) -> Children:
    """Return a pool of fakes, which may start at once."""
    FakeChild.may_start = asyncio.Event()
    FakeChild.may_start.set()
    redis_time = RedisTime(SYSTEM_CLOCK)
    return Children(ServerConfig(**config), DEFAULT_ENGINE_SETTINGS, SYSTEM_CLOCK, redis_time)


def call(children: Children, payload: bytes = b"") -> asyncio.Task[Any]:
    """Call the handler for an attempt of its own."""
    message = TaskMessage(type="t", payload=payload, id="a", queue="default", timeout=30)
    attempt = Attempt(cast("Any", None), "default", message, "token")
    attempt.begin(monotonic=SYSTEM_CLOCK.monotonic(), unix_time=0.0)

    async def run() -> Any:
        current_task.set(attempt)
        return await children.call(PROGRAM, Task("t", payload))

    return asyncio.get_running_loop().create_task(run())


async def turns() -> None:
    """Let everything go on that does not wait."""
    for _ in range(10):
        await asyncio.sleep(0)


@run_async
async def test_children_are_used_again_the_last_one_first(fakes: type[FakeChild]) -> None:
    """As many are started as tasks run at once, and no more."""
    children = make_children()
    await asyncio.gather(call(children), call(children))
    assert 2 == len(fakes.made)
    await call(children)
    await call(children)

    assert 2 == len(fakes.made)
    assert [1, 3] == sorted(child.tasks for child in fakes.made)
    await children.close()
    assert all(child.ended.done() for child in fakes.made)


@run_async
async def test_a_child_whose_task_is_cancelled_while_it_starts_is_kept_for_the_next(
    fakes: type[FakeChild],
) -> None:
    """It is not lost, and not started twice."""
    children = make_children()
    fakes.may_start.clear()
    first = call(children)
    await turns()
    first.cancel()
    with contextlib.suppress(asyncio.CancelledError):
        await first
    fakes.may_start.set()
    await turns()
    await call(children)

    assert 1 == len(fakes.made)
    await children.close()


@run_async
async def test_a_close_waits_for_children_that_start_and_ends_them(fakes: type[FakeChild]) -> None:
    """No child is left running unnoticed."""
    children = make_children()
    fakes.may_start.clear()
    first = call(children)
    await turns()
    first.cancel()
    closing = asyncio.ensure_future(children.close())
    await turns()
    assert not closing.done()
    fakes.may_start.set()
    await closing

    assert fakes.made[0].ended.done()


@run_async
async def test_a_child_that_cannot_be_set_up_fails_its_task_and_is_killed(fakes: type[FakeChild]) -> None:
    """The next task tries again."""
    children = make_children()
    fakes.fails = True
    with pytest.raises(OSError, match="no more sockets"):
        await call(children)
    fakes.fails = False

    assert None is await call(children)
    assert fakes.made[0].ended.done()
    await children.close()


@run_async
async def test_a_child_that_died_is_not_used_again(fakes: type[FakeChild]) -> None:
    """Its place is free."""
    children = make_children(executor_processes=1)
    with pytest.raises(ChildProcessDiedError):
        await call(children, b"die")
    await call(children)

    assert [True, False] == [child.ended.done() for child in fakes.made]
    await children.close()


@run_async
async def test_tasks_wait_for_a_free_place_and_a_cancelled_one_takes_none(fakes: type[FakeChild]) -> None:
    """Its place would be lost for ever."""
    children = make_children(executor_processes=1)
    fakes.may_start.clear()
    running, waiting, last = call(children), call(children), call(children)
    await turns()
    waiting.cancel()
    fakes.may_start.set()
    await asyncio.wait({running, waiting, last})

    assert waiting.cancelled()
    assert (None, None) == (running.result(), last.result())
    assert 1 == len(fakes.made)
    await children.close()


@run_async
async def test_a_child_that_has_run_enough_leaves(fakes: type[FakeChild]) -> None:
    """The next task gets a new one."""
    children = make_children(executor_max_tasks=2)
    for _ in range(3):
        await call(children)

    assert [2, 1] == [child.tasks for child in fakes.made]
    await children.close()
    assert all(child.ended.done() for child in fakes.made)


@run_async
async def test_a_start_whose_task_was_cancelled_serves_the_next_task(fakes: type[FakeChild]) -> None:
    """Else there would be more children than `executor_processes` at its end. (D29)"""
    children = make_children(executor_processes=1)
    fakes.may_start.clear()
    for _ in range(3):
        cancelled = call(children)
        await turns()
        cancelled.cancel()
        await asyncio.wait({cancelled})
    last = call(children)
    await turns()
    fakes.may_start.set()
    await last
    await turns()

    assert 1 == len(fakes.made)
    await children.close()


@run_async
async def test_a_child_that_was_killed_is_given_no_task_although_it_has_not_ended(
    fakes: type[FakeChild], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The kernel may take its time. (D07)"""
    children = make_children(executor_processes=1)
    await call(children)
    monkeypatch.setattr(fakes, "is_usable", property(lambda child: child is not fakes.made[0]))
    await call(children)

    assert [1, 1] == [child.tasks for child in fakes.made]
    monkeypatch.undo()
    fakes.made[0].kill()
    await children.close()
