"""Measure the effect of lost queues on the other queues: `python -m bench.lost_primaries [SECONDS [WAY…]]`.

Short-lived producers, a scheduler and a worker use all queues. A fault makes some queues unavailable for
SECONDS (default 45). The WAYs of fault injection: `stop` (SIGSTOP) and `kill` take each primary of a cluster
of three without replicas in turn. `type` and `acl` take one queue of a single server: its list has the wrong
type, or the Redis user may not use its keys. At the start of each fault a second worker is killed in the
middle of its tasks.

One line for each fault tells, for the other queues: the lowest share of the usual rate of enqueues and of
runs, how late due tasks and ticks came, how many ticks there were, how long orphans waited, and what the
probes said.
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
from contextlib import closing, suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from pyasynq import App, EmbeddedServer, RedisError, context
from pyasynq.sync import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    import redis

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
PRIMARY_WAYS: Final = ("stop", "kill")
QUEUE_WAYS: Final = ("type", "acl")
SINGLE_QUEUES: Final = ("q1", "q2", "q3", "q4")
USUAL_SECONDS: Final = 20.0
PROBES: Final = ("/live", "/ready")
URL: Final = "LOST_PRIMARIES_URL"
RECORDS: Final = "LOST_PRIMARIES_RECORDS"
QUEUES: Final = "LOST_PRIMARIES_QUEUES"
VICTIM: Final = "LOST_PRIMARIES_VICTIM"

app = App(os.environ.get(URL, "redis://localhost"), timeout=2.0)


def record(kind: str, **facts: object) -> None:
    """Append a record to the file of this process."""
    with (Path(os.environ[RECORDS]) / f"{os.getpid()}.jsonl").open("a") as file:
        file.write(json.dumps({"kind": kind, "at": time.time(), **facts}) + "\n")


@app.task("note")
async def note(due: float) -> None:
    """Record a run, and how late it is."""
    record("ran", queue=context().queue, late=time.time() - due)


@app.task("hold")
async def hold() -> None:
    """Wait until killed; in any process that is not the victim, return at once."""
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
    """Enqueue `BATCH` tasks one by one; every fifth is due later."""
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
    """Thread that asks a worker for its health twice a second."""

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


class Loss(NamedTuple):
    """A fault that makes some queues unavailable: `begin` injects it, and `end` repairs it."""

    name: str
    queues: frozenset[str]
    begin: Callable[[], object]
    end: Callable[[], object]


def queues_of_nodes(cluster: Cluster) -> dict[Node, list[str]]:
    """Return for each primary the names of `QUEUES_A_NODE` queues that it holds."""
    from redis.crc import key_slot  # noqa: PLC0415 - workers and producers do without it

    names: dict[Node, list[str]] = {node: [] for node in cluster.primaries}
    number = 0
    while any(len(found) < QUEUES_A_NODE for found in names.values()):
        number += 1
        found = names[cluster.owner(key_slot(f"q{number}".encode()))]
        if len(found) < QUEUES_A_NODE:
            found.append(f"q{number}")
    return names


def losses_of_primaries(how: str, queues: dict[Node, list[str]]) -> Iterator[Loss]:
    """Yield a fault for each primary; `how` is one of `PRIMARY_WAYS`."""
    for node, names in queues.items():
        lost = frozenset(names)
        if how == "stop":
            stop, go_on = partial(node.signal, signal.SIGSTOP), partial(node.signal, signal.SIGCONT)
            yield Loss(f"{how} {node.address[1]}", lost, stop, go_on)
        else:
            yield Loss(f"{how} {node.address[1]}", lost, node.kill, node.start)


def loss_of_queue(how: str, admin: redis.Redis) -> Loss:
    """Return the fault of one queue of a single server; `how` is one of `QUEUE_WAYS`."""
    lost, *others = SINGLE_QUEUES
    pending = f"asynq:{{{lost}}}:pending"

    def set_keys(*rules: str) -> None:
        admin.execute_command("ACL", "SETUSER", "default", *rules)  # type: ignore[no-untyped-call]

    if how == "acl":
        rules = ["resetkeys", "~asynq:[a-z]*", *(f"~asynq:{{{queue}}}*" for queue in others)]
        return Loss(how, frozenset({lost}), partial(set_keys, *rules), partial(set_keys, "allkeys"))
    spoil = partial(admin.set, pending, "of the wrong type")
    return Loss(how, frozenset({lost}), spoil, partial(admin.delete, pending))


def read_records(folder: Path) -> list[dict[str, Any]]:
    """Return all records."""
    lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
    return [json.loads(line) for line in lines]


class Measurement:
    """Measurement of fault isolation: queues under load, some of which are made unavailable for a while."""

    def __init__(self, url: str, queues: Sequence[str], folder: Path, seconds: float) -> None:
        from tests.ports import free_ports  # noqa: PLC0415 - workers and producers do without it

        self._folder = folder
        self._seconds = seconds
        self._client = Client(url)
        self.queues = queues
        os.environ.update({URL: url, RECORDS: str(folder)})
        port = free_ports(1)[0]
        os.environ[QUEUES] = ",".join(self.queues)
        weights = ",".join(f"{queue}=1" for queue in self.queues)
        self._worker_command = ("-m", "pyasynq", "worker", f"{MODULE}:app", "--queues", weights)
        self._worker = python(*self._worker_command, "--health-port", str(port), "--with-scheduler")
        self.probe = Probe(port)
        self.producers = Producers(queues)

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
                # What was lost before may not be ready yet.
                with suppress(RedisError):
                    self._client.enqueue(hold.options(queue=queue).task())
            time.sleep(0.5)
        return victim

    def _count(self, kind: str) -> Counter[str]:
        return Counter(one["queue"] for one in read_records(self._folder) if one["kind"] == kind)

    def lose(self, loss: Loss) -> str:
        """Inject a fault for a while; return a line that compares the other queues with before."""
        usual_from = time.time()
        time.sleep(USUAL_SECONDS)
        victim = self.hold_tasks()
        usual_until = lost_at = time.time()
        loss.begin()
        victim.kill()
        victim.wait()
        time.sleep(self._seconds)
        back_at = time.time()
        loss.end()
        time.sleep(5)
        return self._line(loss, (usual_from, usual_until), (lost_at, back_at))

    def _line(self, loss: Loss, usual: tuple[float, float], lost: tuple[float, float]) -> str:
        records = read_records(self._folder)
        others = set(self.queues) - loss.queues

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
            f"{loss.name}: enqueues {kept['enqueued']:.0%}, runs {kept['ran']:.0%} of usual; "
            f"due tasks at most {late('ran'):.1f} s late, ticks {min(ticks):.2f} a second; "
            f"{len(orphans)} orphans back after at most {max(orphans, default=0):.1f} s; probes {probes}"
        )


def lose_primaries(how: str, seconds: float) -> None:
    """Measure the loss of each primary of a cluster in turn; print a line for each."""
    from tests.fix_cluster import Cluster  # noqa: PLC0415 - workers and producers do without it

    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        for node in cluster.nodes:
            node.client.config_set("cluster-require-full-coverage", "no")
        queues = queues_of_nodes(cluster)
        names = [name for found in queues.values() for name in found]
        with closing(Measurement(cluster.url, names, Path(folder), seconds)) as measurement:
            for loss in losses_of_primaries(how, queues):
                print(measurement.lose(loss), flush=True)


def lose_queue(how: str, seconds: float) -> None:
    """Measure the loss of one queue of a single server; print a line."""
    import redis  # noqa: PLC0415 - workers and producers do without it

    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        path = server.url.removeprefix("unix://").partition("?")[0]
        with redis.Redis(unix_socket_path=path) as default:
            default.acl_setuser(
                "admin", enabled=True, nopass=True, keys="*", channels="*", categories=["+@all"]
            )
        with (
            redis.Redis(unix_socket_path=path, username="admin") as admin,
            closing(Measurement(server.url, SINGLE_QUEUES, Path(folder), seconds)) as measurement,
        ):
            print(measurement.lose(loss_of_queue(how, admin)), flush=True)


def main() -> None:
    """Measure each way of losing queues, and print a line for each fault."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 45.0
    for how in sys.argv[2:] or [*PRIMARY_WAYS, *QUEUE_WAYS]:
        (lose_queue if how in QUEUE_WAYS else lose_primaries)(how, seconds)


if sys.argv[1:2] == ["produce"]:
    if __name__ == "__main__":
        asyncio.run(produce(sys.argv[2]))
elif __name__ == "__main__":
    main()
