"""Measure what the loss of a primary costs the others: `python -m bench.lost_primaries [SECONDS [WAY]]`.

A cluster of three primaries without replicas, on this machine. Each primary in turn is stopped (SIGSTOP) or
killed for SECONDS (default 45), while short-lived producers, a scheduler and a worker use two queues on each.
At the start of each loss a second worker is killed in the middle of its tasks. One line for each loss tells,
for the queues of the other primaries: the lowest share of the usual rate of enqueues and of runs, how late
due tasks and ticks came, how many ticks there were, how long orphans waited, and what the probes said.
"""

from __future__ import annotations

import asyncio
import json
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from collections import Counter
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final

from pyasynq import App, RedisError, context
from pyasynq.sync import Client

if TYPE_CHECKING:
    from collections.abc import Sequence

    from tests.fix_cluster import Cluster, Node

MODULE: Final = "bench.lost_primaries"
QUEUES_A_NODE: Final = 2
BATCH: Final = 25
"""Number of tasks that one producer process enqueues before it exits."""
PAUSE: Final = 0.02
"""Seconds between two enqueues of a producer."""
DELAY: Final = 3.0
"""Seconds until every fifth task is due."""
HELD: Final = 4
"""Number of running tasks of each worker that is killed."""
USUAL_SECONDS: Final = 20.0
PROBES: Final = ("/live", "/ready")
URL: Final = "LOST_PRIMARIES_URL"
RECORDS: Final = "LOST_PRIMARIES_RECORDS"
QUEUES: Final = "LOST_PRIMARIES_QUEUES"
VICTIM: Final = "LOST_PRIMARIES_VICTIM"

app = App(os.environ.get(URL, "redis://localhost"), timeout=2.0)


def record(kind: str, **facts: object) -> None:
    """Add a line to the records of this process."""
    with (Path(os.environ[RECORDS]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "at": time.time(), **facts}) + "\n")


@app.task("note")
async def note(due: float) -> None:
    """Record a run, and how late it is."""
    record("ran", queue=context().queue, late=time.time() - due)


@app.task("hold")
async def hold() -> None:
    """Wait to be killed; end at once in any process that is not the victim."""
    is_victim = VICTIM in os.environ
    record("held" if is_victim else "recovered", queue=context().queue)
    if is_victim:
        await asyncio.sleep(3_600)


@app.task("tick")
async def tick() -> None:
    """Record a tick."""
    record("tick", queue=context().queue, late=time.time() % 1.0)


for _queue in filter(None, os.environ.get(QUEUES, "").split(",")):
    app.schedule("@every 1s", tick.options(queue=_queue).task())


async def produce(queue: str) -> None:
    """Enqueue a few tasks, each with a call of its own."""
    for number in range(BATCH):
        delay = DELAY if number % 5 == 0 else 0.0
        task = note.options(queue=queue, process_in=delay) if delay else note.options(queue=queue)
        try:
            await task.enqueue(due=time.time() + delay)
        except RedisError:
            record("refused", queue=queue)
        else:
            record("enqueued", queue=queue)
        await asyncio.sleep(PAUSE)
    await app.close()


def python(*arguments: str, **variables: str) -> subprocess.Popen[bytes]:
    """Start a process of this interpreter."""
    return subprocess.Popen(
        [sys.executable, *arguments],
        env={**os.environ, **variables},
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    )


class Producers:
    """Keeps one short-lived producer process running for each queue."""

    def __init__(self, queues: Sequence[str]) -> None:
        self._queues = queues
        self._closing = threading.Event()
        self._threads = [threading.Thread(target=self._feed, args=(queue,)) for queue in queues]
        for thread in self._threads:
            thread.start()

    def _feed(self, queue: str) -> None:
        while not self._closing.is_set():
            python("-m", MODULE, "produce", queue).wait()

    def close(self) -> None:
        """Wait for the last processes."""
        self._closing.set()
        for thread in self._threads:
            thread.join()


class Probe:
    """Asks a worker for its health twice a second."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._closing = threading.Event()
        self.answers: list[tuple[float, str, int]] = []
        """Time, path and status of each answer; appended by the thread, read after `close`."""
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._closing.wait(0.5):
            for path in PROBES:
                self.answers.append((time.time(), path, self._status(path)))

    def _status(self, path: str) -> int:
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=2) as reply:
                return int(reply.status)
        except urllib.error.HTTPError as error:
            return error.code
        except OSError:
            return 0

    def close(self) -> None:
        """End the thread."""
        self._closing.set()
        self._thread.join()


def name_queues(cluster: Cluster) -> dict[str, Node]:
    """Return queue names, the same number for each primary, with the primary that holds their keys."""
    from redis.crc import key_slot  # noqa: PLC0415 - workers and producers do without it

    names: dict[str, Node] = {}
    number = 0
    while len(names) < QUEUES_A_NODE * len(cluster.primaries):
        number += 1
        node = cluster.owner(key_slot(f"q{number}".encode()))
        if sum(owner is node for owner in names.values()) < QUEUES_A_NODE:
            names[f"q{number}"] = node
    return names


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


class Measurement:
    """Measurement of failover: a cluster under load whose primaries are killed one after another."""

    def __init__(self, cluster: Cluster, folder: Path, seconds: float) -> None:
        from tests.ports import free_ports  # noqa: PLC0415 - workers and producers do without it

        self._cluster = cluster
        self._folder = folder
        self._seconds = seconds
        self._client = Client(cluster.url)
        self.queues = name_queues(cluster)
        os.environ.update({URL: cluster.url, RECORDS: str(folder)})
        port = free_ports(1)[0]
        os.environ[QUEUES] = ",".join(self.queues)
        weights = ",".join(f"{queue}=1" for queue in self.queues)
        self._worker_command = ("-m", "pyasynq", "worker", f"{MODULE}:app", "--queues", weights)
        self._worker = python(*self._worker_command, "--health-port", str(port), "--with-scheduler")
        self.probe = Probe(port)
        self.producers = Producers(list(self.queues))

    def close(self) -> None:
        """End all processes."""
        self.producers.close()
        self.probe.close()
        self._worker.terminate()
        self._worker.wait()
        self._client.close()

    def hold_tasks(self) -> subprocess.Popen[bytes]:
        """Start a second worker, and wait until it holds tasks of every queue."""
        victim = python(*self._worker_command, "--concurrency", "200", **{VICTIM: "1"})
        before = self._count("held")
        while len(self._count("held") - before) < len(self.queues):
            for queue in self.queues:
                # The primary that was lost before may not be ready yet.
                with suppress(RedisError):
                    self._client.enqueue(hold.options(queue=queue).task())
            time.sleep(0.5)
        return victim

    def _count(self, kind: str) -> Counter[str]:
        return Counter(one["queue"] for one in read_records(self._folder) if one["kind"] == kind)

    def lose(self, node: Node, how: str) -> str:
        """Lose a primary for a while, and return a line of the table."""
        usual_from = time.time()
        time.sleep(USUAL_SECONDS)
        victim = self.hold_tasks()
        usual_until = lost_at = time.time()
        if how == "stop":
            node.signal(signal.SIGSTOP)
        else:
            node.kill()
        victim.kill()
        victim.wait()
        time.sleep(self._seconds)
        back_at = time.time()
        if how == "stop":
            node.signal(signal.SIGCONT)
        else:
            node.start()
        time.sleep(5)
        return self._line(node, how, (usual_from, usual_until), (lost_at, back_at))

    def _line(self, node: Node, how: str, usual: tuple[float, float], lost: tuple[float, float]) -> str:
        records = read_records(self._folder)
        others = {queue for queue, owner in self.queues.items() if owner is not node}

        def rate(kind: str, queue: str, when: tuple[float, float]) -> float:
            number = sum(
                one["kind"] == kind and one["queue"] == queue and when[0] <= one["at"] < when[1]
                for one in records
            )
            return float(number / (when[1] - when[0]))

        def late(kind: str) -> float:
            return max(
                (
                    one["late"]
                    for one in records
                    if one["kind"] == kind and one["queue"] in others and lost[0] <= one["at"] < lost[1]
                ),
                default=0.0,
            )

        held = [one for one in records if one["kind"] == "recovered" and one["queue"] in others]
        orphans = [one["at"] - lost[0] for one in held if lost[0] <= one["at"] < lost[1] + 5]
        ticks = [rate("tick", queue, lost) for queue in others]
        kept = {
            kind: min(rate(kind, queue, lost) / (rate(kind, queue, usual) or 1) for queue in others)
            for kind in ("enqueued", "ran")
        }
        probes = {
            path: sorted(
                {
                    status
                    for at, asked, status in self.probe.answers
                    if asked == path and lost[0] < at < lost[1]
                }
            )
            for path in PROBES
        }
        return (
            f"{how} {node.address[1]}: enqueues {kept['enqueued']:.0%}, runs {kept['ran']:.0%} of usual; "
            f"due tasks at most {late('ran'):.1f} s late, ticks {min(ticks):.2f} a second; "
            f"{len(orphans)} orphans back after at most {max(orphans, default=0):.1f} s; probes {probes}"
        )


def main() -> None:
    """Lose each primary in each way, and print a line for each."""
    from tests.fix_cluster import Cluster  # noqa: PLC0415 - workers and producers do without it

    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 45.0
    ways = sys.argv[2:] or ["stop", "kill"]
    for how in ways:
        with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
            for node in cluster.nodes:
                node.client.config_set("cluster-require-full-coverage", "no")
            measurement = Measurement(cluster, Path(folder), seconds)
            try:
                print({queue: node.address[1] for queue, node in measurement.queues.items()}, flush=True)
                for node in cluster.primaries:
                    print(measurement.lose(node, how), flush=True)
            finally:
                measurement.close()


if sys.argv[1:2] == ["produce"]:
    if __name__ == "__main__":
        asyncio.run(produce(sys.argv[2]))
elif __name__ == "__main__":
    main()
