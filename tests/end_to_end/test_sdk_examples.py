"""Web applications of `examples/` that run a worker of the SDK next to them, as their users start them."""

from __future__ import annotations

import os
import re
import sys
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import httpx
import pytest

from pyasynq.operations import User
from pyasynq.operations import sync as blocking
from tests.fix_worker import Program
from tests.ports import free_port
from tests.waiting import wait_until

if TYPE_CHECKING:
    from collections.abc import Iterator

EXAMPLES = Path(__file__).parents[2] / "examples"
TYPES: dict[str, dict[str, Any]] = {
    "dumpfeature": {"max_run": 1, "max_retry": 0, "retention": 3600},
    "resize": {"max_retry": 0, "timeout": 1},
}
APPLICATIONS = {
    "fastapi": ("uvicorn", "service_fastapi.application:app", "--host", "127.0.0.1"),
    "django": ("uvicorn", "service_django.asgi:application", "--host", "127.0.0.1"),
}

pytestmark = pytest.mark.usefixtures("redis_client")


@dataclass
class Website:
    """A web application of an example, in a process of its own."""

    program: Program
    port: int
    operator: blocking.Operator

    def add(self, path: Path) -> int:
        """Add a data set; return its id, which is also that of its task."""
        answer = httpx.post(f"http://127.0.0.1:{self.port}/datasets", json={"path": str(path)})
        assert 201 == answer.status_code, answer.text
        return int(answer.json()["id"])

    def state(self, dataset: int) -> str:
        """Return the state of a data set, as the application's own database has it."""
        answer = httpx.get(f"http://127.0.0.1:{self.port}/datasets/{dataset}")
        return str(answer.json()["state"])

    def wait_for(self, dataset: int, state: str) -> None:
        """Wait until a data set is in a state."""
        wait_until(lambda: self.state(dataset) == state, f"{state}, but {self.state(dataset)}")


def store_types(operator: blocking.Operator, **types: dict[str, Any]) -> None:
    """Store configurations of task types, as the task service does."""
    for name, content in types.items():
        operator.set_type_configuration(name, {"name": name, **content})


@contextmanager
def starting(name: str, folder: Path, redis_url: str, **environment: str) -> Iterator[Website]:
    """Start an application, and kill it at the end of a block if it still runs."""
    port = free_port()
    settings = {
        "PYTHONPATH": os.pathsep.join([str(EXAMPLES), os.environ.get("PYTHONPATH", "")]),
        "PYASYNQ_REDIS_URL": redis_url,
        "DATASETS_DATABASE": str(folder / "datasets.sqlite"),
        "DJANGO_SETTINGS_MODULE": "service_django.settings",
        **environment,
    }
    module, *arguments = APPLICATIONS[name]
    if name == "django":
        with Program(sys.executable, "-m", "django", "migrate", **settings) as migration:
            assert 0 == migration.end(), migration.text
    with (
        blocking.Operator(redis_url, User.with_role("admin", "admin")) as operator,
        Program(*(sys.executable, "-m", module, *arguments, "--port", str(port)), **settings) as program,
    ):
        yield Website(program, port, operator)


@contextmanager
def running(name: str, folder: Path, redis_url: str, **environment: str) -> Iterator[Website]:
    """Run an application whose task types are stored."""
    with blocking.Operator(redis_url, User.with_role("admin", "admin")) as operator:
        store_types(operator, **TYPES)
    with starting(name, folder, redis_url, **environment) as website:
        website.program.wait_for("Uvicorn running")
        yield website


def make_pipe(folder: Path, name: str) -> Path:
    """Return a file whose reader waits until someone writes."""
    pipe = folder / name
    os.mkfifo(pipe)
    return pipe


def check_endings(website: Website, folder: Path) -> None:
    """Let tasks complete, fail, be killed by an operator and be deleted by hand, and compare their rows."""
    file, pipe = folder / "features", make_pipe(folder, "pipe")
    file.write_text("features", "utf-8")
    operator = website.operator
    completed = website.add(file)
    website.wait_for(completed, "succeeded")
    archived = website.add(folder / "missing")
    website.wait_for(archived, "archived")
    killed = website.add(pipe)
    website.wait_for(killed, "running")
    deleted = website.add(file)
    operator.delete_task("dumpfeature", str(deleted), reason="test")
    website.wait_for(deleted, "deleted")
    operator.cancel_task("dumpfeature", str(killed), "archive", reason="test")
    website.wait_for(killed, "archived")
    pipe.write_text("go on", "utf-8")
    assert "succeeded" == website.state(completed)


@pytest.mark.parametrize("name", ["fastapi", pytest.param("django", marks=pytest.mark.long)])
def test_a_row_of_the_caller_ends_right_for_each_ending(name: str, tmp_path: Path, redis_url: str) -> None:
    """The rows are in the caller's database."""
    with running(name, tmp_path, redis_url) as website:
        check_endings(website, tmp_path)
        website.program.terminate()
    log = website.program.text
    places = [
        log.index("task of type dumpfeature"),
        log.index("task 1 begins"),
        log.index("data set 1 has 8"),
    ]
    assert sorted(places) == places, "the middlewares run in their order"
    assert re.search(r"task 1 succeeded after \d", log)


@pytest.mark.long
def test_rows_end_right_over_http_too(tmp_path: Path, redis_url: str) -> None:
    """The application leases its tasks from a task service, and needs no Redis; it ends in good order."""
    port = free_port()
    file = tmp_path / "service.toml"
    file.write_text(
        f'[service]\nredis = "{redis_url}"\nlisten = "127.0.0.1:{port}"\n[tasks.resize]\n'
        "[tasks.dumpfeature]\nmax_run = 1\nmax_retry = 0\n[tasks.starmap-finished]\n",
        "utf-8",
    )
    address = f"http://127.0.0.1:{port}"
    with Program(sys.executable, "-m", "pyasynq", "service", str(file)) as service:
        wait_until(lambda: service.has_ended or is_ready(address))
        with starting("fastapi", tmp_path, redis_url, TASK_SERVICE=address) as website:
            website.program.wait_for("Uvicorn running")
            check_endings(website, tmp_path)
            website.program.terminate()
    assert "Application shutdown complete" in website.program.text


def is_ready(address: str) -> bool:
    """Return whether a service answers and is ready."""
    try:
        return httpx.get(f"{address}/ready").is_success
    except httpx.TransportError:
        return False


@pytest.mark.parametrize("name", ["fastapi", pytest.param("django", marks=pytest.mark.long)])
def test_max_run_changes_while_the_application_runs(name: str, tmp_path: Path, redis_url: str) -> None:
    """One task at once, then two; nothing is restarted."""
    pipes = [make_pipe(tmp_path, f"pipe-{number}") for number in range(3)]
    with running(name, tmp_path, redis_url) as website:
        tasks = [website.add(pipe) for pipe in pipes]

        def count_running() -> int:
            return [website.state(task) for task in tasks].count("running")

        wait_until(lambda: count_running() == 1)
        store_types(website.operator, dumpfeature={**TYPES["dumpfeature"], "max_run": 2})
        wait_until(lambda: count_running() == 2)
        assert 1 == [website.state(task) for task in tasks].count("queued")
        for pipe in pipes:
            pipe.write_text("go on", "utf-8")
        for task in tasks:
            website.wait_for(task, "succeeded")


@pytest.mark.parametrize("name", ["fastapi", pytest.param("django", marks=pytest.mark.long)])
def test_the_process_ends_with_the_reason_when_the_worker_cannot_start(
    name: str, tmp_path: Path, redis_url: str
) -> None:
    """Nothing is configured in this Redis."""
    with starting(name, tmp_path, redis_url) as website:
        assert 0 != website.program.end()
    assert "'dumpfeature' is not a configured task type" in website.program.text


@pytest.mark.parametrize("name", ["fastapi", pytest.param("django", marks=pytest.mark.long)])
def test_the_process_ends_with_the_reason_when_the_worker_dies_later(
    name: str, tmp_path: Path, redis_url: str
) -> None:
    """A plain handler that cannot be stopped holds the only slot, far over its time."""
    pipe = make_pipe(tmp_path, "pipe")
    settings = {"WORKER_CONCURRENCY": "1", "WORKER_OVERDUE_LIMIT": "0.1"}
    with running(name, tmp_path, redis_url, **settings) as website:
        answer = httpx.post(f"http://127.0.0.1:{website.port}/pictures", json={"path": str(pipe)})
        assert answer.is_success, answer.text
        assert 0 != website.program.end()
    text = website.program.text
    assert "the worker has died, and this process ends with it" in text
    assert "Application shutdown complete" in text, "the web server has ended in good order"


def test_the_program_of_the_page_does_what_it_says(tmp_path: Path, redis_url: str) -> None:
    """As it is printed, apart from the address of Redis."""
    page = (EXAMPLES.parent / "docs" / "sdk.md").read_text("utf-8")
    [program] = re.findall(r"^```python\n(# website.py\n.*?)^```$", page, re.DOTALL | re.MULTILINE)
    assert program.count("redis://localhost:6379/0") == 1
    (tmp_path / "website.py").write_text(program.replace("redis://localhost:6379/0", redis_url), "utf-8")
    port = free_port()
    with blocking.Operator(redis_url, User.with_role("admin", "admin")) as operator:
        store_types(operator, dumpfeature={})
    command = (sys.executable, "-m", "uvicorn", "website:app", "--port", str(port))
    path = os.pathsep.join([str(tmp_path), os.environ.get("PYTHONPATH", "")])
    with Program(*command, PYTHONPATH=path) as website:
        website.wait_for("Uvicorn running")
        answer = httpx.post(f"http://127.0.0.1:{port}/datasets/7")
        assert {"existing": False} == answer.json()
        website.wait_for("task 7 has succeeded")
        website.terminate()
    printed = [line for line in website.lines if re.match("before|dumping|task", line)]
    assert ["before dumpfeature", "dumping /tmp/7 for task 7", "task 7 has succeeded"] == printed
