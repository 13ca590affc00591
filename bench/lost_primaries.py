"""Measure the effect of lost queues on the other queues: `python -m bench.lost_primaries [SECONDS [WAY…]]`.

Short-lived producers, a scheduler and a worker use all queues. A fault makes some queues unavailable for
SECONDS (default 45). The WAYs of fault injection: `stop` (SIGSTOP) and `kill` take each primary of a cluster
of three without replicas in turn. `type` and `acl` take one queue of a single server: its list has the wrong
type, or the Redis user may not use its keys. At the start of each fault a second worker is killed in the
middle of its tasks.

For each fault, which keys of all queues the lost primary holds, and bars for the other queues: the lowest
share of the usual rate of enqueues, runs and ticks, how late due tasks came, and how many orphans started
again, and when. Besides, what the probes said, and how late ticks came. The exit code is 1 if one is missed.
"""

from __future__ import annotations

import asyncio
import json
import math
import os
import signal
import subprocess
import sys
import tempfile
import threading
import time
import urllib.error
import urllib.request
from contextlib import closing, suppress
from functools import partial
from itertools import pairwise
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from bench.bars import Bars
from pyasynq import App, EmbeddedServer, RedisError, context
from pyasynq._wire.keys import ALL_QUEUES, SCHEDULERS_KEY, SERVERS_KEY, WORKERS_KEY
from pyasynq.sync import Client

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence

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
PRIMARY_WAYS: Final = ("stop", "kill")
QUEUE_WAYS: Final = ("type", "acl")
SINGLE_QUEUES: Final = ("q1", "q2", "q3", "q4")
USUAL_SECONDS: Final = 20.0
SETTLE_SECONDS: Final = 5.0
"""Seconds after a fault in which orphans may still start."""
HOLD_SECONDS: Final = 120.0
"""Seconds in which a new worker must have taken a task of each queue."""
SERVE_OWN_SLOTS: Final = ("--cluster-require-full-coverage", "no")
"""Option of a primary that serves its own slots while another primary is away."""
PROBES: Final = ("/live", "/ready")
SHARED_KEYS: Final = (ALL_QUEUES, SERVERS_KEY, WORKERS_KEY, SCHEDULERS_KEY)
NOTICE_SECONDS: Final = 10.0
"""Seconds from a fault after which `/ready` must name the queues, as docs/workers.md promises."""
TICK_SECONDS: Final = 1.0
RATE_BAR: Final = 90.0
"""Percent of the usual rates that the other queues must keep."""
ORPHAN_BAR: Final = 40.0
"""Seconds from the death of a worker until its tasks must have started again."""
DUE_BAR: Final = 6.0
"""Seconds by which due tasks may start late."""
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
    record("held" if is_victim else "recovered", queue=context().queue, task=context().task_id)
    if is_victim:
        await asyncio.sleep(3_600)


@app.task("tick")
async def tick() -> None:
    """Record a tick."""
    record("tick", queue=context().queue)


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


class Answer(NamedTuple):
    """Answer to a probe: its time, path and status, and the queues that it calls unreachable."""

    at: float
    path: str
    status: int
    unreachable: frozenset[str]


class Probe:
    """Thread that asks a worker for its health twice a second."""

    def __init__(self, port: int) -> None:
        self._port = port
        self._closing = threading.Event()
        self.answers: list[Answer] = []
        """Appended by the thread, read by the measurement."""
        self._thread = threading.Thread(target=self._ask)
        self._thread.start()

    def _ask(self) -> None:
        while not self._closing.wait(0.5):
            self.answers += [Answer(time.time(), path, *self._get(path)) for path in PROBES]

    def _get(self, path: str) -> tuple[int, frozenset[str]]:
        """Return the status, 0 without an answer, and the queues that the answer calls unreachable."""
        try:
            with urllib.request.urlopen(f"http://127.0.0.1:{self._port}{path}", timeout=2) as reply:
                status, body = reply.status, reply.read()
        except urllib.error.HTTPError as error:
            status, body = error.code, error.read()
        except OSError:
            return 0, frozenset()
        workers = json.loads(body)["workers"]
        return status, frozenset(queue for worker in workers for queue in worker["unreachable_queues"])

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
    keys: tuple[str, ...] = ()
    """Members of `SHARED_KEYS` that are unavailable too."""
    is_reported: bool = True
    """Whether `/ready` names the queues; it does not name queues that can be read, but not used."""


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


def losses_of_primaries(how: str, cluster: Cluster, queues: dict[Node, list[str]]) -> Iterator[Loss]:
    """Yield a fault for each primary; `how` is one of `PRIMARY_WAYS`."""
    from redis.crc import key_slot  # noqa: PLC0415 - as above

    owners = {key: cluster.owner(key_slot(key.encode())) for key in SHARED_KEYS}
    for node, names in queues.items():
        name, lost = f"{how} {node.address[1]}", frozenset(names)
        keys = tuple(key for key, owner in owners.items() if owner is node)
        if how == "stop":
            stop, go_on = partial(node.signal, signal.SIGSTOP), partial(node.signal, signal.SIGCONT)
            yield Loss(name, lost, stop, go_on, keys)
        else:
            yield Loss(name, lost, node.kill, partial(node.start, *SERVE_OWN_SLOTS), keys)


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
    return Loss(how, frozenset({lost}), spoil, partial(admin.delete, pending), is_reported=False)


class Records:
    """Records of all processes."""

    def __init__(self, folder: Path) -> None:
        lines = [line for path in folder.glob("*.jsonl") for line in path.read_text().splitlines()]
        self._records: list[dict[str, Any]] = [json.loads(line) for line in lines]

    def of(self, kind: str, queues: Collection[str], since: float, until: float) -> list[dict[str, Any]]:
        """Return the records of a kind, of these queues and a period."""
        return [
            one
            for one in self._records
            if one["kind"] == kind and one["queue"] in queues and since <= one["at"] < until
        ]

    def lowest_share(
        self, kind: str, queues: Collection[str], usual: tuple[float, float], now: tuple[float, float]
    ) -> float:
        """Return the rate of records in a period in percent of a usual period: that of the slowest queue."""

        def rate(queue: str, since: float, until: float) -> float:
            return len(self.of(kind, {queue}, since, until)) / (until - since)

        return min(
            100 * rate(queue, *now) / usual_rate if (usual_rate := rate(queue, *usual)) else 0.0
            for queue in queues
        )

    def latest_run(self, queues: Collection[str], since: float, until: float) -> float:
        """Return the longest delay of tasks that were due and ran in a period; not a number without any.

        Tasks that were due before the period may have been held by the worker that was killed.
        """
        runs = self.of("ran", queues, since, until)
        return max((one["late"] for one in runs if one["at"] - one["late"] >= since), default=math.nan)

    def latest_tick(self, queues: Collection[str], since: float, until: float) -> float:
        """Return by how many seconds the latest tick of a period was late, by the one before it."""
        times = [[float(one["at"]) for one in self.of("tick", {queue}, since, until)] for queue in queues]
        gaps = [after - before for at in times for before, after in pairwise([since, *sorted(at), until])]
        return max(gaps) - TICK_SECONDS


class Measurement:
    """Measurement of fault isolation: queues under load, some of which are made unavailable for a while."""

    def __init__(self, url: str, queues: Sequence[str], folder: Path, seconds: float, bars: Bars) -> None:
        from tests.ports import free_ports  # noqa: PLC0415 - workers and producers do without it

        self._folder = folder
        self._seconds = seconds
        self._bars = bars
        self._client = Client(url)
        self.queues = queues
        os.environ.update({URL: url, RECORDS: str(folder)})
        port = free_ports(1)[0]
        os.environ[QUEUES] = ",".join(self.queues)
        weights = ",".join(f"{queue}=1" for queue in self.queues)
        self._worker_command = ("-m", "pyasynq", "worker", f"{MODULE}:app", "--queues", weights)
        self._worker = python(*self._worker_command, "--health-port", str(port), "--with-scheduler")
        self.probe = Probe(port)
        while {one["queue"] for one in self._records("tick", 0.0, queues)} != {*queues}:
            time.sleep(0.1)
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
        begun = time.time()
        victim = python(*self._worker_command, "--concurrency", "200", **{VICTIM: "1"})
        while missing := {*self.queues} - {one["queue"] for one in self._records("held", begun, self.queues)}:
            if time.time() > begun + HOLD_SECONDS:
                victim.kill()
                victim.wait()
                names = ", ".join(sorted(missing))
                raise TimeoutError(f"no task of {names} has run in the second worker for {HOLD_SECONDS:g} s")
            for queue in self.queues:
                # What was lost before may not be ready yet.
                with suppress(RedisError):
                    self._client.enqueue(hold.options(queue=queue).task())
            time.sleep(0.5)
        return victim

    def _records(self, kind: str, since: float, queues: Collection[str]) -> list[dict[str, Any]]:
        return Records(self._folder).of(kind, queues, since, math.inf)

    def lose(self, loss: Loss) -> None:
        """Inject a fault for a while; compare the other queues with before, and print the figures."""
        usual_from = time.time()
        time.sleep(USUAL_SECONDS)
        victim = self.hold_tasks()
        lost_at = time.time()
        loss.begin()
        victim.kill()
        victim.wait()
        time.sleep(self._seconds)
        back_at = time.time()
        loss.end()
        time.sleep(SETTLE_SECONDS)
        print(f"\n{loss.name}: holds {', '.join(loss.keys) or 'no key of all queues'}", flush=True)
        self._judge(loss, (usual_from, lost_at), (lost_at, back_at))

    def _judge(self, loss: Loss, usual: tuple[float, float], lost: tuple[float, float]) -> None:
        """Compare the period of a fault with the usual one before it."""
        records, others = Records(self._folder), set(self.queues) - loss.queues
        for kind, name in (("enqueued", "enqueues"), ("ran", "runs"), ("tick", "ticks")):
            share = records.lowest_share(kind, others, usual, lost)
            self._bars.tell(f"{loss.name}: {name}, of the usual rate", share, "%", least=RATE_BAR)
        latest = records.latest_run(others, *lost)
        self._bars.tell(f"{loss.name}: due tasks, longest delay", latest, "s", most=DUE_BAR)
        print(f"{loss.name}: ticks, longest delay {records.latest_tick(others, *lost):.2f} s", flush=True)
        orphans = {one["task"] for one in records.of("held", others, *usual)}
        back = {
            one["task"]: one["at"] - lost[0]
            for one in records.of("recovered", others, lost[0], lost[1] + SETTLE_SECONDS)
            if one["task"] in orphans
        }
        self._bars.tell(f"{loss.name}: orphans back, of {len(orphans)}", len(back), least=len(orphans))
        longest = max(back.values(), default=math.nan)
        self._bars.tell(f"{loss.name}: orphans, longest until back", longest, "s", most=ORPHAN_BAR)
        self._judge_probes(loss, *lost)

    def _judge_probes(self, loss: Loss, since: float, until: float) -> None:
        """Check that the worker was live, and that its readiness named the lost queues."""
        answers = [one for one in self.probe.answers if since < one.at < until]
        dead = sum(one.path == "/live" and one.status != 200 for one in answers)
        self._bars.tell(f"{loss.name}: answers of /live other than 200", dead, most=0)
        late = [one for one in answers if one.path == "/ready" and one.at > since + NOTICE_SECONDS]
        expected = loss.queues if loss.is_reported else frozenset()
        right = sum(one.unreachable == expected for one in late)
        share = 100 * right / len(late) if late else math.nan
        self._bars.tell(f"{loss.name}: answers of /ready with the right queues", share, "%", least=100)
        print(f"{loss.name}: statuses of /ready {sorted({one.status for one in late})}", flush=True)


def lose_primaries(how: str, seconds: float, bars: Bars) -> None:
    """Measure the loss of each primary of a cluster in turn."""
    from tests.fix_cluster import Cluster  # noqa: PLC0415 - workers and producers do without it

    with tempfile.TemporaryDirectory() as folder, Cluster() as cluster:
        for node in cluster.nodes:
            node.client.config_set(SERVE_OWN_SLOTS[0].removeprefix("--"), SERVE_OWN_SLOTS[1])
        queues = queues_of_nodes(cluster)
        names = [name for found in queues.values() for name in found]
        with closing(Measurement(cluster.url, names, Path(folder), seconds, bars)) as measurement:
            for loss in losses_of_primaries(how, cluster, queues):
                measurement.lose(loss)


def lose_queue(how: str, seconds: float, bars: Bars) -> None:
    """Measure the loss of one queue of a single server."""
    import redis  # noqa: PLC0415 - workers and producers do without it

    with tempfile.TemporaryDirectory() as folder, EmbeddedServer() as server:
        path = server.url.removeprefix("unix://").partition("?")[0]
        with redis.Redis(unix_socket_path=path) as default:
            default.acl_setuser(
                "admin", enabled=True, nopass=True, keys="*", channels="*", categories=["+@all"]
            )
        with (
            redis.Redis(unix_socket_path=path, username="admin") as admin,
            closing(Measurement(server.url, SINGLE_QUEUES, Path(folder), seconds, bars)) as measurement,
        ):
            measurement.lose(loss_of_queue(how, admin))


def main() -> int:
    """Measure each way of losing queues, and return the exit code."""
    seconds = float(sys.argv[1]) if len(sys.argv) > 1 else 45.0
    bars = Bars()
    for how in sys.argv[2:] or [*PRIMARY_WAYS, *QUEUE_WAYS]:
        (lose_queue if how in QUEUE_WAYS else lose_primaries)(how, seconds, bars)
    return bars.exit_code


if sys.argv[1:2] == ["produce"]:
    if __name__ == "__main__":
        asyncio.run(produce(sys.argv[2]))
elif __name__ == "__main__":
    sys.exit(main())
