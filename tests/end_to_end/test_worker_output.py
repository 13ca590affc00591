"""Output of real workers and commands."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING

import pytest

from pyasynq import Task, sync
from pyasynq._visible_text import visible
from tests.foreign_texts import HOSTILE_TEXTS, INNOCENT_TEXTS
from tests.worker_process import WorkerProcess
from tools import worker_output

if TYPE_CHECKING:
    from pathlib import Path

    import redis

PAGE = worker_output.PAGE.read_text("utf-8")
BLOCKS = {name: PAGE[start:end].splitlines() for name, start, end in worker_output.blocks(PAGE)}


@pytest.mark.sample(1)
@pytest.mark.parametrize("name", sorted(worker_output.SCENARIOS))
def test_the_page_shows_what_a_worker_writes(name: str) -> None:
    """`make worker-output` writes it again. (D36)"""
    recorded = worker_output.record(name)
    assert not worker_output.differs(name, BLOCKS[name], recorded), "\n".join(recorded)


SHOP = """
from pyasynq import App
app = App()
"""


@pytest.mark.sample(1)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_nothing_that_others_wrote_reaches_a_log_raw(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis, log_format: str
) -> None:
    """Types, ids and queues of tasks that this worker does not know; other scripts stay as they are. (D22)"""
    (tmp_path / "shop.py").write_text(SHOP)
    queue = f"q{HOSTILE_TEXTS[0]}"
    texts = [*HOSTILE_TEXTS, *INNOCENT_TEXTS]
    with sync.Client(redis_url) as client:
        for text in texts:
            client.enqueue(Task(text), task_id=f"id-{text}", queue=queue, max_retry=0)
    arguments = ["worker", "shop:app", "-b", "-q", queue, "--log-format", log_format]
    with WorkerProcess(tmp_path, redis_url, *arguments) as worker:
        assert 0 == worker.wait()
    lines = worker.text.splitlines()
    assert [visible(line) for line in lines] == lines
    for text in INNOCENT_TEXTS:
        assert any(text in line for line in lines)
    if log_format == "json":
        types = {record.get("task_type") for record in map(json.loads, lines)}
        assert set(texts) <= types
    else:
        assert all(line.startswith(("2", "    ")) for line in lines)
        assert not any("ERROR   all is lost" in line and "forged" not in line for line in lines)


def test_nothing_that_others_wrote_reaches_a_terminal_raw(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis
) -> None:
    """The doctor shows names from Redis, and errors show what was typed. (D22)"""
    for text in HOSTILE_TEXTS:
        redis_client.sadd("asynq:queues", f"q{text}")
        redis_client.lpush(f"asynq:{{q{text}}}:pending", f"ghost-{text}")
    for arguments, shown in (
        (["doctor", "--redis", redis_url], "␛[2J"),
        (["worker", f"shop{HOSTILE_TEXTS[0]}:app"], "[2J"),
        ([HOSTILE_TEXTS[0]], "[2J"),
    ):
        with WorkerProcess(tmp_path, redis_url, *arguments) as command:
            command.wait()
        lines = [*command.output.split("\n"), *command.text.split("\n")]
        assert [visible(line) for line in lines] == lines
        assert any(shown in line for line in lines)
    redis_client.flushdb()
