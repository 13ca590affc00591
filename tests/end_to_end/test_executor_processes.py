"""`executor="process"` in the worker's program: killed workers, supervised ones, logs, refusals."""

from __future__ import annotations

import json
import os
import signal
import sys
from typing import TYPE_CHECKING

import psutil
import pytest

from pyasynq import sync
from tests.fix_children import lives, wait_for_end, written
from tests.fix_worker import CONTAINER, ROOT, Program, may_unshare, task_field
from tests.waiting import wait_until

if TYPE_CHECKING:
    from pathlib import Path

    from tests.invariants import RedisClient

TASKS = """
import asyncio, ctypes, logging, os, subprocess, sys, time
from pathlib import Path
from pyasynq import App, context

app = App()
here = Path(__file__).parent

@app.task("hang", executor="process")
def hang() -> None:
    inner = subprocess.Popen(["sleep", "1000"])
    (here / "pids.new").write_text(f"{os.getpid()} {os.getppid()} {inner.pid}")
    (here / "pids.new").rename(here / "pids")
    ctypes.PyDLL(None).sleep(1000)  # with the interpreter's lock: nothing in Python can notice anything

@app.task("escape", executor="process")
def escape() -> None:
    inner = subprocess.Popen(["sleep", "1000"], start_new_session=True)
    told = subprocess.check_output(["sh", "-c", "setsid sleep 1000 >/dev/null & echo $!"], text=True)
    (here / "pids.new").write_text(f"{os.getpid()} {os.getppid()} {inner.pid} {told}")
    (here / "pids.new").rename(here / "pids")
    time.sleep(1000)

@app.task("look", executor="process", retention=60)
async def look() -> list[str]:
    print("printed in the child", flush=True)
    context().log.warning("logged in the child")
    loop = type(asyncio.get_running_loop()).__module__
    return [loop, *sorted(name for name in sys.modules if name.startswith(("pyasynq.cli.", "pyasynq.web")))]

@app.task("fail", executor="process", max_retry=0)
def fail() -> None:
    raise KeyError("in the child")

if __name__ == "__main__":
    raise SystemExit(app.run_worker())
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """Where the tasks are."""
    (tmp_path / "work.py").write_text(TASKS)
    return tmp_path


class Work(Program):
    """A program in the folder of the tasks."""

    def __init__(self, folder: Path, url: str, *command: str, prefix: tuple[str, ...] = ()) -> None:
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(folder), os.environ.get("PYTHONPATH")]))
        super().__init__(*prefix, sys.executable, *command, PYTHONPATH=path, PYASYNQ_REDIS_URL=url)


def worker(folder: Path, url: str, *options: str) -> Work:
    """Start `pyasynq worker`."""
    return Work(folder, url, "-m", "pyasynq.cli", "worker", "work:app", *options)


def enqueue(url: str, task_type: str, *, timeout: int = 300) -> str:
    """Enqueue a call without arguments, and return the task's id."""
    with sync.Client(url) as client:
        return client.enqueue(task_type, b"{}", retention=60, timeout=timeout, max_retry=0).id


@pytest.mark.long
@pytest.mark.parametrize("options", [(), ("--processes", "2")], ids=["alone", "supervised"])
def test_children_end_with_their_worker_and_so_does_what_they_have_started(
    redis_url: str, folder: Path, options: tuple[str, ...]
) -> None:
    """A SIGKILL of the worker leaves no process that could clean up."""
    with worker(folder, redis_url, *options) as work:
        enqueue(redis_url, "hang")
        child, parent, grandchild = written(folder / "pids")
        assert (parent == work.pid) is not bool(options)
        (folder / "pids").unlink()
        os.kill(parent, signal.SIGKILL)

        wait_for_end(child, grandchild)
        if options:
            # The next process of the supervisor has taken the task, which is as it was.
            again = written(folder / "pids")
            assert child not in again
            assert not {parent} & set(again)
            work.kill()
            wait_for_end(*again)


@pytest.mark.long
@pytest.mark.skipif(sys.platform != "linux", reason="only on Linux: elsewhere they are not found")
@pytest.mark.parametrize("how", ["timeout", "stop", "kill"])
def test_processes_with_a_session_of_their_own_end_with_the_child_and_the_worker(
    redis_url: str, folder: Path, how: str
) -> None:
    """At the task's timeout, at shutdown, and when a supervised worker is killed; orphans as well. (D29)"""
    with worker(folder, redis_url, "--processes", "1", "--shutdown-timeout", "0") as work:
        enqueue(redis_url, "escape", timeout=1 if how == "timeout" else 300)
        child, parent, session, orphan = written(folder / "pids")
        if how == "stop":
            work.terminate()
        elif how == "kill":
            os.kill(parent, signal.SIGKILL)
        wait_for_end(child, session, orphan)


@pytest.mark.long
@pytest.mark.skipif(not may_unshare(), reason="needs unshare, and the right to use it")
def test_as_process_1_a_worker_leaves_no_zombies_of_what_children_have_started(
    redis_url: str, folder: Path
) -> None:
    """In a container it inherits them when it kills a child."""
    command = ("-m", "pyasynq.cli", "worker", "work:app")
    with Work(folder, redis_url, *command, prefix=CONTAINER) as work:
        enqueue(redis_url, "hang", timeout=1)
        written(folder / "pids")
        work.wait_for("context deadline exceeded")
        [inside] = psutil.Process(work.pid).children()

        wait_until(lambda: 1 == len(inside.children(recursive=True)))


def test_a_terminated_worker_leaves_no_child_and_puts_its_task_back(
    redis_url: str, redis_client: RedisClient, folder: Path
) -> None:
    """Its exit code says that work was left."""
    with worker(folder, redis_url, "--shutdown-timeout", "0") as work:
        task_id = enqueue(redis_url, "hang")
        child, _, grandchild = written(folder / "pids")

        assert 3 == work.terminate()
        assert not lives(child)
        assert not lives(grandchild)
    assert b"pending" == task_field(redis_client, task_id, "state")


@pytest.mark.sample(1)
@pytest.mark.parametrize("log_format", ["text", "json"])
def test_a_child_writes_logs_and_output_as_its_worker_does(
    redis_url: str, redis_client: RedisClient, folder: Path, log_format: str
) -> None:
    """Its records are formatted like all others, and it has imported no command line for it."""
    with worker(
        folder, redis_url, "--log-format", log_format, "--burst", "--executor-processes", "1"
    ) as work:
        task_id = enqueue(redis_url, "look")
        work.wait_for("printed in the child")
        work.wait_for("logged in the child")
        wait_until(lambda: task_field(redis_client, task_id, "state") == b"completed")
        [line] = [line for line in work.lines if "logged in the child" in line]

    if log_format == "json":
        record = json.loads(line)
        assert ("look", task_id, "warning") == (record["task_type"], record["task_id"], record["level"])
    else:
        assert f"WARNING [look {task_id} default attempt 1] logged in the child" in line
    # The loop is of the worker's kind, and nothing of the command line is named after it.
    assert task_field(redis_client, task_id, "result") in (b'["uvloop"]', b'["asyncio.unix_events"]')


def test_a_failure_is_logged_with_the_traceback_of_the_child(redis_url: str, folder: Path) -> None:
    """The traceback leaves out the frames of the worker."""
    with worker(folder, redis_url, "--executor-max-tasks", "1") as work:
        enqueue(redis_url, "fail")
        work.wait_for("KeyError: 'in the child' .work.py:")
        work.wait_for(r"^ +raise KeyError\(")
        work.terminate()

    assert "_server" not in work.text


def test_an_app_in_the_main_module_is_refused_at_the_start(redis_url: str, folder: Path) -> None:
    """No child could import it; the message says what to do."""
    with Work(folder, redis_url, str(folder / "work.py")) as work:
        assert 1 == work.end()

    assert "the worker could not start" in work.text
    assert "task 'hang' has executor='process', but its module is '__main__'" in work.text
    assert "pyasynq worker MODULE:APP" in work.text
