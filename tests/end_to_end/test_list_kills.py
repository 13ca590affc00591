"""Two instances of the service and five workers that only speak Redis, with kills of both."""

from __future__ import annotations

import os
import random
import subprocess
import sys
from collections import Counter
from contextlib import ExitStack
from functools import partial
from typing import TYPE_CHECKING

import pytest

from pyasynq import Task
from pyasynq.embedded import EmbeddedServer
from pyasynq.sync import Client, Inspector
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

pytestmark = pytest.mark.long

TASKS = 500
FILE = """
[service]
redis = "{url}"
listen = "127.0.0.1:0"
[tasks.resize]
kind = "list"
shards = 3
retention = "1h"
"""


def test_no_task_is_lost(tmp_path: Path) -> None:
    """Each second run is explained by a kill of its worker, or of an instance."""
    seed = int(os.environ.get("PYASYNQ_TEST_SEED", "1"))
    chosen, record, file = random.Random(seed), tmp_path / "record", tmp_path / "service.toml"
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        file.write_text(FILE.format(url=server.url), "utf-8")
        environment = {**os.environ, "PYASYNQ_SECRET": "s" * 32}

        def run(*arguments: str) -> subprocess.Popen[bytes]:
            command = [sys.executable, "-m", *arguments]
            process = stack.enter_context(
                subprocess.Popen(command, env=environment, stderr=subprocess.DEVNULL)
            )
            stack.callback(process.kill)
            return process

        def run_service() -> subprocess.Popen[bytes]:
            return run("pyasynq", "service", str(file), "--no-access-log")

        def run_worker(shard: int) -> subprocess.Popen[bytes]:
            return run("tests.fix_list_worker", server.url, "resize", str(shard), str(record))

        services = [run_service() for _ in range(2)]
        workers = [run_worker(number % 3) for number in range(5)]
        inspector = stack.enter_context(Inspector(server.url))
        killed: set[int] = set()
        with Client(server.url) as client:
            client.enqueue_many(Task("resize", queue="resize", retention=3600) for _ in range(TASKS))

        def is_done(goal: int) -> bool:
            return inspector.queue_info("resize").completed >= goal

        for number in range(1, 13):
            goal = number * TASKS // 13
            wait_until(partial(is_done, goal), f"{goal} tasks are done", seconds=120)
            if number % 4:
                at = chosen.randrange(5)
                killed.add(workers[at].pid)
                workers[at].kill()
                workers[at] = run_worker(at % 3)
            else:
                at = chosen.randrange(2)
                services[at].kill()
                services[at] = run_service()
        wait_until(partial(is_done, TASKS), "all tasks are done", seconds=180)
    runs = [line.split() for line in record.read_text("utf-8").splitlines()]
    begun = Counter(task for task, _ in runs)
    excused = Counter(task for task, worker in runs if int(worker) in killed)
    unexplained = {task for task in begun if begun[task] - excused[task] > 1}
    assert TASKS == len(begun)
    # An instance that dies may have taken a task for each worker.
    assert len(unexplained) <= 3 * 5
