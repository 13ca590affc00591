"""Tasks of the kind `cmd` end to end: real commands on this machine, the outcomes in Redis."""

from __future__ import annotations

import asyncio
import logging
from contextlib import asynccontextmanager
from typing import TYPE_CHECKING, Any

import pytest

from pyasynq.errors import ConfigurationError
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.task import TaskInfo, TaskState
from tests.fix_commands import (
    ESCAPES,
    ON_LINUX,
    list_living,
    python_command,
    shell_command,
    until_dead,
    until_named,
)
from tests.fix_service import serving
from tests.run_async import run_async

if TYPE_CHECKING:
    from collections.abc import AsyncIterator
    from pathlib import Path

    from tests.fix_service import Visitor

pytestmark = [pytest.mark.usefixtures("redis_client"), ON_LINUX]

JUDGED = shell_command('eval "$(cat)"')


@asynccontextmanager
async def commanding(url: str, argv: list[str], **fields: Any) -> AsyncIterator[Visitor]:
    """Run an instance with one hosted type, `dump`, whose tasks are commands."""
    kind = {"kind": "cmd", "argv": argv, "retention": "1h", "max_retry": 5, "retry": ["1h"], **fields}
    async with serving(url, {"dump": kind, "resize": {}}) as visitor:
        await visitor.service.start()
        yield visitor


async def enqueue(visitor: Visitor, script: str = "", task_id: str = "a", **options: Any) -> None:
    """Enqueue a task whose payload is a script."""
    body = {"type": "dump", "payload_text": script, "options": {"task_id": task_id, **options}}
    answer = await visitor.ask("POST", "/v1/tasks", body)
    assert 201 == answer.status_code, answer.text


async def wait_until(visitor: Visitor, state: TaskState, task_id: str = "a") -> TaskInfo:
    """Return a task when it is in a state."""
    while True:
        task = await visitor.operator.task("dump", task_id)
        if task.state is state:
            return task
        await asyncio.sleep(0.02)


@pytest.mark.parametrize(
    ("script", "state", "retried", "error"),
    [
        ("exit 4", TaskState.COMPLETED, 0, ""),
        ("echo bad >&2; exit 3", TaskState.RETRY, 1, "exit code 3: bad"),
        ("exit 75", TaskState.RETRY, 1, "exit code 75"),
        ("kill -KILL $$", TaskState.RETRY, 1, "killed by signal SIGKILL"),
        ("exit 65", TaskState.ARCHIVED, 0, "exit code 65"),
        ("exit 99", TaskState.RETRY, 0, ""),
    ],
)
@run_async
async def test_an_exit_code_settles_the_task(
    redis_url: str, script: str, state: TaskState, retried: int, error: str
) -> None:
    """One run, and the outcome of the table."""
    codes = {"success_codes": [4], "snooze_codes": {"99": "10m"}}
    async with commanding(redis_url, JUDGED, **codes) as visitor:
        await enqueue(visitor, script)
        task = await wait_until(visitor, state)
        assert (retried, error) == (task.retried, task.last_error)


@run_async
async def test_output_is_the_result_and_lines_are_progress(redis_url: str) -> None:
    """Both are read as of any other worker."""
    async with commanding(redis_url, JUDGED) as visitor:
        await enqueue(visitor, "echo ::progress 3/10 half; printf done")
        result = await visitor.ask("GET", "/v1/tasks/dump/a/result?wait=30")
        task = await visitor.operator.task("dump", "a")
    assert "::progress 3/10 half\ndone" == result.json()["result_text"]
    assert task.progress is not None
    assert (3, 10, "half") == (task.progress.done, task.progress.total, task.progress.note)


@run_async
async def test_a_command_that_times_out_is_retried_when_nothing_of_it_runs(
    redis_url: str, tmp_path: Path
) -> None:
    """Before its deadline, so that two attempts never run at once."""
    async with commanding(redis_url, python_command(ESCAPES, str(tmp_path), "deaf"), timeout=4) as visitor:
        await enqueue(visitor)
        task = await wait_until(visitor, TaskState.RETRY)
        assert "timed out; it was asked to end by TERM" in task.last_error
        assert (1, []) == (task.retried, list_living(tmp_path))
        told = visitor.service.metrics.render()[1].decode()
        assert 'pyasynq_service_commands_killed_total{queue="dump",limit="time"} 1' in told


@run_async
async def test_a_cancelled_task_ends_its_command(redis_url: str, tmp_path: Path) -> None:
    """At once, with all that it has started."""
    async with commanding(redis_url, python_command(ESCAPES, str(tmp_path), "stay")) as visitor:
        await enqueue(visitor)
        await until_named(tmp_path, 4)
        answer = await visitor.ask("POST", "/v1/tasks/dump/a:cancel", {"outcome": "archive"})
        assert answer.status_code in {200, 202, 204}, answer.text
        await wait_until(visitor, TaskState.ARCHIVED)
        await until_dead(tmp_path)


@run_async
async def test_a_shutdown_puts_a_command_back(redis_url: str, tmp_path: Path) -> None:
    """To the front, without a retry spent, and when nothing of it runs any more."""
    async with commanding(redis_url, python_command(ESCAPES, str(tmp_path), "deaf"), grace=0.1) as visitor:
        await enqueue(visitor)
        await until_named(tmp_path, 4)
    assert [] == list_living(tmp_path)
    async with commanding(redis_url, shell_command("printf $PYASYNQ_ATTEMPT")) as visitor:
        result = await visitor.ask("GET", "/v1/tasks/dump/a/result?wait=30")
        assert 1 == result.json()["result"]


@run_async
async def test_no_request_makes_or_changes_a_command(redis_url: str) -> None:
    """An API key must not become a shell: also not by a former version, nor by what Redis holds."""
    command = {"kind": "cmd", "argv": ["/bin/true"]}
    async with commanding(redis_url, JUDGED) as visitor:
        version = (await visitor.ask("GET", "/v1/task-types/dump")).json()["version"]
        answers = [
            await visitor.ask("PUT", "/v1/task-types/new", command),
            await visitor.ask("PUT", "/v1/task-types/new", {**command, "managed": "file"}),
            await visitor.ask("PUT", "/v1/task-types/new", {"kind": "cmd", "managed": "file"}),
            await visitor.ask("PUT", "/v1/task-types/dump", {"kind": "worker"}),
            await visitor.ask("PATCH", "/v1/task-types/dump", {"argv": ["/bin/true"]}),
            await visitor.ask("POST", "/v1/task-types/dump:rollback", {"version": version}),
            await visitor.ask("POST", "/v1/leases", {"queues": ["dump"], "wait": 0}),
        ]
        stored = (await visitor.ask("GET", "/v1/task-types/dump")).json()
        # A type that only Redis says to be a command is not run by this instance.
        await visitor.operator.set_type_configuration("forged", {"kind": "cmd", "managed": "file"})
        await visitor.operator.set_type_configuration("forged-argv", command)
        await visitor.service._follower.refresh()
        await visitor.service._hosted._serve_types()  # type: ignore[union-attr] # the next look, now
        lane = visitor.service._hosted._command_lane  # type: ignore[union-attr] # as above
    assert [422, 422, 409, 409, 422, 422, 404] == [one.status_code for one in answers]
    assert "Only the service's file says what a command is" in answers[0].text
    assert "argv" not in stored
    assert lane is not None
    assert ("dump",) == lane.queues


@run_async
async def test_a_file_that_has_changed_brings_its_commands(redis_url: str) -> None:
    """One that cannot be run changes nothing."""
    async with commanding(redis_url, JUDGED) as visitor:
        types = {
            name: {"kind": "cmd", "argv": [program], "retention": "1h"}
            for name, program in {"dump": "/bin/echo", "more": "/bin/echo"}.items()
        }
        wrong = parse_service_file({"tasks": {"dump": {"kind": "cmd", "argv": ["/nonexistent"]}}})
        with pytest.raises(ConfigurationError, match="there is no such program"):
            await visitor.service.reload(wrong.tasks)
        await visitor.service.reload(parse_service_file({"tasks": types}).tasks)
        await enqueue(visitor, "exit 3")
        await visitor.ask("POST", "/v1/tasks", {"type": "more", "options": {"task_id": "b"}})
        results = [
            (await visitor.ask("GET", f"/v1/tasks/{one}/result?wait=30")).json()
            for one in ("dump/a", "more/b")
        ]
    assert ["\n", "\n"] == [one["result_text"] for one in results]


@run_async
async def test_the_isolation_is_logged_at_the_start(redis_url: str, caplog: pytest.LogCaptureFixture) -> None:
    """With what is missing."""
    with caplog.at_level(logging.INFO, "pyasynq.gateway"):
        async with commanding(redis_url, JUDGED) as visitor:
            await enqueue(visitor)
            await wait_until(visitor, TaskState.COMPLETED)
    assert 1 == caplog.text.count("commands are isolated by process trees")
