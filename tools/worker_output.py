"""Record the output of a worker in docs/workers.md, as text for people and as JSON for machines.

Each block of the page comes from a real worker on a real server. Values that differ between two runs, such as
times and process ids, are replaced by fixed ones. `python -m tools.worker_output` writes the blocks, with
`--check` it compares them.
"""

from __future__ import annotations

import json
import os
import pty
import re
import signal
import socket
import subprocess
import sys
import tempfile
import termios
import textwrap
import threading
import time
from pathlib import Path
from typing import TYPE_CHECKING, Final, Self

import redis

from pyasynq import sync
from pyasynq._embedded.binary import find_server_binary

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

ROOT: Final = Path(__file__).parent.parent
PAGE: Final = ROOT / "docs" / "workers.md"
_PATIENCE: Final = 60.0
_COLUMNS: Final = 100
_INDENT: Final = " " * 17

_SHOP: Final = """
import asyncio
from pathlib import Path

from pyasynq import App, Snooze

app = App()


@app.task("report:fetch")
async def fetch(seconds: float) -> None:
    with Path("started").open("a") as started:
        started.write("x")
    await asyncio.sleep(seconds)


@app.task("email:deliver", retry_delay=15)
async def deliver(user_id: int) -> None:
    raise ValueError(f"no user {user_id}")


@app.task("email:once")
async def once() -> None:
    raise ValueError("the mailbox is full")


@app.task("stock:wait")
async def wait() -> Snooze:
    return Snooze(30)
"""


class _Redis:
    """A Redis server on its own port, whose data survive a restart."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        with socket.socket() as free:
            free.bind(("127.0.0.1", 0))
            self.port: int = free.getsockname()[1]
        self.url = f"redis://localhost:{self.port}"

    def start(self) -> None:
        self._process = subprocess.Popen(
            [
                str(find_server_binary(os.environ.get("PYASYNQ_TEST_BINARY")).path),
                *("--port", str(self.port), "--bind", "127.0.0.1", "--dir", str(self._folder), "--save", ""),
                *("--appendonly", "yes", "--appendfsync", "always"),
            ],
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _PATIENCE
        with redis.Redis(port=self.port) as client:
            while time.monotonic() < deadline:
                try:
                    client.ping()
                except redis.ConnectionError:
                    time.sleep(0.05)
                else:
                    return
        raise TimeoutError("the server does not answer")

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()


class _Worker:
    """A `pyasynq worker` whose standard error is a terminal, or a pipe."""

    def __init__(self, server: _Redis, folder: Path, *options: str, terminal: bool) -> None:
        self.lines: list[str] = []
        self._news = threading.Condition()
        read_end, write_end = pty.openpty() if terminal else os.pipe()
        if terminal:
            # Wrap nothing before the varying values are replaced.
            termios.tcsetwinsize(write_end, (50, 2_000))
        self._process = subprocess.Popen(
            [sys.executable, "-m", "pyasynq", "worker", "shop:app", *options],
            cwd=folder,
            env={**_environment(), "PYASYNQ_REDIS_URL": server.url, "COLUMNS": "2000"},
            stdin=subprocess.DEVNULL,
            stderr=write_end,
            restore_signals=True,
        )
        os.close(write_end)
        self._reader = threading.Thread(target=self._read, args=(read_end,), daemon=True)
        self._reader.start()

    def _read(self, descriptor: int) -> None:
        with os.fdopen(descriptor, "r", encoding="utf-8", newline="\n") as stream:
            try:
                for line in stream:
                    with self._news:
                        self.lines.append(line.rstrip("\r\n"))
                        self._news.notify_all()
            except OSError:
                return  # a terminal reports its end as an error

    def wait_for(self, pattern: str, times: int = 1) -> None:
        def seen() -> bool:
            return sum(1 for line in self.lines if re.search(pattern, line)) >= times

        with self._news:
            if not self._news.wait_for(seen, _PATIENCE):
                raise TimeoutError(f"no {times} lines match {pattern!r} in:\n" + "\n".join(self.lines))

    def send(self, number: signal.Signals) -> None:
        self._process.send_signal(number)

    def end(self) -> list[str]:
        self._process.wait(_PATIENCE)
        self._reader.join(_PATIENCE)
        return self.lines

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self._process.kill()
        self._process.wait()
        self._reader.join(_PATIENCE)


def _environment() -> dict[str, str]:
    kept = {name: value for name, value in os.environ.items() if not name.startswith("PYASYNQ_")}
    return {**kept, "NO_COLOR": "1", "PYTHONPATH": str(ROOT / "src")}


def _task_id(number: int) -> str:
    return f"{number:08x}-0000-4000-8000-000000000000"


def _run_each(worker: _Worker, client: sync.Client) -> None:
    """Run one task for each outcome, one after another."""
    tasks: list[tuple[str, dict[str, object], str]] = [
        ("report:fetch", {"seconds": 0.5}, "succeeded"),
        ("email:deliver", {"user_id": 7}, "retried"),
        ("email:once", {}, "archived"),
        ("stock:wait", {}, "snoozed"),
    ]
    for number, (name, arguments, outcome) in enumerate(tasks, start=0x51A4_0D01):
        retries = 0 if outcome == "archived" else 25
        client.enqueue(name, json.dumps(arguments).encode(), task_id=_task_id(number), max_retry=retries)
        worker.wait_for(outcome)


def _tasks(server: _Redis, folder: Path) -> list[str]:
    with _Worker(server, folder, terminal=True) as worker, sync.Client(server.url) as client:
        worker.wait_for("pyasynq .* on ")
        _run_each(worker, client)
        client.enqueue("report:fetch", b'{"seconds": 0.5}', task_id=_task_id(0x51A4_0D09))
        _wait_for_starts(folder, 2)
        worker.send(signal.SIGTERM)
        return ["$ pyasynq worker shop:app", *worker.end()]


def _json(server: _Redis, folder: Path) -> list[str]:
    options = ["--log-format", "json", "--log-tasks"]
    with _Worker(server, folder, *options, terminal=False) as worker, sync.Client(server.url) as client:
        worker.wait_for("pyasynq .* on ")
        _run_each(worker, client)
        worker.send(signal.SIGTERM)
        return [f"$ pyasynq worker shop:app {' '.join(options)}", *worker.end()]


def _outage(server: _Redis, folder: Path) -> list[str]:
    with _Worker(server, folder, terminal=True) as worker, sync.Client(server.url) as client:
        worker.wait_for("pyasynq .* on ")
        for number in range(3):
            client.enqueue("report:fetch", b'{"seconds": 5}', task_id=_task_id(0x51A4_0D01 + number))
        _wait_for_starts(folder, 3)
        server.kill()
        worker.wait_for("is away")
        worker.wait_for("succeeded", 3)
        server.start()
        worker.wait_for("is back")
        worker.send(signal.SIGTERM)
        return ["$ pyasynq worker shop:app", *worker.end()]


def _reload(server: _Redis, folder: Path) -> list[str]:
    with _Worker(server, folder, "--processes", "2", terminal=True) as worker:
        worker.wait_for("takes tasks", 2)
        worker.send(signal.SIGHUP)
        worker.wait_for("takes tasks", 4)
        worker.wait_for("ended with code 0", 2)
        worker.send(signal.SIGTERM)
        return ["$ pyasynq worker shop:app --processes 2", *worker.end()]


def _wait_for_starts(folder: Path, tasks: int) -> None:
    deadline = time.monotonic() + _PATIENCE
    started = folder / "started"
    while not started.exists() or started.stat().st_size < tasks:
        if time.monotonic() > deadline:
            raise TimeoutError(f"{tasks} tasks have not started")
        time.sleep(0.02)


SCENARIOS: Final[dict[str, Callable[[_Redis, Path], list[str]]]] = {
    "tasks": _tasks,
    "outage": _outage,
    "reload": _reload,
    "json": _json,
}
UNORDERED: Final = {"reload"}
"""Scenarios of several processes, whose lines come in any order."""

_FIXED: Final = (
    (r"^\d\d:\d\d:\d\d", "12:00:00"),
    (r'"time": "[^"]*"', '"time": "2026-01-02T12:00:00.000+00:00"'),
    (r"localhost:\d+", "localhost:6379"),
    (r"pyasynq \d\S* on", "pyasynq 0.1.0 on"),
    (r"is away: .*?; (\d tasks)", r"is away: Connection closed by server; \1"),
    (r"succeeded in [\d.]+ m?s", "succeeded in 520 ms"),
    (r"(failed|snoozed for 30 s|put back) after [\d.]+ m?s", r"\1 after 1.2 ms"),
    (r"is back after [^;]*", "is back after 41 s"),
    (r"(ended(?:: .*)?) (in|after) \d[\d.]* \w+(?: \d+ \w+)?", r"\1 \2 2 h"),
    (r'"seconds": [\d.e-]+', '"seconds": 0.0012'),
    (r'"waited": [\d.e-]+', '"waited": 0.0008'),
    (r'"next_in_seconds": 1[56]\.\d+', '"next_in_seconds": 15.0'),
    (r'"next_in_seconds": 3[01]\.\d+', '"next_in_seconds": 30.0'),
    (r'File "[^"]*/shop.py"', 'File "/srv/shop.py"'),
    (r'File \\"[^"]*/shop.py\\"', r'File \\"/srv/shop.py\\"'),
)


def normalise(lines: list[str]) -> list[str]:
    """Replace values that differ between two runs, and wrap lines like a terminal of 100 columns."""
    pids: dict[str, str] = {}

    def fixed_pid(match: re.Match[str]) -> str:
        return f"pid {pids.setdefault(match[1], str(4_711 + len(pids)))}"

    done = []
    for line in lines:
        for pattern, replacement in _FIXED:
            line = re.sub(pattern, replacement, line)  # noqa: PLW2901 - one replacement after another
        line = re.sub(r"pid (\d+)", fixed_pid, line)  # noqa: PLW2901 - as above
        if line.startswith("12:00:00"):
            wrapped = textwrap.wrap(
                line, _COLUMNS, subsequent_indent=_INDENT, break_long_words=False, break_on_hyphens=False
            )
            done += wrapped
        else:
            done.append(line)
    return done


def record(name: str) -> list[str]:
    """Run one scenario; return the lines that the worker writes."""
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        (folder / "shop.py").write_text(_SHOP)
        server = _Redis(folder)
        server.start()
        try:
            return normalise(SCENARIOS[name](server, folder))
        finally:
            server.kill()


def blocks(page: str) -> Iterator[tuple[str, int, int]]:
    """Yield each block's scenario, and where its lines begin and end in the page."""
    for match in re.finditer(r"<!-- worker-output: (\w+) -->\n```console\n(.*?)```\n", page, re.DOTALL):
        yield match[1], match.start(2), match.end(2)


def differs(name: str, written: list[str], recorded: list[str]) -> bool:
    """Return whether a recorded block differs from what a worker writes now."""
    if name in UNORDERED:
        return sorted(_joined(written)) != sorted(_joined(recorded))
    return written != recorded


def _joined(lines: list[str]) -> list[str]:
    """Return lines without wrapping and pids; pids may come in any order."""
    whole: list[str] = []
    for line in lines:
        if line.startswith(_INDENT):
            whole[-1] += " " + line.strip()
        else:
            whole.append(line)
    return [re.sub(r"pid \d+|worker \d+", "", line) for line in whole]


def main() -> int:
    """Write the page, or with `--check` say whether it is current."""
    page = PAGE.read_text("utf-8")
    stale = []
    for name, start, end in reversed(list(blocks(page))):
        recorded = record(name)
        if differs(name, page[start:end].splitlines(), recorded):
            stale.append(name)
            page = page[:start] + "\n".join(recorded) + "\n" + page[end:]
    if "--check" in sys.argv:
        for name in stale:
            print(f"docs/workers.md: {name!r} is not what a worker writes; type  make worker-output")
        return 1 if stale else 0
    PAGE.write_text(page, "utf-8")
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
