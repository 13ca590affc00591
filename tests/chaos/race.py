"""PHP workers of both kinds on two instances of the task service, and a kill every 200 ms: no task is lost.

    PYTHONPATH=src:. python -m tests.chaos.race [--profile short] [--tasks 100000] [--seed 1]

Half of the workers are programs of the Composer package in `clients/php`, which lease over HTTP; the others
are `GearmanWorker` programs of Debian's php-gearman. 200 producers enqueue over HTTP and by Gearman. All of
them share one task type. A kill meets a parent of the package, its child, its guard, a Gearman worker, an
instance of the service, or Redis, which has each write on disk. In the end no task may be lost or stuck, and
a recorded kill must explain each second run. Exit code 1 on any violation.

The short profile takes a minute at most; leases are shorter there.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import json
import os
import random
import secrets
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter, defaultdict
from concurrent.futures import Future, ThreadPoolExecutor
from contextlib import ExitStack, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import TYPE_CHECKING, Final, NamedTuple, Self

import msgspec
import redis

from tests.chaos.bed import one_redis
from tests.chaos.fleet import Fleet
from tests.chaos.instances import count_unfinished, find_marked, make_instance, read_tasks, wait_until_ready
from tests.chaos.race_judge import CHILD, GEARMAN, GUARD, PARENT, REDIS, SERVICE, judge_race
from tests.chaos.race_producers import QUEUE, ProducerPlan
from tests.chaos.records import Fault, Recorder, read_history
from tests.chaos.settings import ENGINE_VARIABLE
from tests.invariants import violations
from tests.ports import free_ports

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Mapping

    from pyasynq.task import TaskInfo
    from tests.chaos.bed import OneRedis
    from tests.invariants import RedisClient

KILL_SECONDS: Final = 0.2
PRODUCERS: Final = 200
_PROCESSES_OF_PRODUCERS: Final = 2
_CHILDREN: Final = 2
"""Number of children of each program of the package."""
_WEIGHTS: Final = {CHILD: 6.0, GEARMAN: 6.0, PARENT: 3.0, GUARD: 3.0}
"""How often each kind is killed. Instances and Redis are killed only while all of them are well."""
_REDIS_AWAY_SECONDS: Final = 0.5
_LOOK_SECONDS: Final = 0.1
_PHP_FAILED: Final = 255
"""Exit code of PHP after an uncaught exception."""
_PHP: Final = Path(__file__).with_name("php")
_MARK: Final = "CHAOS_RUN"
_SHOWN: Final = 30
_SHOWN_OF_LOG: Final = 20_000
"""Characters of the common log that are shown after a violation."""


@dataclass(frozen=True, slots=True)
class RaceProfile:
    """Size of a run.

    Attributes:
        tasks: number of tasks to be acknowledged.
        workers: number of programs; one half leases over HTTP, the other one speaks Gearman.
        rest: seconds between two tasks of a producer, on average.
        lease: seconds of a lease.
        patience: seconds in which the last tasks must end after the last kill.
        outages: weight of kills of an instance, and of Redis: what all workers notice.
        engine: settings of the service's engine that are changed.
    """

    tasks: int
    workers: int
    rest: float
    lease: int
    patience: float
    outages: float
    engine: Mapping[str, float] = field(default_factory=dict)


_QUICK: Final = {
    "lease": 6,
    "own_slack": 1,
    "look_interval": 0.5,
    "syncer_interval": 0.5,
    "silence_share": 0.5,
    "silence_least": 0.1,
}
PROFILES: Final = {
    "long": RaceProfile(100_000, 50, 0.5, 30, 300.0, 0.3),
    "short": RaceProfile(2_000, 10, 1.0, 6, 120.0, 1.0, _QUICK),
}


class TasksLeft(NamedTuple):
    """Numbers of tasks that are pending, and that have not ended; None while Redis is away."""

    waiting: int | None = None
    unfinished: int | None = None


class ServiceInstance:
    """An instance of the service, and the workers that are bound to it.

    Attributes:
        port: of HTTP.
        door: port of Gearman.
        fleet: of its one process.
        leasing: programs of the package.
        gearman: `GearmanWorker` programs.
    """

    def __init__(self, url: str, folder: Path, profile: RaceProfile, workers: int, mark: str) -> None:
        self.port, self.door = free_ports(2)
        environment = {_MARK: mark}
        settings = {
            "service": {"redis": url, "listen": f"127.0.0.1:{self.port}", "dashboard": False},
            "tasks": {QUEUE: {"timeout": "1m", "max_retry": 1_000, "retry": ["0s"], "retention": "24h"}},
            "doors": {"gearman": {"listen": f"127.0.0.1:{self.door}"}},
        }
        engine = {ENGINE_VARIABLE: json.dumps(profile.engine)}
        program = "tests.chaos.quick_service" if profile.engine else "pyasynq"
        self.fleet = make_instance(settings, folder, environment | engine, program=program)
        self.leasing = Fleet(
            workers // 2,
            [str(folder), str(profile.lease), str(_CHILDREN)],
            {**environment, "PYASYNQ_SERVICE": f"http://127.0.0.1:{self.port}"},
            folder / "log",
            command=["php", str(_PHP / "leasing.php")],
            # It ends itself when its guard was killed.
            may_end_with=frozenset({_PHP_FAILED}),
        )
        self.gearman = Fleet(
            workers - workers // 2,
            [str(self.door), str(folder)],
            environment,
            folder / "log",
            command=["php", str(_PHP / "gearman.php")],
            # It ends when its connection breaks, and cannot begin while its door is closed.
            may_end_with=frozenset({0, _PHP_FAILED}),
        )

    def list_pids(self, children: Mapping[int, Iterable[int]]) -> set[int]:
        """Return all processes that depend on this instance, and its own."""
        parents = self.leasing.pids()
        pids = {*self.fleet.pids(), *self.gearman.pids()}
        return pids.union(*(find_family(parent, children) for parent in parents))


def list_children() -> dict[int, list[int]]:
    """Return the children of each process of this machine."""
    children = defaultdict(list)
    for entry in os.scandir("/proc"):
        with suppress(OSError):
            if entry.name.isdigit():
                # The name of the program, in parentheses, may hold anything.
                fields = Path(entry.path, "stat").read_text("utf-8", "replace").rpartition(")")[2].split()
                children[int(fields[1])].append(int(entry.name))
    return children


def find_family(parent: int, children: Mapping[int, Iterable[int]]) -> set[int]:
    """Return a process and all that descend from it."""
    family = {parent}
    for child in children.get(parent, ()):
        family |= find_family(child, children)
    return family


class Race:
    """Redis, two instances, their workers and the producers, for the time of a `with` block.

    Args:
        folder: for records, data and the log.
        profile: size of the run.
        numbers: draws kills.
    """

    def __init__(self, folder: Path, profile: RaceProfile, numbers: random.Random) -> None:
        self.kills: Counter[str] = Counter()
        self.complaints: list[str] = []
        """Sentences about processes that ended by themselves, or did not end in time."""
        self.mark = secrets.token_hex(8)
        self._folder = folder
        self._profile = profile
        self._numbers = numbers
        self._recorder = Recorder(folder)
        self._stack = ExitStack()
        self._threads = ThreadPoolExecutor(4)
        self._repairs: list[Future[None]] = []
        """Waits until what was killed is well again."""
        self._guards: dict[int, tuple[float, set[int]]] = {}
        """When the guard of each parent was killed, and their families."""
        self._cut_off: set[int] = set()
        """Processes whose instance was killed while they lived."""
        self._producers: list[subprocess.Popen[bytes]] = []

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()
        self._recorder.close()

    def _start(self, stack: ExitStack) -> None:
        stack.callback(self._threads.shutdown)
        home = self._folder / "r"
        home.mkdir()
        self.bed: OneRedis = stack.enter_context(one_redis(home, fsync="always"))
        half = self._profile.workers // 2
        self._instances = [
            ServiceInstance(self.bed.url, self._folder, self._profile, workers, self.mark)
            for workers in (self._profile.workers - half, half)
        ]
        for one in self._instances:
            stack.enter_context(one.fleet)
        for one in self._instances:
            wait_until_ready(one.port)
            stack.enter_context(one.leasing)
            stack.enter_context(one.gearman)
        for number in range(_PROCESSES_OF_PRODUCERS):
            producer = self._start_producers(number)
            self._producers.append(producer)
            stack.callback(_end, producer)

    def _start_producers(self, number: int) -> subprocess.Popen[bytes]:
        producers = PRODUCERS // _PROCESSES_OF_PRODUCERS
        plan = ProducerPlan(
            folder=str(self._folder),
            name="ab"[number],
            producers=producers,
            tasks=self._profile.tasks // PRODUCERS,
            rest=self._profile.rest,
            seed=self._numbers.randrange(1_000_000),
            http=[one.port for one in self._instances],
            gearman=[one.door for one in self._instances],
        )
        text = msgspec.json.encode(plan).decode()
        return subprocess.Popen([sys.executable, "-m", "tests.chaos.race_producers", text])

    def run(self) -> None:
        """Kill until all tasks have been enqueued and nearly all have ended; then wait for the last ones."""
        client: RedisClient
        with redis.Redis.from_url(self.bed.url) as client:
            next_kill = time.monotonic()
            while not self._is_nearly_done(client):
                self._revive()
                if time.monotonic() >= next_kill:
                    next_kill = time.monotonic() + KILL_SECONDS
                    self._kill_one()
                time.sleep(max(0.0, min(_LOOK_SECONDS, next_kill - time.monotonic())))
            deadline = time.monotonic() + self._profile.patience
            while self._count(client).unfinished != 0 and time.monotonic() < deadline:
                self._revive()
                time.sleep(_LOOK_SECONDS)
        print(file=sys.stderr)

    def _is_nearly_done(self, client: RedisClient) -> bool:
        codes = [producer.poll() for producer in self._producers]
        if any(codes):
            raise SystemExit(f"producers have ended with {codes}")
        waiting = self._count(client).waiting
        return None not in codes and waiting is not None and waiting <= self._profile.workers

    def _count(self, client: RedisClient) -> TasksLeft:
        """Count the tasks, and show how far the run is."""
        try:
            unfinished = count_unfinished(client, [QUEUE])
            waiting = int(client.llen(f"asynq:{{{QUEUE}}}:pending"))
            done = int(client.zcard(f"asynq:{{{QUEUE}}}:completed"))
        except (redis.ConnectionError, redis.exceptions.BusyLoadingError):
            return TasksLeft()
        kills = self.kills.total()
        print(
            f"\r{done:,} tasks have ended, {unfinished:,} are left, {kills:,} kills ", end="", file=sys.stderr
        )
        return TasksLeft(waiting, unfinished)

    def _revive(self) -> None:
        """Start again what has ended: parents without guards, and Gearman workers without their instance."""
        is_whole = self._is_whole()
        for one in self._instances:
            for pid in one.leasing.revive():
                if pid in self._guards:
                    self._note_guard(pid)
                else:
                    self.complaints.append(f"parent {pid} ended by itself")
            if is_whole:
                ended = set(one.gearman.revive()) - self._cut_off
                self.complaints += [f"Gearman worker {pid} ended by itself" for pid in ended]

    def _note_guard(self, parent: int) -> None:
        """Write down that a guard was killed, and that its parent has ended because of that."""
        began, family = self._guards.pop(parent)
        self._recorder.note_fault(Fault(GUARD, began, time.monotonic(), frozenset(family)))

    def _kill_one(self) -> None:
        """Kill something of a drawn kind; if there is none, of another kind."""
        outages = self._profile.outages
        weights = _WEIGHTS | {SERVICE: outages, REDIS: outages}
        [first] = self._numbers.choices(list(weights), list(weights.values()))
        children = list_children()
        for kind in (first, CHILD, GEARMAN):
            kill: Callable[[Mapping[int, list[int]]], bool] = {
                CHILD: self._kill_child,
                GEARMAN: self._kill_gearman,
                PARENT: self._kill_parent,
                GUARD: self._kill_guard,
                SERVICE: self._kill_service,
                REDIS: self._kill_redis,
            }[kind]
            if kill(children):
                self.kills[kind] += 1
                return

    def _draw_parent(self) -> tuple[Fleet, int]:
        fleet = self._numbers.choice(self._instances).leasing
        return fleet, self._numbers.choice(fleet.pids() or [0])

    def _kill_child(self, children: Mapping[int, list[int]]) -> bool:
        _, parent = self._draw_parent()
        own = [child for guard in children.get(parent, ()) for child in children.get(guard, ())]
        if not parent or not own:
            return False
        child = self._numbers.choice(own)
        return self._kill(CHILD, child, {child})

    def _kill_guard(self, children: Mapping[int, list[int]]) -> bool:
        _, parent = self._draw_parent()
        guards = children.get(parent, ())
        if not parent or not guards or parent in self._guards:
            return False
        self._guards[parent] = time.monotonic(), find_family(parent, children)
        os.kill(guards[0], signal.SIGKILL)
        return True

    def _kill_parent(self, children: Mapping[int, list[int]]) -> bool:
        fleet, parent = self._draw_parent()
        if not parent or parent in self._guards:
            return False
        return self._kill_of_fleet(PARENT, fleet, parent, find_family(parent, children))

    def _kill_gearman(self, _children: Mapping[int, list[int]]) -> bool:
        fleet = self._numbers.choice(self._instances).gearman
        pid = self._numbers.choice(fleet.pids() or [0])
        if not pid:
            return False
        self._kill_of_fleet(GEARMAN, fleet, pid, {pid})
        if not self._is_whole():
            self._cut_off |= set(fleet.pids())
        return True

    def _kill(self, kind: str, pid: int, family: set[int]) -> bool:
        began = time.monotonic()
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            return False
        self._recorder.note_fault(Fault(kind, began, time.monotonic(), frozenset(family)))
        return True

    def _kill_of_fleet(self, kind: str, fleet: Fleet, pid: int, family: set[int]) -> bool:
        began = time.monotonic()
        fleet.kill(pid)
        self._recorder.note_fault(Fault(kind, began, time.monotonic(), frozenset(family)))
        return True

    def _kill_service(self, children: Mapping[int, list[int]]) -> bool:
        one = self._numbers.choice(self._instances)
        pids = one.fleet.pids()
        if not pids or not self._is_whole():
            return False
        family = one.list_pids(children)
        self._cut_off |= family
        began = time.monotonic()
        one.fleet.kill(pids[0])
        self._repair(Fault(SERVICE, began, began, frozenset(family)), lambda: wait_until_ready(one.port))
        return True

    def _kill_redis(self, _children: Mapping[int, list[int]]) -> bool:
        if not self._is_whole():
            return False
        away = self._numbers.uniform(0, _REDIS_AWAY_SECONDS)

        def restart() -> None:
            time.sleep(away)
            self.bed.restart()
            for one in self._instances:
                wait_until_ready(one.port)

        began = time.monotonic()
        self.bed.kill_primary()
        self._repair(Fault(REDIS, began, began), restart)
        return True

    def _is_whole(self) -> bool:
        """Return whether Redis and all instances are well."""
        for repair in self._repairs:
            if repair.done():
                repair.result()
        self._repairs = [repair for repair in self._repairs if not repair.done()]
        return not self._repairs

    def _repair(self, fault: Fault, wait: Callable[[], None]) -> None:
        """Wait in a thread until it is well again, and write the fault down."""

        def repair() -> None:
            wait()
            self._recorder.note_fault(fault._replace(ended=time.monotonic()))

        self._repairs.append(self._threads.submit(repair))

    def stop(self) -> None:
        """Ask workers and instances to end; Redis stays."""
        for repair in self._repairs:
            repair.result()
        for one in self._instances:
            self.complaints += [*one.fleet.failures(), *one.leasing.failures(), *one.gearman.failures()]
            self.complaints += [*one.leasing.stop(), *one.gearman.stop(), *one.fleet.stop()]
        for parent in list(self._guards):
            self._note_guard(parent)


def _end(process: subprocess.Popen[bytes]) -> None:
    """Kill a process, if it still runs."""
    process.kill()
    process.wait()


def get_name(task: TaskInfo) -> str:
    """Return the name that a producer has given to a task."""
    return str(json.loads(task.payload or b"null")["name"])


def run_race(folder: Path, profile: RaceProfile, numbers: random.Random) -> tuple[list[str], str]:
    """Run the race and judge it; return the violations, and a sentence with the figures."""
    begun = time.monotonic()
    client: RedisClient
    with Race(folder, profile, numbers) as race:
        race.run()
        race.stop()
        found = asyncio.run(read_tasks(race.bed.url, [QUEUE], get_name))
        with redis.Redis.from_url(race.bed.url) as client:
            faults = [*race.complaints, *violations(client)]
    faults += find_marked(_MARK, race.mark)
    verdict = judge_race(read_history(folder), found, profile.lease)
    kills = ", ".join(f"{number:,} of {kind}" for kind, number in sorted(race.kills.items()))
    again = ", ".join(f"{number:,} by {kind}" for kind, number in sorted(verdict.again.items()))
    figures = (
        f"{verdict.acknowledged:,} tasks through {profile.workers} PHP workers in "
        f"{time.monotonic() - begun:.0f} s; kills: {kills}; run again: {again or 'none'}; "
        f"{verdict.poisoned:,} archived as poison"
    )
    return verdict.faults + faults, figures


def main() -> int:
    """Run it, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--profile", choices=PROFILES, default="long")
    parser.add_argument("--tasks", type=int, help="number of tasks, in place of the profile's")
    parser.add_argument("--seed", type=int, help="of all random choices")
    arguments = parser.parse_args()
    if shutil.which("php") is None:
        parser.error("php is missing: install php-cli, php-curl and php-gearman")
    seed = random.SystemRandom().randrange(1_000_000) if arguments.seed is None else arguments.seed
    print(f"seed {seed}, profile {arguments.profile}", flush=True)
    profile = PROFILES[arguments.profile]
    if arguments.tasks is not None:
        profile = replace(profile, tasks=arguments.tasks)
    with tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as name:
        faults, figures = run_race(Path(name), profile, random.Random(seed))
        if faults:
            with suppress(OSError):
                sys.stderr.write((Path(name) / "log").read_text("utf-8", "replace")[-_SHOWN_OF_LOG:])
    print(figures)
    for fault in faults[:_SHOWN]:
        print(f"  VIOLATION: {fault}")
    print(f"violations: {len(faults):,}; seed {seed}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
