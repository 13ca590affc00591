"""The SDK's worker over HTTP: outcomes, lost answers, leases, keys, and an orderly end."""

from __future__ import annotations

import asyncio
import json
from contextlib import asynccontextmanager
from datetime import timedelta
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import (
    Archive,
    Cancel,
    CancelReason,
    Client,
    Inspector,
    Retry,
    SkipRetry,
    Snooze,
    TaskNotFoundError,
    context,
)
from pyasynq.operations import Operator
from pyasynq.sdk import (
    SdkClient,
    ServiceError,
    TaskReq,
    WorkerEndedError,
    http_work,
    leased_attempt,
    start_worker,
)
from tests.contract.sdk.test_sdk_worker import Notes
from tests.fix_sdk import ADMIN, Meddler, configure, serving_http
from tests.ports import free_port
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

    from pyasynq import Task, TaskContext
    from pyasynq.sdk import RunningWorker

pytestmark = pytest.mark.usefixtures("redis_client")


@asynccontextmanager
async def working(
    redis_url: str, handler: Any, *, dump: dict[str, Any] | None = None, **arguments: Any
) -> AsyncIterator[tuple[RunningWorker, Meddler]]:
    """Run a worker of one type over HTTP, with a meddler between it and the service."""
    await configure(redis_url, dump={"retention": 3600.0} if dump is None else dump)
    meddlers: list[Meddler] = []
    async with (
        serving_http(redis_url, meddlers=meddlers) as (_, address),
        await start_worker({"dump": handler}, service=address, **arguments) as worker,
    ):
        yield worker, meddlers[0]


@pytest.fixture
def short_leases(monkeypatch: pytest.MonkeyPatch) -> None:
    """Let a lease last 1 s, and be extended every third of it."""
    monkeypatch.setattr(leased_attempt, "LEASED_SECONDS", 1.0)
    monkeypatch.setattr(leased_attempt, "_RENEW_SECONDS", 0.3)
    monkeypatch.setattr(http_work, "LEASED_SECONDS", 1.0)


@pytest.mark.parametrize(
    ("returned", "stored"),
    [(None, None), ("text", b"text"), (b"\xff\x00", b"\xff\x00"), ('{"a":  1}', b'{"a":  1}')],
)
@run_async
async def test_results_are_stored_as_they_are_returned(redis_url: str, returned: Any, stored: Any) -> None:
    """Text and bytes, as in a worker that takes its tasks from Redis."""

    async def dump(context: TaskContext, task: Task) -> Any:
        return returned

    async with working(redis_url, dump) as (worker, _), Client(redis_url) as client:
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        info = (await client.wait("dump", "1", 30)).info
    assert info is not None
    assert ("completed", stored) == (str(info.state), info.result)


@run_async
async def test_a_typed_handler_gets_arguments_and_returns_any_json(redis_url: str) -> None:
    """A plain function in a thread, here with a written result that what it returns replaces."""

    def dump(path: str, depth: int = 3) -> dict[str, Any]:
        context().write_result_sync(b"early")
        return {"path": path, "depth": depth}

    async with working(redis_url, dump) as (worker, _), Client(redis_url) as client:
        await worker.enqueue(TaskReq(task_id=1, task_name="dump", params={"path": "/tmp/ü"}))
        result = await client.result("dump", "1", 30)
    assert {"path": "/tmp/ü", "depth": 3} == json.loads(result or b"")


@run_async
async def test_a_written_result_counts_if_none_is_returned(redis_url: str) -> None:
    """As in a worker that takes its tasks from Redis."""

    async def dump(context: TaskContext, task: Task) -> None:
        await context.write_result(b"written")

    async with working(redis_url, dump) as (worker, _), Client(redis_url) as client:
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        assert b"written" == await client.result("dump", "1", 30)


@pytest.mark.parametrize(
    ("error", "act", "state", "retried", "text"),
    [
        (ValueError("broken"), "fail", "retry", 1, "ValueError: broken [test_sdk_http.py"),
        (Archive("never"), "fail", "archived", 0, "never"),
        (SkipRetry("never"), "fail", "archived", 0, "never"),
        (Snooze(3600), "snooze", "retry", 0, ""),
        (Retry(3600, reason="busy", spend=False), "fail", "retry", 0, "busy"),
        (Cancel("withdrawn"), "cancel", "", 0, ""),
    ],
)
@run_async
async def test_each_outcome_is_settled_as_the_handler_wants_it(
    redis_url: str, error: Exception, act: str, state: str, retried: int, text: str
) -> None:
    """With the same texts as a worker that takes its tasks from Redis."""

    async def dump(context: TaskContext, task: Task) -> None:
        raise error

    async with working(redis_url, dump) as (worker, meddler), Inspector(redis_url) as inspector:
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        await meddler.wait_for(act, 1)
        if not state:
            with pytest.raises(TaskNotFoundError):
                await inspector.task_info("dump", "1")
            return
        info = await inspector.task_info("dump", "1")
    assert (state, retried) == (str(info.state), info.retried)
    assert text in info.last_error


@run_async
async def test_a_lost_answer_is_asked_for_again_and_nothing_runs_twice(redis_url: str) -> None:
    """The enqueue with and without a number, and the settle."""
    notes = Notes()

    async def dump(context: TaskContext, task: Task) -> str:
        notes.add(context.task_id)
        await meddler.wait_for("tasks", 2)
        return "done"

    async with working(redis_url, dump) as (worker, meddler), Client(redis_url) as client:
        meddler.losses.update({"tasks": 1, "complete": 1})
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        assert b"done" == await client.result("dump", "1", 30)
        meddler.losses.update({"tasks": 1})
        other = await worker.enqueue(TaskReq(task_name="dump"))
        assert b"done" == await client.result("dump", other.id, 30)
        await meddler.wait_for("complete", 3)
    assert ["1", other.id] == notes.seen


@pytest.mark.usefixtures("short_leases")
@run_async
async def test_a_lease_is_extended_for_as_long_as_the_handler_runs(redis_url: str) -> None:
    """And with it goes the handler's progress."""

    async def dump(context: TaskContext, task: Task) -> None:
        context.progress(1, 4, "reading")
        await meddler.wait_for("extend", 6)

    async with working(redis_url, dump) as (worker, meddler), Client(redis_url) as client:
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        info = (await client.wait("dump", "1", 60)).info
    assert info is not None
    assert ("completed", 0) == (str(info.state), info.retried)
    assert info.progress is not None
    assert (1, 4, "reading") == (info.progress.done, info.progress.total, info.progress.note)


@pytest.mark.usefixtures("short_leases")
@pytest.mark.parametrize(
    ("answer", "reason"),
    [
        ((410, {"reason": "cancelled", "outcome": "archive"}), CancelReason.CANCEL),
        ((410, {"reason": "timed-out"}), CancelReason.TIMEOUT),
        ((409, {"code": "lease_lost"}), CancelReason.LEASE_LOST),
    ],
)
@run_async
async def test_a_handler_whose_attempt_is_over_is_cancelled_and_settles_nothing(
    redis_url: str, answer: tuple[int, dict[str, Any]], reason: CancelReason
) -> None:
    """Cancelled by an operator, out of time, or given to another worker; the handler sees which."""
    notes = Notes()

    async def dump(context: TaskContext, task: Task) -> None:
        meddler.answers["extend"] = answer
        try:
            await asyncio.Event().wait()
        finally:
            notes.add(context.cancelled.reason)

    async with working(redis_url, dump) as (worker, meddler):
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        await notes.wait()
    assert [reason] == notes.seen
    assert 0 == sum(meddler.asked[act] for act in ("complete", "fail", "release"))


@run_async
async def test_a_task_out_of_time_fails_with_that(redis_url: str) -> None:
    """The worker cancels its handler by itself."""

    async def dump(context: TaskContext, task: Task) -> None:
        await asyncio.Event().wait()

    types = {"timeout": 1.0, "max_retry": 0, "retention": 3600.0}
    async with working(redis_url, dump, dump=types) as (worker, _), Client(redis_url) as client:
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        info = (await client.wait("dump", "1", 60)).info
    assert info is not None
    assert ("archived", True) == (str(info.state), "deadline exceeded" in info.last_error)


@run_async
async def test_what_a_closed_worker_has_not_done_goes_back(redis_url: str) -> None:
    """To the front, without a crash or a spent retry; tasks that come later stay where they are."""
    begun = asyncio.Event()

    async def dump(context: TaskContext, task: Task) -> None:
        begun.set()
        await asyncio.Event().wait()

    async with (
        Inspector(redis_url) as inspector,
        working(redis_url, dump, shutdown_timeout=0.1, concurrency=1) as (worker, _),
    ):
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
        await begun.wait()
        await worker.enqueue(TaskReq(task_id=2, task_name="dump"))
        await worker.close()
        assert not worker.is_running
        info = await inspector.task_info("dump", "1")
        assert ("pending", 0, 0) == (str(info.state), info.retried, info.crashes)
        assert 2 == (await inspector.queue_info("dump")).pending


@run_async
async def test_a_worker_outlives_its_service(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """It goes on when the service is there again, at the same address."""
    notes = Notes()
    port = free_port()

    async def dump(context: TaskContext, task: Task) -> None:
        notes.add(context.task_id)

    await configure(redis_url, dump={})
    async with serving_http(redis_url, port=port) as (_, address):
        worker = await start_worker({"dump": dump}, service=address)
    async with worker:
        while "does not answer" not in caplog.text:
            await worker._work._wait_for_change(0.05)  # type: ignore[union-attr]
        async with serving_http(redis_url, port=port):
            await worker.enqueue(TaskReq(task_id=1, task_name="dump"))
            assert ["1"] == await notes.wait()


@run_async
async def test_a_key_needs_its_scopes_and_its_end_is_the_worker_s(redis_url: str) -> None:
    """At the start the error names the scope; a key that is deleted later is a reason to die."""
    heard: list[BaseException] = []
    died = asyncio.Event()

    async def note_death(error: BaseException) -> None:
        heard.append(error)
        died.set()

    async def dump(context: TaskContext, task: Task) -> None:
        return None

    await configure(redis_url, dump={})
    async with (
        Operator(redis_url, ADMIN) as operator,
        serving_http(redis_url, needs_keys=True) as (service, address),
    ):
        with pytest.raises(ServiceError, match="401"):
            await start_worker({"dump": dump}, service=address)
        weak = await operator.make_api_key("weak", ["tasks:write"])
        with pytest.raises(ServiceError, match="scope work"):
            await start_worker({"dump": dump}, service=address, key=weak.text)
        async with SdkClient(service=address, key=weak.text) as client:
            assert not (await client.enqueue(TaskReq(task_id=1, task_name="dump"))).existing
        good = await operator.make_api_key("good", ["tasks:write", "work"], expires_in=timedelta(hours=1))
        worker = await start_worker({"dump": dump}, service=address, key=good.text, on_fatal=note_death)
        await operator.delete_api_key(good.key.id)
        service.end_waits()  # the poll that waits was admitted before
        await died.wait()
        await worker.close()
    assert isinstance(heard[0], WorkerEndedError | ServiceError)
    assert "401" in str(heard[0])


@run_async
async def test_ends_need_a_type_of_their_own_at_the_service(redis_url: str) -> None:
    """The error says what to add to the service's file."""

    async def dump(context: TaskContext, task: Task) -> None:
        return None

    await configure(redis_url, dump={})
    async with serving_http(redis_url) as (_, address):
        with pytest.raises(Exception, match=r"on_finished: .*add \[tasks\.t-finished\]"):
            await start_worker({"dump": dump}, service=address, team="t", on_finished=print)


@pytest.mark.parametrize(
    "answer", [(200, {"tasks": [{"id": 1}]}), (200, {}), (404, {"code": "queue_not_found"}), (502, {})]
)
@run_async
async def test_strange_answers_to_a_poll_are_borne(
    redis_url: str, answer: tuple[int, dict[str, Any]], caplog: pytest.LogCaptureFixture
) -> None:
    """A proxy in front of the service may answer anything: the worker asks again."""
    notes = Notes()

    async def dump(context: TaskContext, task: Task) -> None:
        notes.add(context.task_id)

    async with working(redis_url, dump) as (worker, meddler):
        meddler.answers.update({"leases": answer, "task-types": (502, {})})
        await worker.enqueue(TaskReq(task_id=1, task_name="dump"))  # ends a poll that waits already
        await meddler.wait_for("leases", meddler.asked["leases"] + 3)
        meddler.answers.clear()
        await worker.enqueue(TaskReq(task_id=2, task_name="dump"))
        assert {"1", "2"} == {*await notes.wait(2)}
    assert "no tasks were leased" in caplog.text
