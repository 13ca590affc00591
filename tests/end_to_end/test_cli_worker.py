"""`pyasynq worker` as users run it: a process, a folder with their module, a real server."""

from __future__ import annotations

import json
import re
import signal
from typing import TYPE_CHECKING, Any

import psutil
import pytest

from pyasynq import sync
from tests.worker_process import WorkerProcess

if TYPE_CHECKING:
    from pathlib import Path

    import redis

SHOP = """
import asyncio
import logging
from contextlib import asynccontextmanager

from pyasynq import App, context

log = logging.getLogger("shop")


@asynccontextmanager
async def life(app):
    log.info("opened")
    yield "state"
    log.info("closed")


app = App(lifespan=life)


@app.task("deliver", queue="critical", retention=60)
async def deliver(user_id: int) -> str:
    log.info("VERSION %s on %s", context().state, type(asyncio.get_running_loop()).__module__)
    return f"Grüße {user_id}"


@app.task("chain")
def chain(user_id: int) -> None:
    log.info("in a thread")
    deliver.enqueue_sync(user_id)


@app.task("chain-async")
async def chain_async(user_id: int) -> None:
    await deliver.enqueue(user_id)


@app.task("forget")
async def forget() -> str:
    return "not kept"


@app.task("odd", retention=60)
async def odd() -> object:
    return object()


@app.task("fail")
async def fail() -> None:
    raise ValueError("no way")


@app.task("hang")
async def hang() -> None:
    log.info("hanging")
    await asyncio.Event().wait()
"""


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """A user's folder."""
    (tmp_path / "shop.py").write_text(SHOP.replace("VERSION", "version 1"))
    return tmp_path


def enqueue(url: str, task_type: str, payload: bytes = b"{}", queue: str = "default") -> str:
    """Put a task into a queue as another program would, and return its id."""
    with sync.Client(url) as client:
        return client.enqueue(task_type, payload, queue=queue, max_retry=0, retention=60).id


def test_a_burst_runs_what_waits_and_exits(folder: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """Coroutines and threads, tasks that enqueue tasks, results as JSON, the lifespan around all of it."""
    enqueue(redis_url, "chain", b'{"user_id":7}')
    enqueue(redis_url, "chain-async", b'{"user_id":8}')
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--burst") as worker:
        assert 0 == worker.wait()
    results = {redis_client.hget(key, "result") for key in redis_client.scan_iter("asynq:{critical}:t:*")}
    assert {'"Grüße 7"'.encode(), '"Grüße 8"'.encode()} == results
    assert worker.text.index("opened") < worker.text.index("version 1 state") < worker.text.index("closed")
    assert "version 1 state on uvloop" in worker.text
    assert "queues critical=1, default=1" in worker.text


def test_results_are_kept_only_with_retention_and_only_as_json(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """A value that JSON does not support is reported, and the task still succeeds."""
    odd = enqueue(redis_url, "odd")
    with sync.Client(redis_url) as client:
        forgotten = client.enqueue("forget").id
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--burst") as worker:
        assert 0 == worker.wait()
    assert b"completed" == redis_client.hget(f"asynq:{{default}}:t:{odd}", "state")
    assert not redis_client.hexists(f"asynq:{{default}}:t:{odd}", "result")
    assert not redis_client.exists(f"asynq:{{default}}:t:{forgotten}")
    assert "the result of task 'odd': JSON cannot carry object" in worker.text


def test_a_payload_that_does_not_fit_fails_naming_the_argument(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """An ordinary failure; the log never shows the value."""
    task_id = enqueue(redis_url, "deliver", b'{"user_id":"secret"}')
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--burst") as worker:
        assert 0 == worker.wait()
    assert "PayloadDecodingError: task 'deliver', argument user_id: expected int, got text" in worker.text
    assert "secret" not in worker.text
    assert b"archived" == redis_client.hget(f"asynq:{{default}}:t:{task_id}", "state")


def test_a_failure_is_logged_with_the_traceback_of_the_users_code(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """The traceback leaves out the frames of the engine."""
    enqueue(redis_url, "fail")
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--burst") as worker:
        assert 0 == worker.wait()
    assert "ValueError: no way" in worker.text
    assert 'shop.py", line' in worker.text
    assert "pyasynq/_server" not in worker.text


def test_json_logs_are_one_object_a_line_with_the_tasks_fields(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """Also on lines of the user's own loggers, and in threads."""
    task_id = enqueue(redis_url, "chain", b'{"user_id":7}')
    arguments = ["worker", "shop:app", "--burst", "--log-format", "json", "--log-level", "debug"]
    with WorkerProcess(folder, redis_url, *arguments) as worker:
        assert 0 == worker.wait()
    records = [json.loads(line) for line in worker.lines]
    (in_thread,) = [record for record in records if record["message"] == "in a thread"]
    expected = {"task_id": task_id, "task_type": "chain", "queue": "default", "attempt": 1, "logger": "shop"}
    assert expected.items() <= in_thread.items()
    assert ["shop", "info"] == [in_thread["logger"], in_thread["level"]]
    (opened,) = [record for record in records if record["message"] == "opened"]
    assert "task_id" not in opened


def test_term_stops_it_in_good_order(folder: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """The lifespan is left, and the exit code is 0."""
    with WorkerProcess(folder, redis_url, "worker", "shop:app") as worker:
        worker.wait_for("opened")
        enqueue(redis_url, "deliver", b'{"user_id":1}')
        worker.wait_for("version 1")
        worker.send(signal.SIGTERM)
        assert 0 == worker.wait()
    assert "closed" in worker.text


def test_unfinished_work_is_put_back_with_exit_code_3(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """When the time for it is over."""
    enqueue(redis_url, "hang")
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--shutdown-timeout", "0") as worker:
        worker.wait_for("hanging")
        worker.send(signal.SIGINT)
        assert 3 == worker.wait()
    assert 1 == redis_client.llen("asynq:{default}:pending")


def test_probable_mistakes_in_settings_are_told_at_the_start(
    folder: Path, redis_url: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A misspelt variable, and a weight in the syntax of another library."""
    monkeypatch.setenv("PYASYNQ_CONCURENCY", "3")
    arguments = ["worker", "shop:app", "--queues", "default:2", "--burst"]
    with WorkerProcess(folder, redis_url, *arguments) as worker:
        worker.wait_for(
            "PYASYNQ_CONCURENCY is not a setting and is ignored; did you mean PYASYNQ_CONCURRENCY?"
        )
        worker.wait_for("this worker serves a queue default:2; a weight is written default=2")
        assert 0 == worker.wait()


def test_queues_of_the_app_that_are_not_served_are_named_at_the_start(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """Their tasks would wait for ever."""
    arguments = ["worker", "shop:app", "--queues", "default=2", "--strict", "--burst"]
    with WorkerProcess(folder, redis_url, *arguments) as worker:
        worker.wait_for("tasks of this app go to queues that this worker does not serve: critical; add them")
        worker.wait_for("queues default=2")
        assert 0 == worker.wait()


@pytest.mark.parametrize(("option", "kinds"), [([], []), (["--publish-events"], ["started", "succeeded"])])
def test_a_worker_publishes_events_when_it_is_told_to(
    folder: Path, redis_url: str, redis_client: redis.Redis, option: list[str], kinds: list[str]
) -> None:
    """Off unless asked for."""
    enqueue(redis_url, "deliver", b'{"user_id":7}', queue="critical")
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--burst", *option) as worker:
        assert 0 == worker.wait()
    entries: Any = redis_client.xrange("asynq:{critical}:x:events")
    assert kinds == [json.loads(fields[b"event"])["kind"] for _, fields in entries]


def test_further_modules_declare_tasks(folder: Path, redis_url: str, redis_client: redis.Redis) -> None:
    """The queues of the command line and those that the app names."""
    (folder / "base.py").write_text("from pyasynq import App\napp = App(modules=['one'])\n")
    for name in ("one", "two"):
        (folder / f"{name}.py").write_text(
            "from base import app\n@app.task\nasync def job() -> None:\n    print(__name__, flush=True)\n",
        )
        enqueue(redis_url, f"{name}.job")
    with WorkerProcess(folder, redis_url, "worker", "base:app", "two", "--max-tasks", "2") as worker:
        worker.wait_for("INFO +task types: one.job, two.job$")
        assert 0 == worker.wait()
    assert 2 == redis_client.zcard("asynq:{default}:completed")


@pytest.mark.sample(1)
@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop:ap"], "it has no 'ap'; the apps there are: shop:app; did you mean 'app'?"),
        (["nothing:app"], "Error: there is no module 'nothing'"),
        (["shop:app", "missing"], "Error: there is no module 'missing'"),
        (["shop:app", "--redis", "redis://:secret@127.0.0.1:1"], "Redis at 127.0.0.1:1 cannot be reached"),
    ],
)
def test_what_cannot_start_says_why_in_one_line(folder: Path, arguments: list[str], message: str) -> None:
    """Exit code 1, no traceback, no password."""
    with WorkerProcess(folder, "redis://127.0.0.1:1", "worker", *arguments) as worker:
        assert 1 == worker.wait()
    assert message in worker.text
    assert "Traceback" not in worker.text
    assert "secret" not in worker.text


def test_a_lifespan_that_raises_ends_the_worker_with_its_traceback(folder: Path, redis_url: str) -> None:
    """It is the user's code, and exit code 1."""
    (folder / "bad.py").write_text(
        "from contextlib import asynccontextmanager\nfrom pyasynq import App\n"
        "@asynccontextmanager\nasync def life(app):\n    raise ValueError('no pool')\n    yield\n"
        "app = App(lifespan=life)\n",
    )
    with WorkerProcess(folder, redis_url, "worker", "bad:app") as worker:
        assert 1 == worker.wait()
    assert "ValueError: no pool" in worker.text
    assert 'bad.py", line 5' in worker.text


@pytest.mark.long
def test_reload_restarts_the_worker_when_a_file_changes(
    folder: Path,
    redis_url: str,
    redis_client: redis.Redis,
) -> None:
    """Gracefully; a broken file is waited out, and TERM ends both processes."""
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--reload") as worker:
        worker.wait_for("watching the Python files in")
        worker.wait_for("opened")
        enqueue(redis_url, "deliver", b'{"user_id":1}')
        worker.wait_for("version 1 state")

        (folder / "shop.py").write_text("def (:\n")
        worker.wait_for("shop.py changed: restarting the worker")
        worker.wait_for("Error: .*SyntaxError")
        worker.wait_for("the worker ended with code 1: waiting for a change")
        (folder / "shop.py").write_text(SHOP.replace("VERSION", "version 2"))
        worker.wait_for("shop.py changed")
        worker.wait_for("opened")
        enqueue(redis_url, "deliver", b'{"user_id":2}')
        worker.wait_for("version 2 state")

        worker.send(signal.SIGTERM)
        assert 0 == worker.wait()
    assert 3 == worker.text.count("opened") + worker.text.count("Error: module")
    assert 2 == len(re.findall(r"INFO    closed$", worker.text, re.MULTILINE))


@pytest.mark.parametrize(
    ("number", "options"),
    [
        (signal.SIGKILL, ()),
        pytest.param(signal.SIGKILL, ("--processes", "1"), marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, (), marks=pytest.mark.long),
        pytest.param(signal.SIGHUP, ("--processes", "1"), marks=pytest.mark.long),
    ],
)
def test_a_reloaded_worker_ends_with_its_parent(
    folder: Path, redis_url: str, number: signal.Signals, options: tuple[str, ...]
) -> None:
    """For any reason, and with the processes that it has started. (D57)"""
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--reload", *options) as worker:
        worker.wait_for("opened")
        children = psutil.Process(worker.pid).children(recursive=True)
        assert len(children) == 1 + bool(options)
        worker.send(number)
        assert [] == psutil.wait_procs(children, timeout=10)[1]


def test_ping_says_where_redis_is(folder: Path, redis_url: str) -> None:
    """The output also says how long Redis took to answer."""
    with WorkerProcess(folder, redis_url, "ping") as command:
        assert 0 == command.wait()
    assert re.fullmatch(r"Redis at .*\.sock answered in \d+\.\d ms\.\n", command.output)


DICT_CONFIG = """
import logging.config
logging.config.dictConfig({
    "version": 1,
    "formatters": {"own": {"format": "OWN %(task_type)s %(message)s"}},
    "handlers": {"err": {"class": "logging.StreamHandler", "formatter": "own"}},
    "root": {"handlers": ["err"], "level": "INFO"},
})
"""


def test_a_dict_config_of_the_app_neither_silences_the_worker_nor_is_doubled(
    folder: Path, redis_url: str, redis_client: redis.Redis
) -> None:
    """Though it disables the loggers that exist, as it does unless told otherwise. (D27)"""
    (folder / "shop.py").write_text(DICT_CONFIG + SHOP)
    enqueue(redis_url, "fail")
    enqueue(redis_url, "deliver", b'{"user_id":1}', queue="critical")
    with WorkerProcess(folder, redis_url, "worker", "shop:app", "--burst") as worker:
        assert 0 == worker.wait()
    [failure] = [line for line in worker.lines if "failed after" in line]
    assert failure.startswith("OWN fail fail failed after ")
    assert "OWN  worker ended: 1 succeeded, 1 archived in " in worker.text
    assert "succeeded in" not in worker.text
    assert 1 == worker.text.count("opened")
