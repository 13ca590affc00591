"""The service as a process: both parts at one address, reload, several processes, and a clean shutdown."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pyasynq.cli.service_server import build_site, find_changed_settings
from pyasynq.gateway.configurations import parse_service_file
from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from tests.ports import free_port
from tests.run_async import run_async
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

ADMIN = User.with_role("root", "admin")


@dataclass
class Service:
    """A running service: its process, its address, its file, and the lines that it has logged."""

    process: subprocess.Popen[str]
    address: str
    file: Path
    lines: list[str] = field(default_factory=list)

    def get(self, path: str, **options: Any) -> httpx.Response:
        """Send a request."""
        return httpx.get(self.address + path, timeout=30, **options)

    def status(self, path: str) -> int:
        """Return the status of a path; 0 while nothing answers."""
        try:
            return self.get(path).status_code
        except httpx.TransportError:
            return 0

    def logs(self, text: str) -> bool:
        """Return whether a line has a text."""
        return any(text in line for line in list(self.lines))

    def end(self) -> int:
        """Send TERM, and return the exit code."""
        self.process.send_signal(signal.SIGTERM)
        return self.process.wait(40)


def write(file: Path, port: int, redis: str, more: str = "", tasks: str = "max_run = 2") -> None:
    """Write a file of the service."""
    file.write_text(
        f'[service]\nredis = "{redis}"\nlisten = "127.0.0.1:{port}"\n{more}\n[tasks.resize]\n{tasks}\n',
        "utf-8",
    )


@contextlib.contextmanager
def running(folder: Path, redis: str, *arguments: str, more: str = "") -> Iterator[Service]:
    """Run the service for the time of a block."""
    port = free_port()
    file = folder / "service.toml"
    write(file, port, redis, more)
    command = [sys.executable, "-m", "pyasynq", "service", str(file), *arguments]
    with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
        service = Service(process, f"http://127.0.0.1:{port}", file)

        reader = threading.Thread(target=_collect, args=(process, service.lines), daemon=True)
        reader.start()
        try:
            wait_until(lambda: service.status("/ready") == 200 or process.poll() is not None)
            assert process.poll() is None, service.lines
            yield service
        finally:
            if process.poll() is None:
                process.kill()
            process.wait()
            reader.join()


def _collect(process: subprocess.Popen[str], lines: list[str]) -> None:
    assert process.stderr is not None
    lines.extend(iter(process.stderr.readline, ""))


def test_the_dashboard_is_at_the_same_address(tmp_path: Path, redis_url: str) -> None:
    """With its pages, its API and its live events; the probe `/live` is the service's."""
    with running(tmp_path, redis_url) as service:
        assert "<html" in service.get("/").text
        assert 200 == service.status("/api/v1/queues")
        assert {"status": "live"} == service.get("/live").json()
        events = {"accept": "text/event-stream"}
        with httpx.stream("GET", f"{service.address}/live?page=/queues", headers=events) as stream:
            assert stream.headers["content-type"].startswith("text/event-stream")
            assert 0 == service.end(), "an open page does not keep the service from its end"


@pytest.mark.parametrize(
    ("arguments", "more", "page", "api"),
    [
        (["--only", "api"], "", 404, 200),
        (["--only", "dashboard"], "", 200, 404),
        (["--only", "hosted"], "", 404, 404),
        ([], "dashboard = false", 404, 200),
    ],
)
def test_one_part_runs_alone(
    tmp_path: Path, redis_url: str, arguments: list[str], more: str, page: int, api: int
) -> None:
    """By the option, or by the file; probes answer in each case."""
    with running(tmp_path, redis_url, *arguments, more=more) as service:
        assert (page, api) == (service.status("/queues"), service.status("/v1/task-types"))
        assert (200, 200) == (service.status("/live"), service.status("/ready"))
        assert 0 == service.end()


def test_people_sign_in_with_a_password(tmp_path: Path, redis_url: str) -> None:
    """The file of passwords is named relative to the service's file."""
    command = [sys.executable, "-m", "pyasynq", "web", "passwd", "mira", "--auth", str(tmp_path / "people")]
    subprocess.run(command, input="correct horse\n", text=True, check=True, capture_output=True)
    with running(tmp_path, redis_url, more='people = "people"') as service:
        assert (303, 200) == (service.status("/queues"), service.status("/login"))


def test_hup_reads_the_file_again(tmp_path: Path, redis_url: str) -> None:
    """A wrong one changes nothing and says why; what needs a new process is named."""
    with running(tmp_path, redis_url) as service, blocking.Operator(redis_url, ADMIN) as operator:
        port = int(service.address.rpartition(":")[2])
        write(service.file, port, redis_url, tasks="max_rnu = 7")
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: service.logs("not reloaded, and nothing has changed"))
        assert service.logs("tasks.resize.max_rnu")
        assert 2 == service.get("/v1/task-types/resize").json()["max_run"]

        write(service.file, port + 1, redis_url, more='max_body = "2M"', tasks="max_run = 7")
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: service.logs("restart the service for that"))
        assert service.logs("service.listen, service.max_body changed")
        assert 7 == service.get("/v1/task-types/resize").json()["max_run"]
        stored = operator.type_configuration("resize")
        assert stored is not None
        assert 7 == stored.content["max_run"]
        assert 0 == service.end()


def test_settings_that_need_a_new_process_are_named() -> None:
    """Host and port are one setting; hosts and commands are others; equal files have none."""
    one, other = (
        parse_service_file(
            {"service": {"listen": listen, "max_body": size}, "hosts": hosts, "commands": commands}
        )
        for listen, size, hosts, commands in (
            ("127.0.0.1:1", 5, {}, {}),
            ("127.0.0.1:2", 6, {"a.example": {"ports": [444]}}, {"concurrency": 3}),
        )
    )
    assert ["service.listen", "service.max_body", "hosts", "commands"] == find_changed_settings(one, other)
    assert [] == find_changed_settings(one, one)


@run_async
async def test_the_dashboard_of_a_service_knows_its_proxies_and_its_commands() -> None:
    """The service's own commands only if this process runs a service."""
    file = parse_service_file({"service": {"trusted_proxies": ["10.0.0.0/8", "10.1.2.3"]}})
    for parts in ({"dashboard"}, {"dashboard", "api", "hosted"}):
        site = build_site(file, frozenset(parts))
        assert site.dashboard is not None
        assert ("10.0.0.0/8", "10.1.2.3/32") == site.dashboard.settings.trusted_proxies
        assert site.api is site.dashboard.settings.commands
        await site.close()


def test_term_answers_waiting_requests_and_lets_others_end(tmp_path: Path, redis_url: str) -> None:
    """No poll is cut off, and no request; the exit code is 0."""
    with running(tmp_path, redis_url) as service:
        answers: list[int] = []
        ask = {"queues": ["resize"], "wait": 55, "worker": {"name": "w"}}

        def poll() -> None:
            answers.append(httpx.post(f"{service.address}/v1/leases", json=ask, timeout=60).status_code)

        polls = [threading.Thread(target=poll) for _ in range(5)]
        for one in polls:
            one.start()
        with blocking.Operator(redis_url, ADMIN) as operator:
            wait_until(lambda: [5] == [worker.parked for worker in operator.lease_workers()])
        # A request whose body is still on its way.
        status = asyncio.run(_end_with_open_request(service))
        for one in polls:
            one.join()
        assert [204] * 5 == answers
        assert 201 == status
        assert 0 == service.process.wait(40)
        assert service.logs("5 waiting requests answered")
        assert service.logs("the service has ended")


async def _end_with_open_request(service: Service) -> int:
    """Send TERM while a request is being sent; return the status of its answer."""
    host, port = service.address.removeprefix("http://").split(":")
    reader, writer = await asyncio.open_connection(host, int(port))
    head = b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
    writer.write(head + b'Content-Length: 18\r\n\r\n{"typ')
    await writer.drain()
    # This answer comes after the server has read the other request's head.
    assert 200 == await asyncio.to_thread(service.status, "/live")
    service.process.send_signal(signal.SIGTERM)
    await asyncio.to_thread(wait_until, lambda: service.logs("the service ends"))
    writer.write(b'e": "resize"}')
    line = await reader.readline()
    writer.close()
    return int(line.split()[1])


def test_a_balancer_sees_the_end_before_it_comes(tmp_path: Path, redis_url: str) -> None:
    """For the time of `drain` requests are taken, and `/ready` says 503; a second signal ends that."""
    with running(tmp_path, redis_url, more='drain = "5m"') as service:
        service.process.send_signal(signal.SIGTERM)
        wait_until(lambda: service.status("/ready") == 503)
        assert 201 == httpx.post(f"{service.address}/v1/tasks", json={"type": "resize"}).status_code
        assert 0 == service.end()


def test_a_second_signal_waits_for_nothing(tmp_path: Path, redis_url: str) -> None:
    """An open request has 30 s otherwise."""
    with running(tmp_path, redis_url) as service:
        host, port = service.address.removeprefix("http://").split(":")

        async def ask() -> None:
            _, writer = await asyncio.open_connection(host, int(port))
            writer.write(b"POST /v1/tasks HTTP/1.1\r\nHost: localhost\r\nContent-Length: 9\r\n\r\n{")
            await writer.drain()
            # This answer comes after the server has read the other request's head.
            assert 200 == await asyncio.to_thread(service.status, "/live")
            service.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(wait_until, lambda: service.logs("the service ends"))
            service.process.send_signal(signal.SIGTERM)
            await asyncio.to_thread(service.process.wait, 20)
            writer.close()

        asyncio.run(ask())
        assert service.logs("a second signal")
        assert 0 == service.process.returncode


@pytest.mark.long
def test_several_processes_share_the_address(tmp_path: Path, redis_url: str) -> None:
    """One that dies is replaced, a wrong file stops a reload, and TERM ends all of them."""
    health = free_port()
    with running(tmp_path, redis_url, "--processes", "2", more=f'health = "127.0.0.1:{health}"') as service:

        def pids() -> set[int]:
            answer = httpx.get(f"http://127.0.0.1:{health}/ready").json()
            return {one["pid"] for one in answer["workers"] if one["state"] == "active"}

        wait_until(lambda: len(pids()) == 2)
        before = pids()
        os.kill(min(before), signal.SIGKILL)
        wait_until(lambda: len(pids()) == 2 and min(before) not in pids())
        assert 201 == httpx.post(f"{service.address}/v1/tasks", json={"type": "resize"}).status_code
        assert 404 == service.status("/metrics"), "one process knows its own numbers alone"
        counted = 'pyasynq_service_requests_total{route="/v1/tasks",method="POST",status="201"} 1'
        wait_until(lambda: counted in httpx.get(f"http://127.0.0.1:{health}/metrics").text)
        port = int(service.address.rpartition(":")[2])
        kept = pids()
        write(service.file, port, redis_url, tasks="max_rnu = 7")
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: service.logs("the reload is cancelled"))
        assert kept == pids()
        write(service.file, port, redis_url, f'health = "127.0.0.1:{health}"', tasks="max_run = 7")
        service.process.send_signal(signal.SIGHUP)
        wait_until(lambda: len(pids()) == 2 and not kept & pids())
        assert 7 == service.get("/v1/task-types/resize").json()["max_run"]
        assert 0 == service.end()
        assert service.logs("worker 1")
        assert service.logs("worker 2")
