"""Code under test that waits for its tasks: within `kit.eager()` the kit's worker runs meanwhile."""

from __future__ import annotations

import subprocess
import sys
import warnings
from datetime import timedelta
from typing import TYPE_CHECKING

import flask
import pytest
from fastapi import FastAPI
from httpx import ASGITransport, AsyncClient

from pyasynq import App
from pyasynq.errors import (
    ResultNotKeptError,
    ServerStateError,
    TaskFailedError,
    TaskNotFoundError,
    WaitTimeoutError,
)
from pyasynq.task import TaskEnd
from pyasynq.testing import Kit, use
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import Iterator

app = App("redis://production:6379/0")


@app.task("sum", retention=timedelta(hours=1))
async def add(left: int, right: int) -> int:
    """Return the sum."""
    return left + right


@app.task("flaky", retention=timedelta(hours=1), max_retry=3, retry_delay=60)
def flaky() -> str:
    """Succeed at the third attempt."""
    attempts.append("flaky")
    if len(attempts) < 3:
        raise ConnectionError("not yet")
    return "at last"


@app.task("broken", retention=timedelta(hours=1), max_retry=0)
async def broken() -> None:
    """Fail for good."""
    raise ValueError("no such user")


@app.task("forgotten")
async def forgotten() -> str:
    """Return a result that is not kept."""
    return "kept nowhere"


@app.task("outer", retention=timedelta(hours=1))
async def outer(left: int) -> int:
    """Wait for another task."""
    return await (await add.enqueue(left, right=1)).result()


attempts: list[str] = []


@pytest.fixture
def kit() -> Iterator[Kit]:
    """A kit whose waits run tasks."""
    attempts.clear()
    with use(app) as kit, kit.eager():
        yield kit


@run_async
async def test_a_coroutine_gets_the_result_of_its_task() -> None:
    """An eager handle behaves as if a remote worker had run the task."""
    async with use(app) as kit:
        with kit.eager():
            handle = await add.enqueue(1, right=2)
            assert 3 == await handle.result(timeout=5)
            assert TaskEnd.COMPLETED is (await handle.wait()).end
    assert ["sum"] == [attempt.type for attempt in kit.attempts]


def test_blocking_code_gets_the_result_of_its_task(kit: Kit) -> None:
    """Plain handlers run in the thread of the test."""
    assert 3 == add.enqueue_sync(1, right=2).result(timeout=5)
    assert 1 == len(kit.attempts)


def test_a_wait_lets_time_pass_for_retries(kit: Kit) -> None:
    """No real time passes."""
    before = kit.now
    assert "at last" == flaky.enqueue_sync().result()
    assert timedelta(minutes=2) <= kit.now - before < timedelta(minutes=3)


def test_a_wait_ends_at_its_timeout_of_virtual_time(kit: Kit) -> None:
    """The task itself stays to be retried."""
    before = kit.now
    handle = flaky.enqueue_sync()
    with pytest.raises(WaitTimeoutError, match="within 30 s"):
        handle.result(timeout=30)
    assert timedelta(seconds=30) == kit.now - before
    kit.assert_enqueued(flaky, state="retry")


def test_a_failure_is_told_as_in_production(kit: Kit) -> None:
    """The kit has the error itself."""
    with pytest.raises(TaskFailedError, match="no such user"):
        broken.enqueue_sync().result()
    assert isinstance(kit.attempts[-1].error, ValueError)


def test_a_result_that_is_not_kept_is_refused_before_anything_runs(kit: Kit) -> None:
    """In production, the caller could not read such a result."""
    handle = forgotten.enqueue_sync()
    with pytest.raises(ResultNotKeptError):
        handle.result()
    assert [] == kit.attempts
    assert TaskEnd.GONE is handle.wait().end


def test_a_check_runs_nothing(kit: Kit) -> None:
    """`result(timeout=0)` only looks, and does not run the task."""
    handle = add.enqueue_sync(1, right=2)
    with pytest.raises(WaitTimeoutError):
        handle.result(timeout=0)
    assert [] == kit.attempts


def test_a_wait_that_nothing_can_end_is_an_error(kit: Kit) -> None:
    """It would hang the test."""
    handle = add.enqueue_sync(1, right=2)
    kit.inspector.pause_queue("default")
    with pytest.raises(ServerStateError, match="is pending, and nothing is due"):
        handle.result()


def test_after_an_inner_block_a_wait_still_runs(kit: Kit) -> None:
    """A block within another one ends nothing of the outer one."""
    with kit.eager():
        pass
    assert 3 == add.enqueue_sync(1, right=2).result()


def test_without_the_block_a_wait_only_waits() -> None:
    """Time stands still, and nothing runs."""
    with use(app) as kit:
        handle = add.enqueue_sync(1, right=2)
        with pytest.raises(WaitTimeoutError):
            handle.result(timeout=0.01)
        assert [] == kit.attempts


def test_a_missing_task_is_told(kit: Kit) -> None:
    """Nothing is run for it."""
    with pytest.raises(TaskNotFoundError):
        app.result_sync("default", "none")


@run_async
async def test_a_handler_waits_for_another_task_of_the_running_worker() -> None:
    """It needs a second slot, as in production."""
    async with use(app, concurrency=2) as kit:
        with kit.eager():
            assert 8 == await (await outer.enqueue(7)).result(timeout=30)


def make_api() -> FastAPI:
    """Return an API whose views wait for a task: a coroutine function, and a plain one in a thread."""
    api = FastAPI()

    @api.get("/sum")
    async def view(left: int, right: int) -> int:
        return await (await add.enqueue(left, right=right)).result(timeout=5)

    @api.get("/plain")
    def plain(left: int, right: int) -> int:
        return add.enqueue_sync(left, right=right).result(timeout=5)

    return api


@run_async
async def test_a_view_of_fastapi_waits() -> None:
    """In the event loop of the test, and in a thread."""
    transport = ASGITransport(make_api())
    async with use(app) as kit, AsyncClient(transport=transport, base_url="http://test") as client:
        with kit.eager():
            for path in ("/sum", "/plain"):
                assert 5 == (await client.get(path, params={"left": 2, "right": 3})).json()
    assert 2 == len(kit.attempts)


@pytest.mark.parametrize("path", ["/sum", "/plain"])
def test_a_view_waits_for_the_blocking_test_client_of_fastapi(kit: Kit, path: str) -> None:
    """The client runs the views in an event loop in another thread."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # Starlette's, about the successor of httpx
        from fastapi.testclient import TestClient  # noqa: PLC0415 - the import warns

    with TestClient(make_api()) as client:
        for _ in range(2):
            assert 5 == client.get(path, params={"left": 2, "right": 3}).json()
    assert 2 == len(kit.attempts)


DJANGO = """
import django
from django.conf import settings
from django.http import JsonResponse
from django.test import Client
from django.urls import path

from pyasynq.testing import use
from tests.contract.test_kit_eager import add, app


def view(request):
    return JsonResponse({"sum": add.enqueue_sync(int(request.GET["left"]), right=1).result(timeout=5)})


urlpatterns = [path("sum", view)]
settings.configure(ROOT_URLCONF="__main__", ALLOWED_HOSTS=["*"], SECRET_KEY="test")
django.setup()
with use(app) as kit, kit.eager():
    print(Client().get("/sum", {"left": "2"}).json())
"""


@pytest.mark.long
def test_a_view_of_django_waits() -> None:
    """In the thread of the test. A process of its own, because settings hold for a whole process."""
    done = subprocess.run([sys.executable, "-c", DJANGO], capture_output=True, text=True, check=False)
    assert ("{'sum': 3}\n", 0) == (done.stdout, done.returncode), done.stderr


def test_a_view_of_flask_waits(kit: Kit) -> None:
    """The view waits in the thread of the test, which also runs the task."""
    web = flask.Flask("shop")

    @web.get("/sum/<int:left>")
    def view(left: int) -> str:
        return str(add.enqueue_sync(left, right=1).result(timeout=5))

    assert "3" == web.test_client().get("/sum/2").text
    assert 1 == len(kit.attempts)


def test_a_wait_without_eager_names_it() -> None:
    """No worker runs in a test, so the task would never end."""
    with use(app) as kit:
        handle = add.enqueue_sync(1, right=1)
        with pytest.raises(WaitTimeoutError, match=r"within 0\.05 s: .* `with kit\.eager\(\):`"):
            handle.result(timeout=0.05)
        with pytest.raises(WaitTimeoutError, match=r"within 0 s$"):
            handle.result(timeout=0)
        with kit.eager():
            assert 2 == handle.result(timeout=5)


@run_async
async def test_a_wait_of_a_coroutine_without_eager_names_it_too() -> None:
    """The handle of a coroutine waits in the same way."""
    with use(app):
        handle = await add.enqueue(1, right=1)
        with pytest.raises(WaitTimeoutError, match=r"within 0\.05 s: .* `with kit\.eager\(\):`"):
            await handle.result(timeout=0.05)
