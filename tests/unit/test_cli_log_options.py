"""Logging settings of a command."""

from __future__ import annotations

import io
import json
import logging
import logging.config
from typing import TYPE_CHECKING, Any

import click
import pytest
from click.testing import CliRunner

from pyasynq import TaskFieldsFilter
from pyasynq.cli.log_options import adopt_handlers, log_options, set_up_logging, task_lines_option

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator
    from pathlib import Path


@pytest.fixture(autouse=True)
def loggers_are_put_back() -> Iterator[None]:
    """After each test, all loggers are as they were."""
    root = logging.getLogger()
    handlers, level = root.handlers[:], root.level
    loggers = [one for one in root.manager.loggerDict.values() if isinstance(one, logging.Logger)]
    before = [(one, one.level, one.disabled) for one in loggers]
    logging.getLogger("pyasynq.outcomes").setLevel(logging.NOTSET)
    yield
    root.handlers[:] = handlers
    root.setLevel(level)
    for logger, its_level, disabled in before:
        logger.setLevel(its_level)
        logger.disabled = disabled


@click.command()
@log_options
@task_lines_option
def command(**settings: Any) -> None:
    """Do what commands do."""
    set_up_logging(settings)
    logging.getLogger("pyasynq").warning("ours")
    logging.getLogger("pyasynq.outcomes").info("a success")


def run(*arguments: str, handlers: Iterable[logging.Handler] = ()) -> tuple[int, str]:
    """Run the command when the root logger has these handlers; return exit code and standard error."""
    logging.getLogger().handlers[:] = handlers
    result = CliRunner().invoke(command, arguments)
    return result.exit_code, result.stderr


def test_an_app_that_configured_the_root_logger_is_left_alone() -> None:
    """Its handler writes, with the task's fields; no second one does. (D27)"""
    handler = logging.StreamHandler(io.StringIO())
    assert (0, "") == run(handlers=[handler])
    assert [handler] == logging.getLogger().handlers
    assert [TaskFieldsFilter] == [type(one) for one in handler.filters]


def test_options_that_are_not_used_then_are_named(caplog: pytest.LogCaptureFixture) -> None:
    """The user who typed them expects them to work. (D27)"""
    run("--log-format", "json", "-l", "debug", handlers=[caplog.handler])
    words = "the app has configured logging itself; --log-level and --log-format will not be used"
    assert words == caplog.messages[0]


def test_a_dict_config_of_the_app_does_not_silence_us() -> None:
    """The default of `disable_existing_loggers` means loggers that the program has forgotten. (D27)"""
    logging.getLogger("pyasynq.outcomes")
    logging.config.dictConfig({"version": 1, "loggers": {"shop": {"level": "INFO"}}})
    assert logging.getLogger("pyasynq").disabled
    code, err = run()
    assert (0, True) == (code, "ours" in err)
    assert 1 == len(logging.getLogger().handlers)


def test_a_change_after_the_set_up_is_adopted() -> None:
    """A lifespan may configure logging, too. Once for each handler. (D27)"""
    logging.getLogger("pyasynq").disabled = True
    handler = logging.StreamHandler()
    logging.getLogger().handlers[:] = [handler]
    adopt_handlers()
    adopt_handlers()
    assert not logging.getLogger("pyasynq").disabled
    assert 1 == len(handler.filters)


def test_no_logging_touches_nothing() -> None:
    """The app sets it up, or it stays as it is. (D27)"""
    logging.getLogger("pyasynq").disabled = True
    assert (0, "") == run("--no-logging")
    assert [] == logging.getLogger().handlers
    assert logging.getLogger("pyasynq").disabled


CONFIG = {
    "formatters": {"short": {"format": "<%(levelname)s %(message)s>"}},
    "handlers": {"err": {"class": "logging.StreamHandler", "formatter": "short"}},
    "root": {"handlers": ["err"], "level": "WARNING"},
}
TOML = """
formatters.short.format = "<%(levelname)s %(message)s>"
handlers.err = {class = "logging.StreamHandler", formatter = "short"}
root = {handlers = ["err"], level = "WARNING"}
"""
INI = """
[loggers]
keys=root
[handlers]
keys=err
[formatters]
keys=short
[logger_root]
level=WARNING
handlers=err
[handler_err]
class=StreamHandler
formatter=short
args=(sys.stderr,)
[formatter_short]
format=<%(levelname)s %(message)s>
"""


@pytest.mark.parametrize(
    ("name", "content"), [("log.json", json.dumps(CONFIG)), ("log.toml", TOML), ("log.ini", INI)]
)
def test_a_file_configures_logging(tmp_path: Path, name: str, content: str) -> None:
    """As JSON, TOML or an old ini file; loggers that exist stay enabled. (D27)"""
    (tmp_path / name).write_text(content)
    assert (0, "<WARNING ours>\n") == run("--log-config", str(tmp_path / name))


@pytest.mark.parametrize("content", [None, "{", "[]", '{"handlers": {"x": {"class": "no.such"}}}'])
def test_a_file_that_cannot_be_used_is_wrong_usage(tmp_path: Path, content: str | None) -> None:
    """It is named, with the reason. (D27)"""
    if content is not None:
        (tmp_path / "log.json").write_text(content)
    code, err = run("--log-config", str(tmp_path / "log.json"))
    assert 2 == code
    assert "log.json: " in err


@pytest.mark.parametrize(
    ("arguments", "terminal", "written"),
    [
        ([], True, True),
        ([], False, False),
        (["--quiet-tasks"], True, False),
        (["--log-tasks"], False, True),
        (["--log-format", "json"], True, False),
        (["--log-format", "json", "--log-tasks"], False, True),
    ],
)
def test_a_line_for_each_success_is_for_people_at_a_terminal(
    monkeypatch: pytest.MonkeyPatch, arguments: list[str], terminal: bool, written: bool
) -> None:
    """Unless it is asked for, or not wanted. (D36)"""
    monkeypatch.setattr("pyasynq.cli.log_options.is_terminal", lambda: terminal)
    _, err = run(*arguments)
    assert written is ("a success" in err)


def test_a_level_that_the_app_has_chosen_stays() -> None:
    """It is a logger like any other. (D36)"""
    logging.getLogger("pyasynq.outcomes").setLevel(logging.DEBUG)
    run(handlers=[logging.StreamHandler(io.StringIO())])
    assert logging.DEBUG == logging.getLogger("pyasynq.outcomes").level
