"""Programs that were written for gearmand, unmodified: PHP's extension, `gearman` and `gearadmin`."""

from __future__ import annotations

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import TYPE_CHECKING

import pytest
import redis

from pyasynq.embedded import EmbeddedServer
from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

HERE = Path(__file__).parent
PROGRAMS = ("php", "gearman", "gearadmin", "gearmand")
FILE = """
[service]
redis = "{url}"
listen = "127.0.0.1:0"
[tasks.resize]
retention = "1h"
max_retry = 3
[tasks.reverse]
[tasks.later]
[doors.gearman]
listen = "127.0.0.1:0"
"""


@pytest.fixture(autouse=True)
def _programs() -> None:
    """Skip where a program is missing; in CI a skipped test is a failure."""
    missing = [name for name in PROGRAMS if shutil.which(name) is None]
    if missing:
        packages = "php-cli, php-gearman, gearman-tools and gearman-job-server"
        pytest.skip(f"{', '.join(missing)} missing: install {packages}")


class Service:
    """The service in a process of its own, and programs that speak to it."""

    def __init__(self, folder: Path, url: str, port: int, stack: ExitStack) -> None:
        self.folder = folder
        self.events = folder / "events"
        self.url = url
        self.port = port
        self._stack = stack

    def start_worker(self) -> subprocess.Popen[str]:
        """Start a worker in PHP; it ends with the service."""
        lines = len(self.lines())
        command = ["php", str(HERE / "worker.php"), str(self.port), str(self.events)]
        worker = self._stack.enter_context(killed_at_end(command))
        wait_until(lambda: len(self.lines()) > lines)
        return worker

    def run(self, *command: str, text: str = "") -> str:
        """Run a program; return what it printed."""
        done = subprocess.run(command, input=text, capture_output=True, text=True, check=True, timeout=60)
        return done.stdout

    def lines(self) -> list[list[str]]:
        """Return what the workers have noted: a process and what it does, word by word."""
        text = self.events.read_text("utf-8") if self.events.exists() else ""
        # `gearman -n` sends the ends of its lines, too.
        return [line.split(" ") for line in text.splitlines() if line]


@contextmanager
def killed_at_end(command: list[str]) -> Iterator[subprocess.Popen[str]]:
    """Run a program until the end of a block."""
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        try:
            yield process
        finally:
            process.kill()


@pytest.fixture
def service(tmp_path: Path) -> Iterator[Service]:
    """Run the service on a server of its own."""
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        file = tmp_path / "service.toml"
        file.write_text(FILE.format(url=server.url), "utf-8")
        process = stack.enter_context(killed_at_end([sys.executable, "-m", "pyasynq", "service", str(file)]))
        assert process.stderr is not None
        for line in process.stderr:
            if found := re.search(r"Gearman clients and workers are served at 127\.0\.0\.1:(\d+)", line):
                break
        else:
            pytest.fail("the service has not opened its door")
        yield Service(tmp_path, server.url, int(found[1]), stack)


def test_a_client_and_a_worker_in_php(service: Service, tmp_path: Path) -> None:
    """The calls of the manual bring the same as from gearmand.

    They are foreground and background jobs, priorities, states, exceptions, and sets of tasks.
    """
    service.start_worker()
    ours = json.loads(service.run("php", str(HERE / "client.php"), str(service.port)))
    port = free_port()
    with ExitStack() as stack:
        stack.enter_context(killed_at_end(["gearmand", "-L", "127.0.0.1", "-p", str(port), "-l", "stderr"]))
        gearmand = Service(tmp_path / "gearmand", "", port, stack)
        gearmand.folder.mkdir()
        wait_until(lambda: is_open(port))
        gearmand.start_worker()
        theirs = json.loads(gearmand.run("php", str(HERE / "client.php"), str(port)))
    assert theirs == ours
    assert {f"t{number}": f"task{number}"[::-1] for number in range(20)} == ours["tasks"]
    assert (True, True, b"halfolle\x00h".hex()) == (ours["ping"], ours["exception"], ours["normal"])
    assert [True, False, 0, 0] == ours["status"]
    assert ["resize", "unique-1", "1"] in [line[1:] for line in service.lines()]


def is_open(port: int) -> bool:
    """Return whether something listens at this port of this machine."""
    try:
        socket.create_connection(("127.0.0.1", port)).close()
    except OSError:
        return False
    return True


def test_the_command_line_of_gearman(service: Service) -> None:
    """Foreground, background and the admin protocol."""
    service.start_worker()
    where = ("-h", "127.0.0.1", "-p", str(service.port))
    assert "cba" in service.run("gearman", *where, "-f", "reverse", "abc")
    service.run("gearman", *where, "-b", "-f", "resize", "from the shell")
    wait_until(lambda: any("shell" in line for line in service.lines()))
    status = service.run("gearadmin", *where, "--status")
    assert ["later", "resize", "reverse"] == [line.split("\t")[0] for line in status.splitlines()[:3]]
    assert "resize reverse" in service.run("gearadmin", *where, "--workers") or "reverse resize" in (
        service.run("gearadmin", *where, "--workers")
    )
    assert service.run("gearadmin", *where, "--server-version")
    service.run("gearman", *where, "-b", "-u", "once", "-f", "later", "1")
    assert "once" in service.run("gearadmin", *where, "--show-unique-jobs")
    [job] = [line for line in service.run("gearadmin", *where, "--show-jobs").splitlines() if "\t" in line]
    handle, *numbers = job.split("\t")
    assert ["0", "0", "1"] == numbers
    assert "OK" in service.run("gearadmin", *where, "--cancel-job", handle)
    assert "later\t0\t0\t0" in service.run("gearadmin", *where, "--status")


def test_high_jobs_of_php_run_first(service: Service) -> None:
    """Jobs of `doHighBackground` do; low ones are not put behind normal ones."""
    script = service.folder / "priorities.php"
    script.write_text(
        "<?php $client = new GearmanClient(); $client->addServer('127.0.0.1', (int) $argv[1]);"
        "$calls = ['doBackground', 'doLowBackground', 'doBackground', 'doHighBackground'];"
        "foreach ($calls as $number => $call) $client->$call('resize', \"$number $call\");",
        "utf-8",
    )
    service.run("php", str(script), str(service.port))
    service.start_worker()
    wait_until(lambda: 5 == len(service.lines()))
    assert ["3", "0", "1", "2"] == [line[3] for line in service.lines()[1:]]


def test_a_killed_worker_loses_nothing(service: Service) -> None:
    """Its job runs on another worker, and the crash is counted."""
    workers = [service.start_worker() for _ in range(2)]
    where = ("-h", "127.0.0.1", "-p", str(service.port))
    service.run("gearman", *where, "-b", "-f", "resize", "hang")

    def runs() -> list[str]:
        return [line[0] for line in service.lines() if line[-1] == "hang"]

    wait_until(lambda: 1 == len(runs()))
    [first] = runs()
    os.kill(int(first), signal.SIGKILL)
    wait_until(lambda: 2 == len(runs()))
    second = runs()[1]
    assert {first, second} == {str(worker.pid) for worker in workers}
    with blocking.Operator(service.url, User.with_role("admin", "admin")) as operator:
        [task] = [one for page in operator.search("state:active") for one in page.tasks]
        assert (1, 0) == (task.crashes, task.retried)


def test_each_job_runs_once_while_workers_are_killed(service: Service) -> None:
    """300 background jobs, four workers, ten kills: a job runs again only where a kill explains it."""
    workers = [service.start_worker() for _ in range(4)]
    where = ("-h", "127.0.0.1", "-p", str(service.port))
    killed = 0
    for round_ in range(10):
        numbers = [f"{round_}-{number}" for number in range(30)]
        service.run("gearman", *where, "-b", "-n", "-f", "resize", text="\n".join(numbers) + "\n")
        workers.pop(0).kill()
        killed += 1
        workers.append(service.start_worker())

    def done() -> int:
        with redis.Redis.from_url(service.url) as client:
            return int(client.zcard("asynq:{resize}:completed"))

    wait_until(lambda: 300 == done(), seconds=60)
    jobs = [line[-1] for line in service.lines() if line[1] == "resize"]
    assert 300 == len(set(jobs))
    assert len(jobs) <= 300 + killed


def test_the_page_works_as_printed(tmp_path: Path) -> None:
    """Its file, both programs, and the commands, at the ports of this test."""
    page = (HERE.parents[1] / "docs" / "gearman.md").read_text("utf-8")
    [file] = re.findall(r"```toml\n(.*?)```", page, re.DOTALL)
    scripts = re.findall(r"```php\n(.*?)```", page, re.DOTALL)
    commands = re.findall(r"^\$ (gear.*)$", page, re.MULTILINE)
    with ExitStack() as stack:
        server = stack.enter_context(EmbeddedServer())
        port = free_port()
        changed = file.replace("redis://localhost:6379/0", server.url).replace("4730", str(port))
        (tmp_path / "service.toml").write_text(changed.replace("8080", "0"), "utf-8")
        for name, text in zip(("worker.php", "client.php"), scripts, strict=True):
            (tmp_path / name).write_text(text.replace("4730", str(port)), "utf-8")
        command = [sys.executable, "-m", "pyasynq", "service", str(tmp_path / "service.toml"), "--no-logging"]
        stack.enter_context(killed_at_end(command))
        wait_until(lambda: is_open(port))
        stack.enter_context(killed_at_end(["php", str(tmp_path / "worker.php")]))
        service = Service(tmp_path, server.url, port, stack)
        assert "olleh\n" == service.run("php", str(tmp_path / "client.php"))
        answers = [service.run(*one.replace("4730", str(port)).split()) for one in commands]
    assert ["olleh", "", "resize\t1\t0\t0\nreverse\t0\t0\t1\n."] == [one.strip() for one in answers]
