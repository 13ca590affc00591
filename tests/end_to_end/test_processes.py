"""`pyasynq worker --processes`: a supervisor and its children, and the probes that ask how they are."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from pathlib import Path
from typing import TYPE_CHECKING

import psutil
import pytest

from pyasynq import sync
from pyasynq.info import RequestStatus
from pyasynq.supervisor import WORKER_VARIABLE
from tests.fix_worker import CONTAINER, ROOT, Program, active, enqueue, may_unshare, pending, task_field
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from tests.fix_drivers import OwnServer
    from tests.invariants import RedisClient

TASKS = """
import asyncio, os, signal, subprocess
from pathlib import Path
from pyasynq import App, WorkerConfig

app = App()
patient = App(
    worker=WorkerConfig(
        processes=2,
        is_failure=lambda error: not isinstance(error, BlockingIOError),
        retry_delay=lambda retried, error, task: 3_600.0,
    )
)
release = Path(__file__).parent / "release"
kept = []

def tell(what):
    os.write(1, f"{what} {os.getpid()}\\n".encode())  # in one piece: others write too

@app.on_error
def failed(end):
    tell(f"failed {end.task_type} {type(end.error).__name__} archived={end.outcome == 'archived'}")

@app.task("mark")
async def mark() -> None:
    tell("ran")

@app.task("wait")
async def wait() -> None:
    tell("started")
    while not release.exists():
        await asyncio.sleep(0.01)
    tell("ended")

@app.task("die", crash_limit=1)
async def die() -> None:
    os.kill(os.getpid(), signal.SIGKILL)

@app.task("grow")
async def grow() -> None:
    kept.append(b"x" * 200_000_000)
    tell("grown")

@patient.task("busy")
async def busy() -> None:
    raise BlockingIOError("later, please")

@app.task("orphan")
def orphan() -> None:
    subprocess.run(["sh", "-c", "sleep 0.01 & echo left $!"], check=True)
"""
SOON = 3.0
"""Seconds; leases last ten times as long."""


class Workers(Program):
    """`pyasynq worker` on the tasks above, with these options."""

    def __init__(
        self, folder: Path, url: str, *options: str, prefix: tuple[str, ...] = (), app: str = "app"
    ) -> None:
        (folder / "work.py").write_text(TASKS)
        path = os.pathsep.join(filter(None, [str(ROOT / "src"), str(folder), os.environ.get("PYTHONPATH")]))
        self.release = folder / "release"
        command = (sys.executable, "-m", "pyasynq.cli", "worker", f"work:{app}", *options)
        super().__init__(*prefix, *command, PYTHONPATH=path, PYASYNQ_REDIS_URL=url)

    def wait_until_ready(self, times: int) -> None:
        """Wait until this many children in all have said that they take tasks."""
        self.wait_for("takes tasks", times=times)

    @property
    def children(self) -> list[int]:
        """The process ids of all children that ever took tasks, in this order."""
        return [int(pid) for pid in self.all(r".*worker \d \(pid (\d+)\) takes tasks")]


def probe(port: int, path: str) -> int:
    """Return the status of a probe."""
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as response:
            return int(response.status)
    except urllib.error.HTTPError as error:
        error.close()
        return error.code


@pytest.mark.long
def test_children_share_the_work_and_one_port_answers_for_them(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """TSTP and TERM reach all of them; nothing is left behind."""
    port, beat = free_port(), tmp_path / "alive"
    options = (
        "--processes",
        "2",
        "--concurrency",
        "1",
        "--health-port",
        str(port),
        "--health-file",
        str(beat),
    )
    with Workers(tmp_path, redis_url, *options) as workers:
        workers.wait_until_ready(2)
        wait_until(lambda: 200 == probe(port, "/ready"))
        assert (200, True) == (probe(port, "/live"), beat.exists())
        enqueue(redis_url, "wait", "wait")
        workers.wait_for("^started", times=2)
        assert set(map(str, workers.children)) == set(workers.all("started (.*)"))
        workers.send(signal.SIGTSTP)
        workers.wait_for("worker takes no more tasks", times=2)
        wait_until(lambda: 503 == probe(port, "/ready"))
        assert 200 == probe(port, "/live")
        workers.release.touch()
        wait_until(lambda: not active(redis_client))
        [waiting] = enqueue(redis_url, "mark")
        assert 0 == workers.terminate()
    assert [waiting] == pending(redis_client)
    assert not redis_client.keys("asynq:servers*")
    assert not beat.exists()


def test_h08_tasks_of_a_killed_child_are_pending_at_once(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """The crash is counted; a poisonous task is archived; another child takes the place of the dead."""
    with Workers(tmp_path, redis_url, "--processes", "2", "--concurrency", "1") as workers:
        workers.wait_until_ready(2)
        enqueue(redis_url, "wait", "wait")
        workers.wait_for("^started", times=2)
        victim = workers.children[0]
        os.kill(victim, signal.SIGKILL)
        wait_until(lambda: pending(redis_client), seconds=SOON)
        [task_id] = pending(redis_client)
        assert b"1" == task_field(redis_client, task_id, "x:crashes")
        # The supervisor knows no app: a living child calls the hooks.
        workers.wait_for("^failed wait WorkerDiedError archived=False")
        workers.wait_for(rf"worker \d \(pid {victim}\) was ended by SIGKILL; restarting in 1 s")
        workers.wait_for("^started", times=3)
        assert victim not in map(int, workers.all("started (.*)")[2:])
        workers.release.touch()
        workers.wait_for("^ended", times=2)
        [poison] = enqueue(redis_url, "die", retention=60)
        workers.wait_for(f"task {poison} of queue default was archived as poison: its worker crashed 1 time")
        assert b"archived" == task_field(redis_client, poison, "state")
        workers.wait_for("^failed die WorkerDiedError archived=True")
        assert 0 == workers.terminate()


def test_a_reload_replaces_all_children_and_loses_no_task(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """Tasks that old workers cannot finish are put back, and run by new ones; the exit code is clean."""
    options = ("--processes", "2", "--concurrency", "1", "--shutdown-timeout", "0")
    with Workers(tmp_path, redis_url, *options) as workers:
        workers.wait_until_ready(2)
        old = set(workers.children)
        ids = enqueue(redis_url, *["wait"] * 3, retention=60)
        workers.wait_for("^started", times=2)
        workers.send(signal.SIGHUP)
        workers.wait_for("ended with code 3", times=2)
        workers.release.touch()
        workers.wait_for("^ended", times=3)
        assert old.isdisjoint(map(int, workers.all("ended (.*)")))
        wait_until(lambda: not active(redis_client))
        assert 0 == workers.terminate()
    assert [None] * 3 == [task_field(redis_client, task_id, "x:crashes") for task_id in ids]
    assert {b"completed"} == {task_field(redis_client, task_id, "state") for task_id in ids}
    ready, ended = (
        [index for index, line in enumerate(workers.lines) if re.search(pattern, line)]
        for pattern in ("takes tasks", "ended with code 3")
    )
    assert ready[2] < ended[0] < ready[3] < ended[1]


@pytest.mark.long
def test_a_child_is_recycled_after_its_number_of_tasks_and_for_its_memory(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """Its follower works while the last task of the old one runs to its end."""
    options = ("--max-tasks-per-child", "2", "--max-memory", "200M", "--concurrency", "2")
    with Workers(tmp_path, redis_url, *options) as workers:
        workers.wait_until_ready(1)
        enqueue(redis_url, "wait", "mark")
        workers.wait_for("has run as many tasks as it may")
        workers.wait_until_ready(2)
        enqueue(redis_url, "grow")
        workers.wait_for(r"uses \d+ MiB of memory, more than 200 MiB")
        workers.wait_until_ready(3)
        first, second, _ = workers.children
        workers.wait_for(rf"worker 1 \(pid {second}\) ended with code 0")
        workers.release.touch()
        workers.wait_for(rf"worker 1 \(pid {first}\) ended with code 0")
        assert [str(first)] == workers.all("ended (.*)")
        assert 0 == workers.terminate()
    assert [] == workers.all(".*(was ended by|another one starts)")


@pytest.mark.long
def test_children_that_cannot_start_end_the_supervisor_with_code_5(tmp_path: Path, redis_url: str) -> None:
    """After five of them, saying why."""
    (tmp_path / "nonsense.py").write_text(
        f"import os\nif {WORKER_VARIABLE!r} in os.environ:\n    raise ValueError('not in a child')\n"
    )
    with Workers(tmp_path, redis_url, "nonsense", "--processes", "5") as workers:
        assert 5 == workers.end()
    assert "ValueError: not in a child" in workers.text
    assert "at least 5 deaths within a minute" in workers.text


def test_an_app_that_cannot_be_imported_starts_no_children(tmp_path: Path, redis_url: str) -> None:
    """The command ends with the reason, as with one process."""
    with Workers(tmp_path, redis_url, "not_there", "--processes", "5") as workers:
        assert 1 == workers.end()
    assert "there is no module 'not_there'" in workers.text


def test_children_shut_down_when_their_supervisor_is_killed(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """They notice at once, and put back what they cannot finish."""
    options = ("--processes", "1", "--shutdown-timeout", "0")
    with Workers(tmp_path, redis_url, *options) as workers:
        workers.wait_until_ready(1)
        [task_id] = enqueue(redis_url, "wait")
        workers.wait_for("^started")
        children = [psutil.Process(pid) for pid in workers.children]
        workers.kill()
        gone, alive = psutil.wait_procs(children, timeout=10)
    assert (1, []) == (len(gone), alive)
    assert [task_id] == pending(redis_client)
    assert not redis_client.keys("asynq:servers*")


def test_a_child_that_still_imports_ends_with_its_supervisor(tmp_path: Path, redis_url: str) -> None:
    """It has taken nothing, and waits for nothing."""
    (tmp_path / "slow.py").write_text(
        "import os, time\nprint('importing', os.getpid(), flush=True)\ntime.sleep(60)\n"
    )
    with Workers(tmp_path, redis_url, "slow", "--processes", "1") as workers:
        workers.wait_for("^importing")
        child = psutil.Process(int(workers.all("importing (.*)")[0]))
        workers.kill()
        assert [] == psutil.wait_procs([child], timeout=5)[1]


@pytest.mark.long
def test_a_second_int_ends_all_at_once(tmp_path: Path, redis_url: str, redis_client: RedisClient) -> None:
    """Code 130; the tasks come back when their leases have lapsed."""
    with Workers(tmp_path, redis_url, "--processes", "1") as workers:
        workers.wait_until_ready(1)
        [task_id] = enqueue(redis_url, "wait")
        workers.wait_for("^started")
        workers.send(signal.SIGINT)
        workers.wait_for("waiting up to 8 s")
        children = [psutil.Process(pid) for pid in workers.children if psutil.pid_exists(pid)]
        workers.send(signal.SIGINT)
        assert 130 == workers.end(within=5)
        assert [] == psutil.wait_procs(children, timeout=5)[1]
    assert {task_id} == active(redis_client)


@pytest.mark.long
@pytest.mark.skipif(not may_unshare(), reason="this host does not let us make a PID namespace")
def test_a_supervisor_is_content_to_be_process_1(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """It takes signals, and waits for the processes that others have left to it."""
    with Workers(tmp_path, redis_url, "--processes", "1", prefix=CONTAINER) as workers:
        workers.wait_until_ready(1)
        [init] = Path(f"/proc/{workers.pid}/task/{workers.pid}/children").read_text().split()
        enqueue(redis_url, "orphan")
        workers.wait_for("^left")
        inside = Path(f"/proc/{init}/task/{init}/children")
        wait_until(lambda: 1 == len(inside.read_text().split()), seconds=SOON)
        os.kill(int(init), signal.SIGTERM)
        assert 0 == workers.end()


@pytest.mark.skipif(not may_unshare(), reason="this host does not let us make a PID namespace")
def test_a_single_worker_waits_for_orphans_as_process_1(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """And leaves to its handlers the processes that they have started and wait for. (D20)"""
    with Workers(tmp_path, redis_url, prefix=CONTAINER) as worker:
        worker.wait_for("concurrency 100")
        [init] = Path(f"/proc/{worker.pid}/task/{worker.pid}/children").read_text().split()
        ids = enqueue(redis_url, *["orphan"] * 20, retention=60)
        worker.wait_for("^left", times=20)
        wait_until(lambda: not active(redis_client) and not pending(redis_client))
        wait_until(lambda: 1 == len(psutil.Process(int(init)).children(recursive=True)), seconds=SOON)
        os.kill(int(init), signal.SIGTERM)
        assert 0 == worker.end()
    assert {b"completed"} == {task_field(redis_client, task_id, "state") for task_id in ids}


def test_a_single_worker_answers_probes_too(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """A worker without a supervisor serves the health port by itself."""
    port, beat = free_port(), tmp_path / "alive"
    options = ("--health-port", str(port), "--health-host", "127.0.0.1", "--health-file", str(beat))
    with Workers(tmp_path, redis_url, *options) as worker:
        worker.wait_for("concurrency 100")
        wait_until(lambda: 200 == probe(port, "/ready"))
        assert (200, True) == (probe(port, "/live"), beat.exists())
        worker.send(signal.SIGTSTP)
        wait_until(lambda: 503 == probe(port, "/ready"))
        assert 0 == worker.terminate()
    assert not beat.exists()
    assert "supervisor" not in worker.text


@pytest.mark.long
def test_the_hangup_of_a_closed_terminal_is_not_a_reload(tmp_path: Path, redis_url: str) -> None:
    """It ends the supervisor, in good order, as it would end any program."""
    (tmp_path / "work.py").write_text(TASKS)
    ours, theirs = os.openpty()
    said = tmp_path / "said"
    path = os.pathsep.join([str(ROOT / "src"), str(tmp_path)])
    with said.open("wb") as stderr:
        supervisor = subprocess.Popen(
            [sys.executable, "-m", "pyasynq.cli", "worker", "work:app", "--processes", "1"],
            env={**os.environ, "PYTHONPATH": path, "PYASYNQ_REDIS_URL": redis_url},
            stdin=theirs,
            stderr=stderr,
        )
    with supervisor:
        os.close(theirs)
        wait_until(lambda: "takes tasks" in said.read_text())
        os.close(ours)
        supervisor.send_signal(signal.SIGHUP)
        assert 0 == supervisor.wait(10)
    assert "reloading" not in said.read_text()


@pytest.mark.long
def test_probes_under_a_supervisor_tell_of_redis_in_ready_alone(
    tmp_path: Path, own_server: OwnServer
) -> None:
    """A restart would lose the outcomes that wait for Redis. (D46)"""
    own_server.connect().close()
    port = free_port()
    with Workers(tmp_path, own_server.url, "--processes", "1", "--health-port", str(port)) as workers:
        workers.wait_until_ready(1)
        wait_until(lambda: 200 == probe(port, "/ready"))
        own_server.stop()
        wait_until(lambda: 503 == probe(port, "/ready"))
        assert 200 == probe(port, "/live")
        own_server.start()
        wait_until(lambda: 200 == probe(port, "/ready"))
        assert 0 == workers.terminate()


@pytest.mark.long
def test_an_operator_who_stops_one_process_stops_the_worker(
    tmp_path: Path, redis_url: str, redis_client: RedisClient
) -> None:
    """The supervisor ends all children instead of starting another one; tasks that run are finished."""
    with Workers(tmp_path, redis_url, "--processes", "2", "--concurrency", "1") as workers:
        workers.wait_until_ready(2)
        enqueue(redis_url, "wait", "wait")
        workers.wait_for("started", times=2)
        with sync.Inspector(redis_url) as inspector:
            wait_until(lambda: len(inspector.servers()) == 2, "both servers have written their records")
            [server, _] = inspector.servers()
            result = inspector.stop_server(server.id)
            assert (server.id, RequestStatus.REQUESTED) == (result.server_id, result.status)
            workers.wait_for("an operator asks worker [12] .* to stop: all workers end")
            workers.release.touch()
            assert 0 == workers.end()
            assert [] == inspector.servers()
    assert 2 == len(workers.all("(ended) "))
    assert 2 == len(workers.all(r".*pid \d+\) (started)"))
    assert [] == pending(redis_client)


def test_functions_of_the_apps_settings_reach_the_children(tmp_path: Path, redis_url: str) -> None:
    """The command line cannot carry them: each child imports the app, which has them."""
    with Workers(tmp_path, redis_url, app="patient") as workers:
        workers.wait_until_ready(2)
        enqueue(redis_url, "busy", "busy")
        with sync.Inspector(redis_url) as inspector:
            wait_until(lambda: 2 == len(list(inspector.list_tasks("default", "retry"))))
            tasks = list(inspector.list_tasks("default", "retry"))
        assert 0 == workers.terminate()
    assert [0, 0] == [task.retried for task in tasks]
    for task in tasks:
        assert task.next_process_at is not None
        assert task.last_failed_at is not None
        assert 3_599 <= (task.next_process_at - task.last_failed_at).total_seconds() <= 3_601
