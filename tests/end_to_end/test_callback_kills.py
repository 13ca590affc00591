"""Completion callbacks of workers that are killed between the end of a task and the call of its callback."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    from tests.invariants import RedisClient

APP = """
import os, signal
import redis
from pyasynq import App
from pyasynq._engine.services import outbox_relay

outbox_relay.MIN_AGE_SECONDS = 0.2
app = App()


@app.task("ready", queue="reports")
def ready(id: str, type: str, outcome: str, error: str) -> None:
    redis.Redis.from_url(app.url).rpush("told", f"{id} {type} {outcome}")


@app.task("work", on_finished=ready, max_retry=0)
def work(fails: bool) -> None:
    if fails:
        raise ValueError("no")


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


@pytest.mark.long
@pytest.mark.parametrize(
    ("die_at", "fails", "outcome"),
    [
        (0, True, "archived"),
        pytest.param(1, False, "succeeded", marks=pytest.mark.long),
        pytest.param(3, False, "succeeded", marks=pytest.mark.long),
    ],
)
def test_a_callback_is_called_though_the_worker_was_killed(
    tmp_path: Path, redis_url: str, redis_client: RedisClient, die_at: int, fails: bool, outcome: str
) -> None:
    """After the settle, the enqueue of the callback, or the removal of the entry: it is called once."""
    (tmp_path / "works.py").write_text(APP)
    worker = ("worker", "works:app", "--concurrency", "2")
    with WorkerProcess(tmp_path, redis_url, *worker, "-q", "default", DIE_AT=str(die_at)) as victim:
        victim.wait_for("ready|serving|started")
        _enqueue(redis_url, fails=fails)
        assert -9 == victim.wait()
    assert [] == redis_client.lrange("told", 0, -1)
    with WorkerProcess(tmp_path, redis_url, *worker) as other:
        other.wait_for("ready|serving|started")
        wait_until(lambda: redis_client.llen("told") and not redis_client.exists("asynq:{default}:x:outbox"))
        other.terminate()
        assert 0 == other.wait()
    assert [f"a work {outcome}".encode()] == redis_client.lrange("told", 0, -1)
    redis_client.delete("told")


def _enqueue(redis_url: str, *, fails: bool) -> None:
    from pyasynq import App  # noqa: PLC0415 - as a producer elsewhere, which knows no more than names

    app = App(redis_url)

    @app.task("ready", queue="reports")
    def ready(id: str, type: str, outcome: str, error: str) -> None: ...  # noqa: A002 - what callbacks are told

    @app.task("work", on_finished=ready, max_retry=0)
    def work(*, fails: bool) -> None: ...

    work.options(task_id="a").enqueue_sync(fails=fails)
    app.close_sync()
