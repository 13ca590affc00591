"""`pyasynq work`: outcomes of commands, cancellation, timeout, and both kinds of end."""

from __future__ import annotations

import asyncio
import os
import re
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq import Client, Inspector, Task
from pyasynq.cli.command_attempt import CommandWorkerSettings
from pyasynq.cli.command_worker import CommandWorker
from pyasynq.sdk import ServiceError
from pyasynq.sdk.service_connection import ServiceConnection
from tests.fix_leases import until
from tests.fix_sdk import Meddler, configure, serving_http
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

pytestmark = pytest.mark.usefixtures("redis_client")

SHELL = ("/bin/sh", "-s")
"""The payload is a script, which the shell reads from stdin."""


@dataclass
class Bench:
    """A worker that runs, and what enqueues its tasks and looks at them."""

    client: Client
    inspector: Inspector
    worker: CommandWorker
    run: asyncio.Task[int]
    meddler: Meddler

    async def enqueue(self, script: str, **options: Any) -> None:
        """Enqueue a task with the id `a` whose payload is a script."""
        await self.client.enqueue(
            Task("dump", script.encode()), queue="dump", task_id="a", retention=3600, **options
        )

    async def state(self) -> str:
        """Return the state of the task."""
        return str((await self.inspector.task_info("dump", "a")).state)


@asynccontextmanager
async def working(redis_url: str, **settings: Any) -> AsyncIterator[Bench]:
    """Run a worker until the end of a block."""
    await configure(redis_url, dump={"retention": 3600.0, "retry": [3600.0]})
    meddlers: list[Meddler] = []
    chosen = {"concurrency": 1, "lease": 1.0, "grace": 5.0, **settings}
    async with (
        Client(redis_url) as client,
        Inspector(redis_url) as inspector,
        serving_http(redis_url, meddlers=meddlers) as (_, address),
    ):
        connection = ServiceConnection(address, "")
        worker = CommandWorker(connection, CommandWorkerSettings(("dump",), SHELL, **chosen))
        run = asyncio.create_task(worker.run())
        try:
            yield Bench(client, inspector, worker, run, meddlers[0])
        finally:
            worker.stop()
            worker.stop()
            await asyncio.wait({run})
            await connection.close()


def is_alive(number: int) -> bool:
    """Return whether a process runs; a dead one whose parent has not noticed does not."""
    try:
        return "Z" != Path(f"/proc/{number}/stat").read_text("utf-8").rpartition(") ")[2][0]
    except (FileNotFoundError, ProcessLookupError):
        return False


async def read_number(file: Path) -> int:
    """Return the number that a command writes into a file, as soon as it is there."""
    text = ""

    def has_come() -> bool:
        nonlocal text
        text = file.read_text("utf-8") if file.exists() else ""
        return text.endswith("\n")

    await until(has_come)
    return int(text)


@pytest.mark.parametrize(
    ("script", "state", "text"),
    [
        ("echo no network >&2; exit 75", "retry", r"the command ended with exit code 75: no network"),
        ("exit 1", "retry", r"the command ended with exit code 1"),
        ("exit 65", "archived", r"the command ended with exit code 65"),
        ("kill -SEGV $$", "retry", r"the command was ended by signal 11 \(SIGSEGV\)"),
        ("yes | head -c 9000 >&2; echo end >&2; exit 2", "retry", r"exit code 2: (y\n){900,1000}end$"),
    ],
)
@run_async
async def test_the_exit_code_is_the_outcome(redis_url: str, script: str, state: str, text: str) -> None:
    """The end of stderr is the text of the error."""
    async with working(redis_url) as bench:
        await bench.enqueue(script)
        await bench.meddler.wait_for("fail", 1)
        info = await bench.inspector.task_info("dump", "a")
    assert state == str(info.state)
    assert re.search(text, info.last_error)


@run_async
async def test_stdout_is_the_result_and_the_task_is_described(
    redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The API key is not in the environment of the command."""
    monkeypatch.setenv("PYASYNQ_KEY", "secret")
    script = """echo "$PYASYNQ_TASK_ID $PYASYNQ_TASK_TYPE $PYASYNQ_QUEUE $PYASYNQ_ATTEMPT"
        echo "$PYASYNQ_DEADLINE ${PYASYNQ_KEY-none} 配送" """
    async with working(redis_url) as bench:
        await bench.enqueue(script)
        result = await bench.client.result("dump", "a", 30)
    assert re.fullmatch("a dump dump 1\\n2[0-9-]+T[0-9:]+Z none 配送\\n", (result or b"").decode())


@run_async
async def test_a_flood_on_stdout_is_cut(redis_url: str) -> None:
    """The command is not blocked by it."""
    async with working(redis_url) as bench:
        await bench.enqueue("head -c 1000000 /dev/zero | tr '\\0' x")
        assert b"x" * 65_536 == await bench.client.result("dump", "a", 30)


@run_async
async def test_a_lost_answer_is_asked_for_again(redis_url: str) -> None:
    """The command runs once."""
    async with working(redis_url) as bench:
        bench.meddler.losses["complete"] = 1
        await bench.enqueue("echo $PYASYNQ_ATTEMPT")
        assert b"1\n" == await bench.client.result("dump", "a", 30)
        await bench.meddler.wait_for("complete", 2)


@run_async
async def test_a_result_that_is_refused_does_not_fail_the_task(redis_url: str) -> None:
    """The work is not done a second time."""
    async with working(redis_url) as bench:
        bench.meddler.answers["complete"] = 413, {}
        await bench.enqueue("echo much")
        await bench.meddler.wait_for("complete", 1)
        del bench.meddler.answers["complete"]
        assert b"" == (await bench.client.result("dump", "a", 30) or b"")


@pytest.mark.long
@run_async
async def test_a_command_outlives_its_first_lease(redis_url: str, tmp_path: Path) -> None:
    """The lease is extended while it runs."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with working(redis_url) as bench:
        await bench.enqueue(f"cat {gate}")
        await bench.meddler.wait_for("extend", 4)
        gate.write_text("late", "utf-8")
        assert b"late" == await bench.client.result("dump", "a", 30)


@run_async
async def test_cancelling_a_task_ends_all_processes_of_its_command(redis_url: str, tmp_path: Path) -> None:
    """KILL follows for those that ignore TERM."""
    async with working(redis_url, grace=0.1) as bench:
        file = tmp_path / "number"
        await bench.enqueue(f"trap '' TERM; sleep 1000 & echo $! > {file}; wait; sleep 1000")
        number = await read_number(file)
        await bench.inspector.cancel("a", "dump")
        await until(lambda: not is_alive(number))


@run_async
async def test_what_a_command_leaves_behind_is_ended(redis_url: str) -> None:
    """Its background processes do not keep the task open."""
    async with working(redis_url) as bench:
        await bench.enqueue("sleep 1000 & echo $!")
        number = int(await bench.client.result("dump", "a", 30) or b"")
        await until(lambda: not is_alive(number))


@pytest.mark.long
@run_async
async def test_a_command_is_ended_at_the_timeout_of_its_task(redis_url: str, tmp_path: Path) -> None:
    """The task is tried again."""
    async with working(redis_url) as bench:
        file = tmp_path / "number"
        await bench.enqueue(f"echo $$ > {file}; exec sleep 1000", timeout=1)
        number = await read_number(file)
        await until(lambda: not is_alive(number))
        await bench.meddler.wait_for("fail", 1)
        assert "retry" == await bench.state()


@run_async
async def test_a_stopped_worker_lets_its_command_finish(redis_url: str, tmp_path: Path) -> None:
    """Exit code 0."""
    gate = tmp_path / "gate"
    os.mkfifo(gate)
    async with working(redis_url) as bench:
        await bench.enqueue(f"echo $$ > {tmp_path / 'number'}; cat {gate}")
        await read_number(tmp_path / "number")
        bench.worker.stop()
        gate.write_text("end", "utf-8")
        assert 0 == await bench.run
        assert "completed" == await bench.state()


@run_async
async def test_a_second_signal_puts_tasks_back(redis_url: str, tmp_path: Path) -> None:
    """The task waits again, and no retry is spent; exit code 3."""
    async with working(redis_url) as bench:
        await bench.enqueue(f"echo $$ > {tmp_path / 'number'}; exec sleep 1000")
        await read_number(tmp_path / "number")
        bench.worker.stop()
        bench.worker.stop()
        assert 3 == await bench.run
        info = await bench.inspector.task_info("dump", "a")
    assert ("pending", 0) == (str(info.state), info.retried)


@run_async
async def test_a_lost_lease_ends_the_command(redis_url: str, tmp_path: Path) -> None:
    """Nothing is settled: another worker has the task."""
    async with working(redis_url) as bench:
        bench.meddler.answers["extend"] = 409, {"code": "lease_lost"}
        await bench.enqueue(f"echo $$ > {tmp_path / 'number'}; exec sleep 1000")
        number = await read_number(tmp_path / "number")
        await until(lambda: not is_alive(number))
        assert not {"fail", "complete", "release"} & set(bench.meddler.asked)


@pytest.mark.parametrize("status", [401, 403, 404, 422])
@run_async
async def test_a_refusal_at_the_start_is_told(redis_url: str, status: int) -> None:
    """Wrong keys and queues that are not configured."""
    meddlers: list[Meddler] = []
    async with serving_http(redis_url, meddlers=meddlers) as (_, address):
        meddlers[0].answers["leases"] = status, {"detail": "No."}
        settings = CommandWorkerSettings(("dump",), SHELL, 1, 1.0, 5.0)
        with pytest.raises(ServiceError, match=r"No\."):
            await CommandWorker.run_with(address, "", settings)


@run_async
async def test_a_refusal_later_ends_the_worker(redis_url: str) -> None:
    """Exit code 1."""
    async with working(redis_url) as bench:
        await bench.meddler.wait_for("leases", 1)
        bench.meddler.answers["leases"] = 401, {"detail": "No."}
        await bench.enqueue("true")
        assert 1 == await bench.run
