"""`pyasynq scheduler` and `pyasynq worker --with-scheduler` as users run them."""

from __future__ import annotations

import signal
from typing import TYPE_CHECKING

import pytest

from tests.chaos.schedulers import run
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    import redis

SHOP = """
from pyasynq import App, SchedulerConfig

app = App(scheduler_config=SchedulerConfig(location="Europe/Berlin"))


@app.cron("@every 1s", queue="low")
@app.task("report")
async def report() -> None: ...


app.schedule("0 9 * * *", report.options(max_retry=1).task())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder."""
    (tmp_path / "shop.py").write_text(SHOP)
    return tmp_path


@pytest.mark.sample(1)
@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_scheduler_enqueues_until_it_is_told_to_stop(
    folder: Path, redis_url: str, redis_client: redis.Redis, number: signal.Signals
) -> None:
    """The tasks stay, and its entries are no longer shown."""
    with WorkerProcess(folder, redis_url, "scheduler", "shop:app") as scheduler:
        scheduler.wait_for("2 periodic tasks are scheduled")
        scheduler.wait_for("@every 1s: task .* \\(report, queue low\\) is enqueued")
        assert 1 == redis_client.zcard("asynq:schedulers")
        scheduler.send(number)
        assert 0 == scheduler.wait()
    assert redis_client.llen("asynq:{low}:pending") >= 1
    assert 0 == redis_client.zcard("asynq:schedulers")
    assert "scheduler ended" in scheduler.text


def test_tstp_makes_a_scheduler_fire_no_more(folder: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """It is still shown until it is stopped."""
    with WorkerProcess(folder, redis_url, "scheduler", "shop:app") as scheduler:
        scheduler.wait_for("is enqueued")
        scheduler.send(signal.SIGTSTP)
        scheduler.wait_for("scheduler enqueues no more tasks")
        assert 1 == redis_client.zcard("asynq:schedulers")
        scheduler.terminate()
        assert 0 == scheduler.wait()


def test_a_worker_may_be_a_scheduler_too(folder: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """It serves the queues that its schedules name, and stops both in good order."""
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--with-scheduler") as worker:
        worker.wait_for("queues default=1, low=1")
        while not redis_client.get("asynq:{low}:processed"):
            worker.wait_for("is enqueued")
        worker.terminate()
        assert 0 == worker.wait()
    assert 0 == redis_client.zcard("asynq:schedulers")


@pytest.mark.long
def test_a_scheduler_without_redis_says_so(folder: Path, tmp_path: Path) -> None:
    """The command ends with code 1."""
    with WorkerProcess(folder, f"unix://{tmp_path}/none", "scheduler", "shop:app") as scheduler:
        assert 1 == scheduler.wait()
    assert "the scheduler could not start: Redis at" in scheduler.text


def test_an_expression_that_cannot_be_read_ends_the_start(tmp_path: Path, redis_url: str) -> None:
    """The error says what to write instead."""
    (tmp_path / "wrong.py").write_text(
        "from pyasynq import App\napp = App()\n@app.cron('* * * *')\ndef f(): ..."
    )
    with WorkerProcess(tmp_path, redis_url, "scheduler", "wrong:app") as scheduler:
        assert 1 == scheduler.wait()
    assert "write five fields, not 4" in scheduler.text


@pytest.mark.long
def test_h18_three_schedulers_two_of_them_killed_fire_each_tick_once(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis
) -> None:
    """Fifteen ticks here; the chaos tier has the long form."""
    done = run(redis_url, tmp_path, 15)
    assert [] == done.faults()
    assert len(done.ticks) >= 15
