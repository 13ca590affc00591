"""Completion callbacks of workers that are killed between the end of a task and the call of its callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from pyasynq._wire.keys import queue_keys
from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.fix_cluster import Cluster
    from tests.invariants import RedisClient

APP = """
import asyncio, os, signal
from pyasynq import App, Archive, Cancel
from pyasynq._engine.services import outbox_relay

outbox_relay.MIN_AGE_SECONDS = 0.2
app = App()


@app.task("ready", queue="reports")
def ready(id: str, type: str, outcome: str, error: str) -> None:
    with open("told", "a") as file:
        file.write(f"{id} {type} {outcome}\\n")


@app.task("work", on_finished=ready, max_retry=0)
async def work(how: str) -> None:
    if how == "fails":
        raise ValueError("no")
    if how == "archives":
        raise Archive("why")
    if how == "cancels":
        raise Cancel
    if how == "times out":
        await asyncio.sleep(60)


deliver = outbox_relay.deliver_endings
last = int(os.environ.get("DIE_AT", "-1"))


def dying(queue, endings, *, now=None):
    plan, answer, calls = deliver(queue, endings, now=now), None, 0
    while True:
        if calls == last:
            os.kill(os.getpid(), signal.SIGKILL)
        try:
            call = plan.send(answer)
        except StopIteration as stop:
            return stop.value
        answer = yield call
        calls += 1


outbox_relay.deliver_endings = dying
"""
STEPS = 4
"""Moments of a death: before the callback, the name of its queue, the removal of the entry, and after it."""
ENDS = {
    "succeeds": "succeeded",
    "is kept": "succeeded",
    "fails": "archived",
    "archives": "archived",
    "times out": "archived",
    "cancels": "cancelled",
    "is damaged": "archived",
}


@pytest.mark.long
@pytest.mark.parametrize(("die_at", "how"), [(0, "fails"), (1, "succeeds"), (3, "succeeds")])
def test_a_callback_is_called_though_the_worker_was_killed(
    tmp_path: Path, redis_url: str, redis_client: RedisClient, die_at: int, how: str
) -> None:
    """After the settle, the enqueue of the callback, or the removal of the entry: it is called once."""
    check_kill(tmp_path, redis_url, redis_client, die_at, how)


@pytest.mark.long
@pytest.mark.parametrize(("die_at", "how"), [(at % STEPS, how) for at, how in enumerate(ENDS)])
def test_a_callback_on_another_node_is_called_though_the_worker_was_killed(
    tmp_path: Path, cluster: Cluster, die_at: int, how: str
) -> None:
    """Each way in which an attempt ends a task, in a cluster whose nodes share the two queues."""
    with cluster.client() as client:
        nodes = [client.find_node(queue_keys(queue).pending) for queue in ("default", "reports")]
        assert nodes[0] is not nodes[1]
        check_kill(tmp_path, cluster.url, client, die_at, how)


def check_kill(folder: Path, url: str, client: RedisClient, die_at: int, how: str) -> None:
    """Kill a worker before one of the calls that deliver a callback; the next worker must call it once."""
    (folder / "works.py").write_text(APP)
    told = folder / "told"
    worker = ("worker", "works:app", "--concurrency", "2")
    _enqueue(url, client, how)
    with WorkerProcess(folder, url, *worker, "-q", "default", DIE_AT=str(die_at)) as victim:
        assert -9 == victim.wait()
    assert not told.exists()
    with WorkerProcess(folder, url, *worker) as other:
        wait_until(lambda: told.exists() and not client.exists(queue_keys("default").outbox))
        other.terminate()
        assert 0 == other.wait()
    assert f"a work {ENDS[how]}\n" == told.read_text()


def _enqueue(url: str, client: RedisClient, how: str) -> None:
    from pyasynq import App  # noqa: PLC0415 - as a producer elsewhere, which knows no more than names

    app = App(url)

    @app.task("ready", queue="reports")
    def ready(id: str, type: str, outcome: str, error: str) -> None: ...  # noqa: A002 - what callbacks are told

    @app.task("work", on_finished=ready, max_retry=0)
    def work(how: str) -> None: ...

    call = work.options(task_id="a")
    if how == "is kept":
        call = call.options(retention=600)
    elif how == "times out":
        call = call.options(timeout=1)
    call.enqueue_sync(how)
    app.close_sync()
    if how == "is damaged":
        client.hset(queue_keys("default").task("a"), "msg", b"\xff\xff\xff")
