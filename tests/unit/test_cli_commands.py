"""The command line without a server: help, versions, wrong usage."""

from __future__ import annotations

import logging
import re
import sys
from typing import TYPE_CHECKING

import click
import pytest
from click.testing import CliRunner

from pyasynq._human_text import some
from pyasynq.cli import main
from pyasynq.cli.commands import _SHORT_HELP
from pyasynq.cli.reload import run_with_reload

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence
    from pathlib import Path


@pytest.fixture(autouse=True)
def outcome_logger() -> Iterator[None]:
    """Commands choose the level of this logger."""
    logger = logging.getLogger("pyasynq.outcomes")
    level = logger.level
    yield
    logger.setLevel(level)


def invoke(*arguments: str) -> tuple[int, str, str]:
    """Run `pyasynq` in this process; return exit code, standard output and standard error."""
    result = CliRunner().invoke(main, arguments)
    return result.exit_code, result.stdout, result.stderr


def test_help_names_the_commands() -> None:
    """Each with its first sentence."""
    code, out, _ = invoke("--help")
    assert 0 == code
    assert re.search(r"worker +Run the tasks of an app", out)
    assert re.search(r"ping +Send PING to Redis", out)


def test_the_help_of_pyasynq_says_what_each_command_says_of_itself() -> None:
    """The list of commands is written without importing them, so it holds a copy of their first sentences.

    Defect D41.
    """
    context = click.Context(main)
    commands = {name: main.get_command(context, name) for name in main.list_commands(context)}
    of_themselves = {
        name: command.get_short_help_str(limit=200) for name, command in commands.items() if command
    }

    assert of_themselves == dict(_SHORT_HELP)


def test_a_misspelt_command_is_a_usage_error_with_a_suggestion() -> None:
    """Exit code 2."""
    code, _, err = invoke("wroker")
    assert 2 == code
    assert "there is no command 'wroker'; did you mean 'worker'?" in err


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["shop:app", "--concurrency", "0"], "--concurrency='0': must be a whole number of at least 1"),
        (["shop:app", "--prefetch", "-1"], "--prefetch='-1': must be a whole number of at least 0"),
        (["shop:app", "--queues", "a=0"], "--queues='a=0': a weight is a whole number of at least 1"),
        (["shop:app", "--queues", "a=b"], "--queues='a=b': a weight is a whole number"),
        (["shop:app", "--queues", "a,,b"], "contains an empty name; write critical=6,default=3"),
        (["shop:app", "--queues", "a=1, a=2"], "names the queue 'a' twice"),
        (["shop:app", "--log-format", "xml"], "--log-format='xml': must be 'text' or 'json'"),
        (["shop:app", "--que", "a"], "No such option '--que'"),
        ([], "Missing argument 'MODULE:APP'"),
        (["shop:app", "--processes", "0"], "must be a whole number of at least 1"),
        (["shop:app", "--processes", "2", "--max-tasks", "5"], "with children use --max-tasks-per-child"),
        (["shop:app", "--max-memory", "much"], "--max-memory='much': must be a size: 512M or 1.5G"),
        (["shop:app", "--max-memory", "0"], "must be a size"),
        (["shop:app", "--max-memory", "9" * 400], "...: must be a size"),
        (["shop:app", "--max-memory", "9" * 40], "9': must be a size"),
        (["shop:app", "--health-port", "65536"], "--health-port='65536': must be at most 65,535"),
        (["shop:app", "--reload", "--burst"], "--reload waits for changes and --burst exits"),
        (["shop:app", "--supervised", "-1"], "-1 is not a socket of a supervisor"),
        (["shop:app", "--supervised", "0"], "0 is not a socket of a supervisor"),
        (["shop:app", "--supervised", "9" * 40], "9 is not a socket of a supervisor"),
        (["shop:app", "--supervisor", "--all"], "not the settings of a supervisor"),
        (["shop:app", "--supervisor", "[]"], "not the settings of a supervisor"),
        (["shop:app", "--supervisor", '{"health": {"port": 1}}'], "not the settings of a supervisor"),
    ],
)
def test_wrong_usage_is_exit_code_2(arguments: list[str], message: str) -> None:
    """The message names the value and the remedy."""
    code, _, err = invoke("worker", *arguments)
    assert 2 == code
    assert message in " ".join(err.split())


def test_long_lists_of_task_types_are_cut() -> None:
    """Twenty are enough for one line of a log."""
    assert "a, b" == some(["a", "b"], 20)
    assert some([f"t{n:02}" for n in range(23)], 20).endswith("t18, t19 and 3 more")


def test_a_wrong_app_is_exit_code_1_without_a_traceback() -> None:
    """Saying what was looked for."""
    code, out, err = invoke("worker", "not_there.tasks:app")
    assert (1, "") == (code, out)
    assert err.startswith("Error: there is no module 'not_there.tasks'")


@pytest.mark.usefixtures("impatient")
def test_ping_of_a_redis_that_is_not_there_names_the_address() -> None:
    """The message has neither a traceback nor the password."""
    code, _, err = invoke("ping", "--redis", "redis://:secret@localhost:1/0")
    assert 5 == code
    assert "Error: Redis at localhost:1 cannot be reached" in err
    assert "secret" not in err


def test_reload_without_watchfiles_names_the_command_to_type(monkeypatch: pytest.MonkeyPatch) -> None:
    """It is an extra."""
    monkeypatch.setitem(__import__("sys").modules, "watchfiles", None)
    with pytest.raises(Exception, match=r"type  pip install 'pyasynq\[cli\]'"):
        run_with_reload(["shop:app"])


def test_the_worker_says_that_it_does_not_run_on_windows(monkeypatch: pytest.MonkeyPatch) -> None:
    """Clients do."""
    monkeypatch.setattr("sys.platform", "win32")
    code, _, err = invoke("worker", "shop:app")
    assert 1 == code
    assert "the worker does not run on Windows; clients do" in err


def test_the_parent_of_a_reload_gets_what_was_typed_after_the_command(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Also where something before it is called like the command."""
    given: list[Sequence[str]] = []
    monkeypatch.setattr(
        "pyasynq.cli.worker_start.run_with_reload", lambda arguments, *_: given.append(arguments)
    )
    monkeypatch.setattr(sys, "argv", ["worker", "worker", "another:app"])
    code, _, _ = invoke("worker", "worker:app", "--queues", "worker=1", "--reload")
    assert 0 == code
    assert [["worker:app", "--queues", "worker=1"]] == given


@pytest.mark.parametrize(
    ("settings", "typed"),
    [
        ("processes=2", ()),
        ("", ("--processes=2",)),
        ("max_memory=10**9", ()),
        ("reload=True", ()),
    ],
)
def test_a_worker_that_is_to_be_a_parent_starts_again_without_the_app(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, settings: str, typed: Sequence[str]
) -> None:
    """So the memory and the threads of the app do not stay in it; wherever the setting is from."""
    (tmp_path / "parent_app.py").write_text(
        "from pyasynq import App, WorkerConfig\n"
        f"app = App('redis://localhost:1', worker=WorkerConfig({settings}))\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.delitem(sys.modules, "parent_app", raising=False)
    started: list[Sequence[str]] = []

    def execv(program: str, arguments: Sequence[str]) -> None:
        started.append(arguments)
        raise SystemExit(0)

    monkeypatch.setattr("os.execv", execv)
    code, _, err = invoke("worker", "parent_app:app", *typed)
    assert (0, "") == (code, err)
    [[_, *rest]] = started
    assert ["-m", "pyasynq.cli", "worker", "parent_app:app", *typed] == rest[: 4 + len(typed)]
    assert ("--reload" if "reload" in settings else "--supervisor=") in rest[-1]


def test_a_module_that_cannot_be_imported_shows_its_traceback(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """From the user's frame on, then the line that says what was looked for. (D38)"""
    (tmp_path / "commanded_broken.py").write_text(
        "def inner():\n    raise ValueError('no\x1b[2J')\ninner()\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    code, _, err = invoke("worker", "commanded_broken:app")
    assert 1 == code
    first, *_, last = err.splitlines()
    assert "Traceback (most recent call last):" == first
    assert last.startswith(
        "Error: module 'commanded_broken' was found, but importing it failed: ValueError: no␛[2J"
    )
    assert err.count("File ") == err.count('commanded_broken.py"') == 2


def test_a_scheduler_without_schedules_says_so(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    """It would wait in silence. (D38)"""
    (tmp_path / "commanded_idle.py").write_text(
        "from pyasynq import App\napp = App('redis://localhost')\nbusy = App('redis://localhost')\n"
        "@busy.cron('@daily')\n@busy.task('t')\nasync def t() -> None: ...\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", sys.path[:])
    monkeypatch.setattr("pyasynq.app.App.run_scheduler", lambda *_, **__: 0)
    assert 0 == invoke("scheduler", "commanded_idle:app")[0]
    assert 1 == sum("this app has no schedules" in message for message in caplog.messages)
    assert 0 == invoke("scheduler", "commanded_idle:busy")[0]
    assert 1 == sum("this app has no schedules" in message for message in caplog.messages)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ([], "Write pyasynq work QUEUE... -- COMMAND ARG..."),
        (["resize"], "Write pyasynq work QUEUE... -- COMMAND ARG..."),
        (["resize", "--"], "which command runs the tasks?"),
        (["--", "cat"], "which queues?"),
        (["resize", "--", "no-such-program"], "there is no program 'no-such-program'"),
        (["resize", "--lease", "1s", "--", "cat"], "--lease is between 3s and 12h"),
        (["resize", "--grace", "6m", "--", "cat"], "--grace is 5m at most"),
        (["resize", "--", "cat"], "Give --service URL or set PYASYNQ_SERVICE"),
        (["resize", "--service", "task-queue:8080", "--", "cat"], "as in http://task-queue:8080"),
        (["resize", "--service", "http://:80", "--", "cat"], "give the address of the task service"),
        (["resize", "--service", "http://a", "--key-file", "no-such-file", "--", "cat"], "cannot be read"),
        (["resize", "--key", "secret", "--", "cat"], "No such option '--key'"),
        ([*(str(number) for number in range(101)), "--", "cat"], "100 queues at most"),
    ],
)
def test_wrong_usage_of_work_is_told(
    arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Exit code 2, before anything is asked of the service."""
    monkeypatch.delenv("PYASYNQ_SERVICE", raising=False)
    code, _, err = invoke("work", *arguments)
    assert 2 == code
    assert message in " ".join(err.split())


def test_the_words_after_the_dashes_are_left_alone() -> None:
    """Also where they look like options of ours."""
    code, _, err = invoke("work", "resize", "--", "no-such-program", "--help", "--", "--concurrency")
    assert (2, True) == (code, "no-such-program" in err)


def test_a_service_that_does_not_answer_is_exit_code_5() -> None:
    """With its address."""
    code, _, err = invoke("work", "resize", "--service", "http://127.0.0.1:1", "--no-logging", "--", "cat")
    assert 5 == code
    assert "the task service at http://127.0.0.1:1 does not answer" in err
