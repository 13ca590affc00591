from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING

import pytest

from bench.children import Children, cpu_seconds, descendants, peak_memory
from bench.environments import ROOT
from bench.peers import counters as counting
from bench.peers.counters import hit, hit_from_thread
from bench.peers.shape import Order, arguments, in_turn
from bench.stage import Counters
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator


FORKING = """
import os
from bench.peers.counters import hit
hit(0, 0)
child = os.fork()
for _ in range(1000):
    hit(0, 0)
if child:
    os.waitpid(child, 0)
"""


@pytest.fixture
def counters(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Counters]:
    """Return counters that this process and its children count in."""
    found = Counters(tmp_path / "counters")
    monkeypatch.setenv(counting.COUNTERS_VARIABLE, str(found.path))
    counting._forget()
    yield found
    counting._forget()


def test_processes_count_together(counters: Counters) -> None:
    """Each has a slot of its own, so none needs a lock; a forked child does not use its parent's."""
    hit(0, 0)
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    others = [subprocess.Popen([sys.executable, "-c", FORKING], env=environment) for _ in range(2)]

    assert [0, 0] == [other.wait() for other in others]
    assert 1 + 2 * 2_001 == counters.ended


def _count_from_thread(number: int) -> None:
    for _ in range(number):
        hit_from_thread(0, 0)


def test_threads_count_together(counters: Counters) -> None:
    """The counter uses a lock, which event loops do not need."""
    threads = [threading.Thread(target=_count_from_thread, args=(2_000,)) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert 8_000 == counters.ended


def test_a_timed_task_leaves_its_delay(counters: Counters) -> None:
    """A script is counted by its number, for any caller; other commands are not counted."""
    hit(1, time.time_ns() - 5_000_000)
    hit(0, 0)

    first, second = counters.delays(2)

    assert 0.0 == first
    assert 0.005 <= second < 1.0


@pytest.mark.parametrize("size", [100, 1_000, 100_000])
def test_arguments_have_the_size_that_was_ordered(size: int) -> None:
    """The size is that of the arguments as JSON without spaces."""
    tasks = Order("one", 3, size).tasks()

    assert {size} == {len(json.dumps(task, separators=(",", ":"))) for task in tasks}
    assert 3 == len({task["number"] for task in tasks})


def test_tasks_go_round_the_queues() -> None:
    """Each queue gets the same number of tasks."""
    tasks = [arguments(number, "") for number in range(4)]

    assert ["a", "b", "a", "b"] == [queue for _, queue in in_turn(tasks, ("a", "b"))]


def test_children_end_with_the_harness(tmp_path: Path) -> None:
    """The processes that children have started too, and those that ignore signals."""
    program = (
        "import signal, subprocess, sys, time\n"
        "signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import time; time.sleep(600)'])\n"
        "print(child.pid, flush=True)\n"
        "time.sleep(600)\n"
    )
    with Children(tmp_path) as children:
        child = children.start(
            [sys.executable, "-c", program], name="stubborn", environment=os.environ, pipes=True
        )
        assert child.process.stdout is not None
        grandchild = int(child.process.stdout.readline())
        assert [child.process.pid, grandchild] == child.pids

    assert -signal.SIGKILL == child.process.returncode
    wait_until(lambda: not _runs(grandchild), seconds=10, what="the grandchild has ended")


def _runs(pid: int) -> bool:
    """Whether a process runs; one that has ended may wait for init to notice."""
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_processor_time_and_memory_are_those_of_the_process() -> None:
    """Ours grow when we work."""
    before = cpu_seconds(os.getpid())
    sum(range(3_000_000))

    assert cpu_seconds(os.getpid()) > before
    assert peak_memory(os.getpid()) > 10 * 2**20


def test_a_process_that_has_ended_used_nothing() -> None:
    """It may end while it is looked at."""
    process = subprocess.Popen([sys.executable, "-c", ""])
    process.wait()

    assert [] == descendants(process.pid)
    assert 0.0 == cpu_seconds(process.pid)
