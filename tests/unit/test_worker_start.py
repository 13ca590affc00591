"""The start of `pyasynq worker`: settings of four places together, up to the moment the worker runs."""

from __future__ import annotations

import os
import socket
import sys
from typing import TYPE_CHECKING

import pytest
from click.testing import CliRunner

from pyasynq import Queue
from pyasynq.cli import main

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path

    from click.testing import Result

    from pyasynq import WorkerConfig

APP = """
from pyasynq import App, WorkerConfig
app = App('redis://localhost:1'{options})
@app.task('mailing', queue='mail')
async def mailing() -> None: ...
"""


class Starts:
    """Calls of `pyasynq worker` that end where the worker would run; `configs` has its settings."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.configs: list[WorkerConfig] = []
        self.write()

    def write(self, *, app: str = "", file: str = "") -> None:
        """Write the app with these arguments, and the file with these settings."""
        (self.folder / "started_app.py").write_text(APP.format(options=f", {app}" if app else ""))
        (self.folder / "pyproject.toml").write_text(f"[tool.pyasynq]\n{file}\n")

    def __call__(self, *arguments: str) -> Result:
        """Return what the command has printed, and its exit code."""
        return CliRunner().invoke(main, ["worker", "started_app:app", "--no-logging", *arguments])


@pytest.fixture
def start(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Starts:
    """Return the command, with an app of a task in the queue `mail`."""
    starts = Starts(tmp_path)

    def run(_app: object, config: WorkerConfig, _link: object) -> int:
        starts.configs.append(config)
        return 0

    monkeypatch.setattr("pyasynq.cli.worker_start._work", run)
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "started_app", raising=False)
    return starts


def give_flags(_: pytest.MonkeyPatch, start: Starts, max_run: str, rate: str, ordered: str) -> Result:
    """Give the limits of queues by flags."""
    return start("--queue-max-run", max_run, "--queue-rate", rate, "--queue-ordered", ordered)


def give_variables(
    monkeypatch: pytest.MonkeyPatch, start: Starts, max_run: str, rate: str, ordered: str
) -> Result:
    """Give the limits of queues by environment variables."""
    monkeypatch.setenv("PYASYNQ_QUEUE_MAX_RUN", max_run)
    monkeypatch.setenv("PYASYNQ_QUEUE_RATE", rate)
    monkeypatch.setenv("PYASYNQ_QUEUE_ORDERED", ordered)
    return start()


@pytest.mark.parametrize("give", [give_flags, give_variables])
@pytest.mark.parametrize(
    ("app", "file"),
    [("queues={'slow': 1}", ""), ("", "[tool.pyasynq.queues]\nmail = 1\nslow = 1\ndefault = 1")],
    ids=["app", "file"],
)
def test_limits_are_for_queues_of_the_app_and_of_the_file(
    start: Starts, monkeypatch: pytest.MonkeyPatch, give: Callable[..., Result], app: str, file: str
) -> None:
    """They need not be repeated with `--queues`."""
    start.write(app=app, file=file)
    result = give(monkeypatch, start, "mail=5", "mail=50/s,default=1/m", "slow")
    assert (0, "") == (result.exit_code, result.stderr)
    [config] = start.configs
    assert {
        "mail": Queue(max_run=5, rate=50),
        "default": Queue(rate=1, period=60),
        "slow": Queue(ordered=True),
    } == config.queues


@pytest.mark.parametrize("give", [give_flags, give_variables])
def test_a_limit_of_a_queue_that_no_place_names_is_refused(
    start: Starts, monkeypatch: pytest.MonkeyPatch, give: Callable[..., Result]
) -> None:
    """A misspelt name would limit nothing."""
    result = give(monkeypatch, start, "mial=5", "mail=1/s", "mail")
    assert 2 == result.exit_code
    assert "the queue 'mial' has a limit and is not served" in " ".join(result.stderr.split())


@pytest.mark.parametrize(
    ("app", "file"),
    [("worker=WorkerConfig(health_port=8080)", ""), ("", "health_port = 8080")],
    ids=["app", "file"],
)
@pytest.mark.parametrize(
    ("arguments", "variables"),
    [(("--metrics",), {}), ((), {"PYASYNQ_METRICS": "1"})],
    ids=["flag", "variable"],
)
def test_metrics_are_answered_at_the_port_of_the_app_or_the_file(
    start: Starts,
    monkeypatch: pytest.MonkeyPatch,
    app: str,
    file: str,
    arguments: Sequence[str],
    variables: dict[str, str],
) -> None:
    """Only all places together show whether a port is missing."""
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    start.write(app=app, file=file)
    result = start(*arguments)
    assert (0, "") == (result.exit_code, result.stderr)
    assert [(True, 8080)] == [(config.metrics, config.health_port) for config in start.configs]


@pytest.mark.parametrize(
    ("app", "arguments"),
    [
        ("", ("--metrics",)),
        ("worker=WorkerConfig(metrics=True)", ()),
        ("worker=WorkerConfig(metrics=True, health_port=1)", ("--health-port", "none")),
    ],
)
def test_metrics_without_a_port_are_refused(start: Starts, app: str, arguments: Sequence[str]) -> None:
    """They would be answered nowhere."""
    start.write(app=app)
    result = start(*arguments)
    assert (2, []) == (result.exit_code, start.configs)
    assert "give --health-port as well" in " ".join(result.stderr.split())


def test_metrics_of_a_reloading_worker_wait_for_the_port_of_the_app(
    start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The parent of a reload never imports the app."""
    monkeypatch.setattr("pyasynq.cli.worker_start.run_with_reload", lambda *_: 0)
    assert 0 == start("--reload", "--metrics").exit_code


@pytest.mark.parametrize(
    ("app", "file"), [("worker=WorkerConfig(burst=True)", ""), ("", "burst = true")], ids=["app", "file"]
)
def test_the_child_of_a_reload_refuses_the_burst_of_app_and_file(
    start: Starts, monkeypatch: pytest.MonkeyPatch, app: str, file: str
) -> None:
    """Its parent waits for changes, and it would exit."""
    monkeypatch.setattr("pyasynq.cli.worker_start.end_with_parent", os.close)
    start.write(app=app, file=file)
    ours, theirs = socket.socketpair()
    with ours, theirs:
        result = start("--parent", str(theirs.fileno()))
    assert (2, []) == (result.exit_code, start.configs)
    assert "--reload waits for changes and --burst exits" in " ".join(result.stderr.split())


def test_show_config_warns_of_misspelt_variables(start: Starts, monkeypatch: pytest.MonkeyPatch) -> None:
    """Standard output has the settings alone, for programs."""
    monkeypatch.setenv("PYASYNQ_CONCURENCY", "3")
    result = start("--show-config")
    told = "PYASYNQ_CONCURENCY is not a setting and is ignored; did you mean PYASYNQ_CONCURRENCY?"
    assert (0, f"Warning: {told}\n") == (result.exit_code, result.stderr)
    assert "CONCURENCY" not in result.stdout


@pytest.mark.parametrize("flag", ["-V", "--version"])
def test_the_worker_prints_the_version_as_pyasynq_does(flag: str) -> None:
    """Neither needs an app."""
    of_worker = CliRunner().invoke(main, ["worker", flag])
    of_pyasynq = CliRunner().invoke(main, [flag])
    assert (0, of_pyasynq.output) == (of_worker.exit_code, of_worker.output)
    assert of_worker.output.startswith("pyasynq ")


NOT_USED = "is not used: the app has a URL of its own (localhost:1, database 0); --redis overrides it"


@pytest.mark.parametrize(
    ("variable", "told"),
    [
        (
            "redis://me:secret@there:2/3",
            f"PYASYNQ_REDIS_URL (there:2, database 3) {NOT_USED}",
        ),
        (
            "secret",
            f"PYASYNQ_REDIS_URL {NOT_USED}",
        ),
        ("redis://me:secret@localhost:1", ""),
        ("", ""),
    ],
)
def test_a_variable_with_another_url_than_that_of_the_app_is_a_warning(
    start: Starts,
    monkeypatch: pytest.MonkeyPatch,
    caplog: pytest.LogCaptureFixture,
    variable: str,
    told: str,
) -> None:
    """The worker would take tasks from another Redis than meant. Passwords are not shown."""
    monkeypatch.setenv("PYASYNQ_REDIS_URL", variable)
    assert (0, f"Warning: {told}\n" if told else "") == (
        (shown := start("--show-config")).exit_code,
        shown.stderr,
    )
    assert (0, [told] if told else []) == (start().exit_code, caplog.messages)
    caplog.clear()
    assert (0, []) == (start("--redis", "redis://here:4").exit_code, caplog.messages)


def test_an_app_without_a_url_takes_that_of_the_variable_silently(
    start: Starts, monkeypatch: pytest.MonkeyPatch
) -> None:
    """This is what the variable is for."""
    (start.folder / "started_app.py").write_text("from pyasynq import App\napp = App()\n")
    monkeypatch.setenv("PYASYNQ_REDIS_URL", "redis://there:2")
    result = start("--show-config")
    assert (0, "") == (result.exit_code, result.stderr)
    assert "there:2" in result.stdout


@pytest.mark.parametrize(
    ("second", "message"),
    [
        ("@app.task('a')", "two tasks have the type 'a': started_app.one "),
        ("@app.task('b', queue='a', max_run=2)", "queue 'a' has max_run=1 by task 'a', and task 'b' says"),
    ],
)
def test_declarations_that_exclude_each_other_are_one_sentence(
    start: Starts, second: str, message: str
) -> None:
    """It begins with file and line, and has no traceback."""
    text = "from pyasynq import App\napp = App()\n@app.task('a', max_run=1)\ndef one() -> None: ...\n"
    (start.folder / "started_app.py").write_text(f"{text}{second}\ndef two() -> None: ...\n")
    result = start()
    assert 1 == result.exit_code
    [line] = result.stderr.splitlines()
    assert line.startswith(f"Error: started_app.py:5: {message}")
