"""The programs in `examples/` do what they say."""

from __future__ import annotations

import ast
import os
import sqlite3
import subprocess
import sys
from contextlib import closing, suppress
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.waiting import wait_until
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    import redis

ROOT = Path(__file__).parent.parent.parent
EXAMPLES = ROOT / "examples"


def run(program: Path | str, folder: Path, url: str = "") -> str:
    """Run a Python program in a folder, and return what it prints."""
    path = os.pathsep.join([str(ROOT / "src"), str(EXAMPLES)])
    arguments = [str(program)] if isinstance(program, Path) else ["-c", program]
    done = subprocess.run(
        [sys.executable, *arguments],
        cwd=folder,
        env={**os.environ, "PYTHONPATH": path, "PYASYNQ_REDIS_URL": url},
        capture_output=True,
        text=True,
        check=False,
    )
    assert 0 == done.returncode, done.stderr
    return done.stdout


def results(client: redis.Redis, queue: str) -> set[Any]:
    """Return the results of a queue's completed tasks."""
    return {client.hget(key, "result") for key in client.scan_iter(f"asynq:{{{queue}}}:t:*")}


@pytest.mark.every_run("the shop is what newcomers start first")
def test_the_shop_works_as_a_user_starts_it(
    tmp_path: Path, redis_url: str, redis_client: redis.Redis, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One worker without flags: an order is confirmed, paid and told, and a report is built."""
    database = tmp_path / "shop.sqlite"
    monkeypatch.setenv("SHOP_DATABASE", str(database))
    run(ORDER, tmp_path, redis_url)
    with WorkerProcess(EXAMPLES, redis_url, "worker", "shop:app") as worker:
        wait_until(lambda: read_state(database) == "paid")
        wait_until(lambda: b'"25.00"' in results(redis_client, "critical"))
        wait_until(lambda: any(b"2026-12" in (one or b"") for one in results(redis_client, "default")))
        worker.terminate()
        assert 0 == worker.wait()


ORDER = """
from pyasynq import Secret
from shop.models import ByCard, Line, Money
from shop.tasks import build_report, confirm

confirm.enqueue_sync(1, [Line("book", Money(1250), 2)], ByCard(Secret("tok-42")))
build_report.enqueue_sync(2026)
"""


def read_state(database: Path) -> str:
    """Return the state of order 1."""
    with closing(sqlite3.connect(database)) as connection, suppress(sqlite3.OperationalError):
        return "".join(state for (state,) in connection.execute("SELECT state FROM orders WHERE id = 1"))
    return ""


@pytest.mark.long
def test_the_tests_of_the_shop_pass(tmp_path: Path) -> None:
    """They need neither Redis nor a worker."""
    arguments = ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(tmp_path)]
    program = (
        f"import pytest; raise SystemExit(pytest.main({[*arguments, str(EXAMPLES / 'shop' / 'tests')]}))"
    )
    assert "10 passed" in run(program, tmp_path)


SHOWN = {
    *("App", "AttemptEnd", "Archive", "Queue", "RedisError", "Retry", "SchedulerConfig", "Secret", "Task"),
    *("TaskContext", "TaskFailedError", "TaskNotFoundError", "TypedCall", "WaitTimeoutError", "WorkerConfig"),
    *("context", "depends", "instrument", "is_control", "use", "Annotated"),
    *("app.cron", "app.state", "app.task", "app.type_codec", "app.use", "app.use_client"),
    *("app.on_archived", "app.on_error", "app.on_retry", "app.on_success"),
    *("app.on_worker_start", "app.on_worker_stop"),
    *("task.aggregator", "task.enqueue", "task.enqueue_many", "task.handle", "task.options", "task.use"),
    *("task.with_headers", "task.with_options"),
    *("handle.cancel", "handle.progress", "handle.reschedule", "handle.result", "handle.run_now"),
    *("handle.state", "call.apply", "call.arguments", "context.progress", "cancelled.reason"),
    *("kit.advance_sync", "kit.assert_enqueued", "kit.drain", "kit.drain_sync", "kit.eager"),
    *("kit.override", "kit.perform_sync"),
    *("App(lifespan=)", "App(version=)", "WorkerConfig(statistics=)", "WorkerConfig(with_scheduler=)"),
    *("Queue(max_run=)", "Queue(rate=)", "aggregator(max_size=)", "cron(misfire=)", "depends(per=)"),
    *("instrument(check_ins=)", "options(group=)", "with_options(once_for=)"),
    *("task(executor=)", "task(max_retry=)", "task(middleware=)", "task(on_finished=)", "task(ordered=)"),
    *("task(result_ttl=)", "task(timeout=)", "task(unique=)"),
}
"""Features of the shop: imported names, attributes with their owner, and keywords with what is called."""


def find_owner(node: ast.expr, tasks: set[str]) -> str:
    """Return the last name of a variable, an attribute or a called function; `task` for a task of the app."""
    if isinstance(node, ast.Call):
        return find_owner(node.func, tasks)
    name = node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
    return "task" if name in tasks else name


def find_used(trees: list[ast.Module]) -> set[str]:
    """Return what programs use, in the form of `SHOWN`."""
    nodes = [node for tree in trees for node in ast.walk(tree)]
    tasks = {
        node.name
        for node in nodes
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef)
        if any(
            isinstance(one, ast.Call) and ast.unparse(one.func) == "app.task" for one in node.decorator_list
        )
    }
    used: set[str] = set()
    for node in nodes:
        if isinstance(node, ast.ImportFrom):
            used |= {alias.name for alias in node.names}
        elif isinstance(node, ast.Attribute):
            used.add(f"{find_owner(node.value, tasks)}.{node.attr}")
        elif isinstance(node, ast.Call):
            used |= {f"{find_owner(node.func, tasks)}({one.arg}=)" for one in node.keywords}
    return used


def test_the_shop_shows_what_an_application_uses() -> None:
    """A reader who looks for a feature finds it used there."""
    trees = [ast.parse(path.read_text("utf-8")) for path in (EXAMPLES / "shop").rglob("*.py")]
    assert set() == SHOWN - find_used(trees)


def test_a_word_that_something_else_has_is_not_shown() -> None:
    """A method of another object, and a keyword of another function, do not count."""
    tree = ast.parse("@app.task('t')\ndef t(): ...\nother.on_error(f)\nt.enqueue()\nother(on_finished=t)")
    assert {"app.task", "other.on_error", "task.enqueue", "other(on_finished=)"} == find_used([tree])


def test_the_script_needs_no_server(tmp_path: Path) -> None:
    """It starts one for itself, and runs what it has enqueued."""
    printed = run(EXAMPLES / "script.py", tmp_path)
    assert "3 tasks enqueued" in printed
    assert {"1 words", "2 words", "3 words"} < set(printed.splitlines())


def test_the_reports_and_sweeps_of_the_night_are_scheduled(tmp_path: Path, redis_url: str) -> None:
    """Three entries; the worker serves their queues."""
    program = "from nightly import app; print(len(app.scheduler().entries), *app.queues)"
    assert "3 default low\n" == run(program, tmp_path, redis_url)


def test_the_tenant_travels_with_the_task(tmp_path: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """Through client middleware, a header, middleware and the lifespan's state."""
    run("import middleware as m; m.tenant.set('acme'); m.greet.enqueue_sync('Ada')", tmp_path, redis_url)
    with WorkerProcess(EXAMPLES, redis_url, "worker", "middleware:app", "--burst") as worker:
        assert 0 == worker.wait()
    assert {b'"Howdy Ada"'} == results(redis_client, "default")
