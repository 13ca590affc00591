"""Hosted tasks on two instances of the task service that are killed in turns: each ends as the tables say.

    PYTHONPATH=src:. python -m tests.chaos.hosted [--requests 10000] [--commands 1000] [--seed 1]

A target on this machine answers requests in every way of the table of outcomes, and commands end in every
way of theirs; both write down each attempt. Every five seconds one of the instances is killed with SIGKILL.
In the end each task is in the state that its last answer means, a kill explains each attempt that was made
twice, and no process, folder or control group of a command is left. Exit code 1 on any violation.
"""

# ruff: noqa: T201 - it talks to a person at a terminal

from __future__ import annotations

import argparse
import asyncio
import random
import secrets
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, Self

import httpx
import redis

from pyasynq.embedded import EmbeddedServer
from pyasynq.gateway.hosted.cmd.launcher.control_group import find_own_group
from tests.chaos.flaky_target import FlakyTarget
from tests.chaos.hosted_judge import Call, Kill, count_again, find_faults
from tests.chaos.instances import count_unfinished, find_marked, make_instance, read_tasks, wait_until_ready
from tests.invariants import violations
from tests.ports import free_port

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from tests.chaos.fleet import Fleet
    from tests.chaos.hosted_judge import Ended
    from tests.invariants import RedisClient

INSTANCES: Final = ("a", "b")
KILL_SECONDS: Final = 5.0
MAX_RETRY: Final = 4
_FIRST_KILL_SECONDS: Final = 1.0
PATIENCE_SECONDS: Final = 900.0
_LEFT_SECONDS: Final = 30.0
"""Time in which processes of a killed instance must have ended."""
_BATCH: Final = 500
_MARK: Final = "CHAOS_RUN"
"""Variable by which the processes of commands are found."""
_REQUESTS: Final = {
    "flaky/200": 50,
    "flaky/204": 5,
    "flaky/500,200": 10,
    "flaky/502,500,408,200": 4,
    "flaky/500": 3,
    "flaky/404": 2,
    "flaky/500,422": 2,
    "flaky/reset,200": 5,
    "flaky/cut,reset,200": 2,
    "flaky/garbage,204": 2,
    "flaky/302,200": 2,
    "flaky/425,snooze,200": 2,
    "flaky/snooze,500,archive": 1,
    "flaky/500,cancel": 1,
    "slow/silent,200": 0.5,
    "slow/drip,200": 0.5,
    "slow/silent,drip,silent,drip,silent": 0.2,
    "throttled/429s,200": 2,
    "throttled/429d,500,200": 1,
    "throttled/503s,429d,200": 1,
    "throttled/500,429s,404": 1,
    "handed/lease": 2,
    "handed/500,lease": 1,
}
"""Weight of each way that a task may go: its type, and the answers to its attempts."""
_COMMANDS: Final = {
    "command/0": 45,
    "command/75,0": 10,
    "command/3,75,0": 5,
    "command/1": 4,
    "command/65": 5,
    "command/3,64": 3,
    "command/99,0": 5,
    "command/segv,0": 5,
    "command/slow": 5,
    "command/leave": 5,
    "command/flood": 3,
    "command/hang,0": 2,
    "command/deaf,leave": 2,
}
_GONE: Final = "gone/410"
_GONE_TASKS: Final = 20
_SCRIPT: Final = """
IFS=, read -ra answers <<<"$2"
notes=$1/$PYASYNQ_TASK_ID
touch "$notes"
mapfile -t before <"$notes"
number=${#before[@]}
if ((number >= ${#answers[@]})); then number=$((${#answers[@]} - 1)); fi
answer=${answers[number]}
echo "$EPOCHREALTIME $CHAOS_INSTANCE $PYASYNQ_ATTEMPT $answer" >>"$notes"
case $answer in
segv) kill -SEGV $$ ;;
hang) exec sleep 1000 ;;
deaf)
    trap '' TERM
    (setsid sleep 1000 &)
    while :; do sleep 1; done
    ;;
leave) (setsid sleep 1000 &) ;;
flood) head -c 300000 /dev/zero ;;
slow) sleep 0.3 ;;
*) exit "$answer" ;;
esac
"""
_SNOOZED_SECONDS: Final = 1.0


def make_settings(url: str, port: int, targets: Sequence[int], folder: Path) -> dict[str, Any]:
    """Return the content of an instance's file."""
    common = {"max_retry": MAX_RETRY, "retry": ["0s", "1s"], "retention": "1h"}
    flaky, throttling = targets

    def make_type(target: int, **fields: Any) -> dict[str, Any]:
        address = f"http://127.0.0.1:{target}/{{answers}}"
        return {"kind": "http", "url": address, "timeout": "30s", **common, **fields}

    rule = {"addresses": ["127.0.0.1"], "secret_headers": {"X-Instance": "env:CHAOS_INSTANCE"}}
    return {
        "service": {"redis": url, "listen": f"127.0.0.1:{port}", "dashboard": False},
        "hosts": {f"127.0.0.1:{target}": rule for target in targets},
        "commands": {"folder": str(folder / "attempts"), "concurrency": 20},
        "tasks": {
            "flaky": make_type(flaky),
            "slow": make_type(flaky, timeout="3s"),
            "gone": make_type(flaky),
            "handed": make_type(flaky, callback=True),
            "throttled": make_type(throttling),
            "command": {
                "kind": "cmd",
                "argv": ["/bin/bash", str(folder / "command.sh"), str(folder / "notes"), "{answers}"],
                "env": ["CHAOS_INSTANCE", _MARK],
                "timeout": "5s",
                "grace": "500ms",
                "log_output": False,
                "snooze_codes": {"99": _SNOOZED_SECONDS},
                **common,
            },
        },
    }


def draw_tasks(ways: Mapping[str, float], number: int, numbers: random.Random) -> list[str]:
    """Return the ways of this many tasks: each way once at least."""
    drawn = numbers.choices(list(ways), list(ways.values()), k=max(0, number - len(ways)))
    tasks = [*list(ways)[:number], *drawn]
    numbers.shuffle(tasks)
    return tasks


class HostedRun:
    """Two instances, their target and their tasks, for the time of a `with` block.

    Args:
        url: of Redis.
        folder: for files and logs.
        numbers: draws tasks and kills.
    """

    def __init__(self, url: str, folder: Path, numbers: random.Random) -> None:
        self.kills: list[Kill] = []
        self.ways: dict[str, str] = {}
        """Type and answers of each task, by its id."""
        self.mark = secrets.token_hex(8)
        self._url = url
        self._folder = folder
        self._numbers = numbers
        self._ports = [free_port() for _ in INSTANCES]
        self._fleets: dict[str, Fleet] = {}
        self._stack = ExitStack()
        self.target = FlakyTarget(self._ports)

    def __enter__(self) -> Self:
        with ExitStack() as stack:
            self._start(stack)
            self._stack = stack.pop_all()
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    def _start(self, stack: ExitStack) -> None:
        stack.enter_context(self.target)
        for name in ("attempts", "notes"):
            (self._folder / name).mkdir()
        (self._folder / "command.sh").write_text(_SCRIPT, "utf-8")
        for name, port in zip(INSTANCES, self._ports, strict=True):
            settings = make_settings(self._url, port, self.target.ports, self._folder)
            environment = {"CHAOS_INSTANCE": name, _MARK: self.mark}
            self._fleets[name] = stack.enter_context(make_instance(settings, self._folder, environment))
        for port in self._ports:
            wait_until_ready(port)

    def enqueue(self, ways: Sequence[str]) -> None:
        """Enqueue a task for each of these ways, through one instance or the other."""
        tasks = []
        for way in ways:
            kind, _, answers = way.partition("/")
            task_id = f"{kind}-{len(self.ways)}"
            self.ways[task_id] = way
            tasks.append({"type": kind, "params": {"answers": answers}, "options": {"task_id": task_id}})
        for start in range(0, len(tasks), _BATCH):
            address = f"http://127.0.0.1:{self._numbers.choice(self._ports)}/v1/tasks:batch"
            answer = httpx.post(address, json={"tasks": tasks[start : start + _BATCH]}, timeout=30)
            assert answer.is_success, answer.text
            assert "problem" not in answer.text, answer.text[:1_000]

    def kill_until_done(self, kill_seconds: float = KILL_SECONDS) -> None:
        """Kill an instance in every interval, until no task is left to run."""
        client: RedisClient
        deadline = time.monotonic() + PATIENCE_SECONDS
        next_kill = time.monotonic() + _FIRST_KILL_SECONDS
        with redis.Redis.from_url(self._url) as client:
            while left := self._count_left(client):
                if time.monotonic() > deadline:
                    raise SystemExit(f"{left} tasks are left after {PATIENCE_SECONDS:.0f} s")
                print(f"\r{left:,} tasks are left, {len(self.kills)} kills ", end="", file=sys.stderr)
                time.sleep(0.2)
                if time.monotonic() >= next_kill:
                    next_kill += kill_seconds
                    self._kill_one()
        print(file=sys.stderr)

    def _kill_one(self) -> None:
        name = self._numbers.choice(INSTANCES)
        [pid] = self._fleets[name].pids()
        self._fleets[name].kill(pid)
        self.kills.append(Kill(time.time(), name))

    def _count_left(self, client: RedisClient) -> int:
        """Return how many tasks wait or run; those whose endpoint is gone stay pending."""
        kinds = {way.partition("/")[0] for way in self.ways.values()}
        left = count_unfinished(client, kinds - {"gone"})
        if "gone" in kinds:
            left += int(client.llen("asynq:{gone}:active")) + (not client.exists("asynq:{gone}:paused"))
        return left

    def complaints(self) -> list[str]:
        """Return sentences about instances that ended by themselves."""
        return [one for fleet in self._fleets.values() for one in fleet.failures()]

    def read_calls(self) -> dict[str, list[Call]]:
        """Return all requests and all starts of commands, by task."""
        calls = {**self.target.calls}
        for file in (self._folder / "notes").iterdir():
            lines = [line.split() for line in file.read_text("utf-8").splitlines()]
            calls[file.name] = [
                Call(float(at), instance, int(attempt), answer, _SNOOZED_SECONDS if answer == "99" else 0.0)
                for at, instance, attempt, answer in lines
            ]
        return calls

    def find_leftovers(self) -> list[str]:
        """Return a sentence for each process, folder and control group that commands have left."""
        deadline = time.monotonic() + _LEFT_SECONDS
        while (found := self._list_leftovers()) and time.monotonic() < deadline:
            time.sleep(0.2)
        return found

    def _list_leftovers(self) -> list[str]:
        found = [f"folder {one.name} is left" for one in (self._folder / "attempts").iterdir()]
        own = find_own_group()
        if own is not None:
            found += [f"control group {one.name} is left" for one in own.glob("pyasynq-*")]
        return found + find_marked(_MARK, self.mark)


def judge(
    ways: Mapping[str, str],
    calls: Mapping[str, Sequence[Call]],
    found: Mapping[str, Ended],
    kills: Sequence[Kill],
) -> list[str]:
    """Return a sentence for each violation."""
    faults: list[str] = []
    for task_id, way in ways.items():
        task = found.get(task_id)
        waits_for_good = way == _GONE and task is not None and task.state == "pending"
        if waits_for_good:
            continue  # its queue is paused since another task heard that the endpoint is gone
        name = f"{task_id} ({way})"
        faults += find_faults(name, calls.get(task_id, ()), task, kills, MAX_RETRY)
    faults += [f"{one} was not enqueued" for one in calls.keys() | found.keys() if one not in ways]
    return faults


def main() -> int:
    """Run it, print the figures, and return the exit code."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--requests", type=int, default=10_000)
    parser.add_argument("--commands", type=int, default=1_000)
    parser.add_argument("--seed", type=int, default=1)
    arguments = parser.parse_args()
    numbers = random.Random(arguments.seed)
    begun = time.monotonic()
    with EmbeddedServer() as server, tempfile.TemporaryDirectory(prefix="pyasynq-chaos-") as name:
        folder = Path(name)
        folder.chmod(0o711)
        with HostedRun(server.url, folder, numbers) as run:
            ways = draw_tasks(_REQUESTS, arguments.requests - _GONE_TASKS, numbers) + [_GONE] * _GONE_TASKS
            run.enqueue(ways + draw_tasks(_COMMANDS, arguments.commands, numbers))
            run.kill_until_done()
            faults = run.complaints()
        calls = run.read_calls()
        queues = sorted({way.partition("/")[0] for way in run.ways.values()})
        faults += judge(run.ways, calls, asyncio.run(read_tasks(server.url, queues)), run.kills)
        faults += run.find_leftovers()
        with redis.Redis.from_url(server.url) as client:
            faults += violations(client)
    attempts = sum(map(len, calls.values()))
    print(
        f"{len(run.ways):,} hosted tasks in {time.monotonic() - begun:.0f} s: {attempts:,} attempts, "
        f"{count_again(calls, MAX_RETRY):,} of them again after {len(run.kills)} kills"
    )
    for fault in faults[:30]:
        print(f"  VIOLATION: {fault}")
    return 1 if faults else 0


if __name__ == "__main__":
    sys.exit(main())
