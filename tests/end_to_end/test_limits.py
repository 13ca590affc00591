"""Four `pyasynq worker` processes on one queue with limits; tests/chaos/limits.py does the same at length."""

from __future__ import annotations

from typing import TYPE_CHECKING

import pytest

from tests.chaos.limits import (
    BURST,
    LIMIT,
    RATE,
    most_starts_of_a_second,
    run_concurrency,
    run_rate,
    running_at_once,
    starts_in,
)
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

SHOP = """
from pyasynq import App

app = App()


@app.task("deliver", queue="deliver")
async def deliver() -> None: ...
"""


def test_four_workers_never_run_more_than_the_limit_together(redis_url: str, tmp_path: Path) -> None:
    """Each has fifty slots; three is what the queue has for all of them."""
    journal = run_concurrency(redis_url, tmp_path, tasks=150, kills=0)
    assert LIMIT == running_at_once(journal)
    assert 150 == len({note.task for note in journal if note.what == "end"})


@pytest.mark.long
def test_four_workers_keep_a_rate_together(redis_url: str, tmp_path: Path) -> None:
    """Counted by the clock of Redis; a machine that is busy may be late, never early."""
    journal = run_rate(redis_url, tmp_path, seconds=1.5)
    assert starts_in(journal, 1.5) <= 1.5 * RATE + 2 * BURST
    assert most_starts_of_a_second(journal) <= RATE + 2 * BURST


def test_a_worker_says_which_limits_it_asks_for(redis_url: str, tmp_path: Path) -> None:
    """On its first line."""
    (tmp_path / "shop.py").write_text(SHOP)
    options = ("--queues", "deliver=3,default", "--queue-max-run", "deliver=1", "--queue-rate")
    with WorkerProcess(tmp_path, redis_url, "worker", "shop:app", *options, "deliver=100/m+5") as worker:
        line = worker.wait_for("queues")
        worker.terminate()
        assert 0 == worker.wait()
    assert "queues deliver=3 (max_run 1, rate 100/60s, burst 5), default=1, concurrency 100" in line


def test_limits_of_a_queue_that_is_not_served_are_wrong_usage(redis_url: str, tmp_path: Path) -> None:
    """It is most likely a spelling mistake."""
    (tmp_path / "shop.py").write_text(SHOP)
    with WorkerProcess(tmp_path, redis_url, "worker", "shop:app", "--queue-rate", "delivr=1/s") as worker:
        assert 2 == worker.wait()
    assert "'delivr' has a limit and is not served by this worker" in worker.text
