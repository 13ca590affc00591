"""Handlers of all kinds, what they can do and what they leave, on a real Redis."""

from __future__ import annotations

import asyncio
import gc
import json
import logging
import weakref
from contextvars import ContextVar
from typing import TYPE_CHECKING, Any, cast

import pytest

from pyasynq._wire.messages import decode_task_message
from pyasynq.config import ServerConfig
from pyasynq.context import context, current_task
from pyasynq.errors import TaskTimeoutError
from pyasynq.events import Outcome
from pyasynq.mux import Mux
from tests.fix_engine import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from pyasynq._engine.run.attempt import Attempt
    from pyasynq.task import Task
    from tests.factories import Tasks


@pytest.mark.parametrize("result", [b"bytes", "text"])
@run_async
async def test_a_result_is_kept_with_a_retention(redis_url: str, tasks: Tasks, result: Any) -> None:
    """The completed task carries what the handler returned."""

    async def handle(task: Task) -> Any:
        del task
        return result

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.finished("a")
        await running.settled()
    fields = tasks.fields("a")
    expected = result if isinstance(result, bytes) else result.encode()
    assert (b"completed", expected) == (fields["state"], fields["result"])
    message = decode_task_message(fields["msg"])
    assert tasks.scores("completed")["a"] == message.completed_at + 60


@run_async
async def test_a_result_of_another_type_succeeds_without_a_result(redis_url: str, tasks: Tasks) -> None:
    """The work is done; what cannot be stored is reported and left out."""

    async def handle(task: Task) -> Any:
        del task
        return {"not": "bytes"}

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        assert Outcome.SUCCEEDED is (await running.finished("a")).outcome
        await running.settled()
    assert "result" not in tasks.fields("a")


@pytest.mark.parametrize("is_async", [True, False])
@run_async
async def test_the_error_handler_gets_task_and_error(redis_url: str, is_async: bool) -> None:
    """Plain or async, once for each failure."""
    told = []

    def plain(task: Task, error: BaseException) -> None:
        told.append((task.type, str(error)))

    async def waiting(task: Task, error: BaseException) -> None:
        plain(task, error)

    async def handle(task: Task) -> None:
        del task
        raise ValueError("no")

    async with serving(
        redis_url, handle, ServerConfig(error_handler=waiting if is_async else plain)
    ) as running:
        await running.client.enqueue("t:x", task_id="a")
        await running.finished("a")
    assert [("t:x", "no")] == told


@run_async
async def test_a_type_without_handler_fails_by_default(redis_url: str, tasks: Tasks) -> None:
    """Asynq's rule: an ordinary failure."""
    async with serving(redis_url, Mux()) as running:
        await running.client.enqueue("t:x", task_id="a")
        await running.finished("a")
        await running.settled()
    message = decode_task_message(tasks.fields("a")["msg"])
    assert (1, 'handler not found for task "t:x"') == (message.retried, message.error_msg)


@run_async
async def test_h19_a_type_without_handler_is_returned_for_others_on_request(
    redis_url: str, tasks: Tasks
) -> None:
    """`on_unknown="return"`: nothing is spent, and it comes back after a pause."""
    async with serving(redis_url, Mux(), ServerConfig(on_unknown="return")) as running:
        await running.client.enqueue("t:x", task_id="a", max_retry=0)
        assert Outcome.REQUEUED is (await running.finished("a")).outcome
        await running.settled()
    assert 0 == decode_task_message(tasks.fields("a")["msg"]).retried
    assert ["a"] == tasks.ids("retry")


@run_async
async def test_plain_handlers_run_in_threads_with_their_context(redis_url: str, tasks: Tasks) -> None:
    """`context()` works there, and results can be written."""
    seen: dict[str, Any] = {}

    def handle(task: Task) -> str:
        here = context()
        seen.update(id=here.task_id, type=task.type, queue=here.queue, cancelled=here.cancelled.is_set())
        here.write_result_sync(json.dumps(here.max_retry).encode())
        return "overwritten"

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t:x", task_id="a", retention=60, max_retry=7)
        await running.finished("a")
        await running.settled()
    assert {"id": "a", "type": "t:x", "queue": "default", "cancelled": False} == seen
    assert b"overwritten" == tasks.fields("a")["result"]


@run_async
async def test_a_result_can_be_written_while_the_handler_runs(redis_url: str, tasks: Tasks) -> None:
    """It stays when the handler returns nothing."""

    async def handle(task: Task) -> None:
        del task
        await context().write_result(b"partial")

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a", retention=60)
        await running.finished("a")
        await running.settled()
    assert b"partial" == tasks.fields("a")["result"]


@run_async
async def test_handlers_that_never_wait_have_tasks_and_contexts_of_their_own(redis_url: str) -> None:
    """As those that wait: what one leaves in a context variable, or keeps by its task, no other one sees."""
    variable = ContextVar("variable", default="nothing")
    seen: list[tuple[str, asyncio.Task[Any] | None]] = []

    async def handle(task: Task) -> None:
        del task
        seen.append((variable.get(), asyncio.current_task()))
        variable.set(context().task_id)

    async with serving(redis_url, handle) as running:
        for name in ("a", "b", "c"):
            await running.client.enqueue("t", task_id=name)
            await running.finished(name)
    assert ["nothing"] * 3 == [value for value, _ in seen]
    assert 3 == len({id(task) for _, task in seen})
    assert all(task is not None and task is not asyncio.current_task() for _, task in seen)


@run_async
async def test_an_attempt_that_is_cancelled_in_its_first_step_is_broken_off(
    redis_url: str, tasks: Tasks
) -> None:
    """Its asyncio task may not be known before it waits."""
    broken_off: list[str] = []

    async def handle(task: Task) -> None:
        del task
        attempt = cast("Attempt", current_task.get())
        attempt.cancel(TaskTimeoutError(), monotonic=attempt.started)
        try:
            await asyncio.Event().wait()
        except asyncio.CancelledError:
            broken_off.append(attempt.id)
            raise

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
        await running.settled()
    assert ["a"] == broken_off == tasks.ids("retry")


@run_async
async def test_the_task_factory_of_the_loop_makes_the_tasks_of_handlers(redis_url: str) -> None:
    """Middleware that traces or names tasks sees these too."""
    made: list[str] = []

    def factory(loop: asyncio.AbstractEventLoop, coroutine: Any, **settings: Any) -> asyncio.Task[Any]:
        made.append(coroutine.__qualname__)
        return asyncio.Task(coroutine, loop=loop, **settings)

    async def handle(task: Task) -> None:
        """Do nothing."""

    asyncio.get_running_loop().set_task_factory(factory)
    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
    assert 1 == made.count("Runner._run")


@run_async
async def test_the_asyncio_task_of_a_handler_is_named_after_its_task(redis_url: str) -> None:
    """Logs and stacks can then name the task."""
    names: list[str] = []

    async def handle(task: Task) -> None:
        del task
        asyncio_task = asyncio.current_task()
        names.append(asyncio_task.get_name() if asyncio_task else "")

    async with serving(redis_url, handle) as running:
        await running.client.enqueue("t", task_id="a")
        await running.finished("a")
    assert ["a"] == names


@pytest.mark.sample(1)
@pytest.mark.parametrize("waits", [False, True])
@pytest.mark.parametrize("fails", [False, True])
@run_async
async def test_a_finished_attempt_is_freed_without_the_garbage_collector(
    redis_url: str, fails: bool, waits: bool
) -> None:
    """No reference cycle holds it: neither its asyncio task, nor its context, nor its error's traceback."""
    references = []

    async def handle(task: Task) -> None:
        del task
        references.append(weakref.ref(context()._task))
        if waits:
            await asyncio.sleep(0)
        if fails:
            raise ValueError("no")

    logging.getLogger("pyasynq").setLevel(logging.CRITICAL)
    async with serving(redis_url, handle) as running:
        running.recorder.seen = Forgetful()
        gc.collect()
        gc.disable()
        try:
            for number in range(3):
                await running.client.enqueue("t", task_id=str(number))
                while len(references) <= number:
                    await running.next_round("processor")
            await running.settled()
            await running.next_round("deadlines")
            await running.next_round("heartbeater")
            await running.next_round("heartbeater")
            assert [None] * 3 == [reference() for reference in references]
        finally:
            gc.enable()
            logging.getLogger("pyasynq").setLevel(logging.NOTSET)


class Forgetful(list[Any]):
    """Keeps nothing: an event would keep its error alive, the error its frames."""

    def append(self, item: Any) -> None:
        del item
