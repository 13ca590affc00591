"""The programs in `examples/` do what they say."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    import redis

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


def run(program: Path | str, folder: Path, url: str = "") -> str:
    """Run a Python program in a folder, and return what it prints."""
    path = os.pathsep.join([str(ROOT / "src"), str(EXAMPLES)])
    arguments = [str(program)] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYASYNQ_REDIS_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def results(client: redis.Redis, queue: str) -> set[Any]:
    """Return the results of a queue's completed tasks."""
    return {client.hget(key, "result") for key in client.scan_iter(f"asynq:{{{queue}}}:t:*")}


def test_the_shop_adds_up_an_order(tmp_path: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """The result is in Redis, and the reminder waits for tomorrow."""
    assert "is in queue critical" in run(EXAMPLES / "shop.py", tmp_path, redis_url)
    assert 1 == redis_client.zcard("asynq:{default}:scheduled")
    with WorkerProcess(EXAMPLES, redis_url, "worker", "shop:app", "--burst") as worker:
        assert 0 == worker.wait()
    assert {b'"26.20"'} == results(redis_client, "critical")


def test_the_script_needs_no_server(tmp_path: Path) -> None:
    """It starts one for itself, and runs what it has enqueued."""
    printed = run(EXAMPLES / "script.py", tmp_path)
    assert "3 tasks enqueued" in printed
    assert {"1 words", "2 words", "3 words"} < set(printed.splitlines())


def test_the_reports_and_sweeps_of_the_night_are_scheduled(tmp_path: Path, redis_url: str) -> None:
    """Three entries; the worker serves their queues."""
    program = "from nightly import app; print(len(app.scheduler().entries), *app.queues)"
    assert "3 default low\n" == run(program, tmp_path, redis_url)


def test_the_tenant_travels_with_the_task(tmp_path: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """Through client middleware, a header, middleware and the lifespan's state."""
    run("import middleware as m; m.tenant.set('acme'); m.greet.enqueue_sync('Ada')", tmp_path, redis_url)
    with WorkerProcess(EXAMPLES, redis_url, "worker", "middleware:app", "--burst") as worker:
        assert 0 == worker.wait()
    assert {b'"Howdy Ada"'} == results(redis_client, "default")
