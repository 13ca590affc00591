"""Logging options such as `--log-level`: they choose between the app's logging and the command line's."""

from __future__ import annotations

import json
import logging
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, Final, TypeVar, get_args

import click
from click.core import ParameterSource

from pyasynq import TaskFieldsFilter
from pyasynq.cli.logs import LogFormat, install_handler

if TYPE_CHECKING:
    from collections.abc import Callable

Decorated = TypeVar("Decorated", bound="Callable[..., Any]")

_OUTCOMES: Final = "pyasynq.outcomes"
_log = logging.getLogger("pyasynq")


def log_options(command: Decorated) -> Decorated:
    """Decorate a command with the logging options; it gets them as `log_level`, `log_format` and so on."""
    for option in reversed(_OPTIONS):
        command = option(command)
    return command


def set_up_logging(settings: dict[str, Any], *, process: str = "") -> None:
    """Set up logging as the command's options say; call it after the app was imported.

    If the app has configured the root logger, its handlers stay, and only get a filter that adds the fields
    of tasks. Loggers of pyasynq that the app's `dictConfig` has disabled are enabled again.

    Args:
        settings: the command's options.
        process: name of this process, if there are several.

    Raises:
        UsageError: if the file of `--log-config` does not configure logging.
    """
    if settings["no_logging"]:
        return
    if settings["log_config"] is not None:
        _configure_from(settings["log_config"])
    elif logging.getLogger().handlers:
        _note_unused_options()
    else:
        install_handler(settings["log_level"], settings["log_format"], process=process)
    adopt_handlers()
    _choose_outcome_lines(settings)


def adopt_handlers() -> None:
    """Enable pyasynq's loggers, and add the filter for task fields to the root logger's handlers.

    Call it again after each change of the logging configuration.
    """
    for name in ("pyasynq", *logging.root.manager.loggerDict):
        if name == "pyasynq" or name.startswith("pyasynq."):
            logging.getLogger(name).disabled = False
    for handler in logging.getLogger().handlers:
        if not any(isinstance(one, TaskFieldsFilter) for one in handler.filters):
            handler.addFilter(TaskFieldsFilter())


def is_terminal() -> bool:
    """Return whether the log goes to a terminal."""
    return sys.stderr.isatty()


def _choose_outcome_lines(settings: dict[str, Any]) -> None:
    """Turn the log line for each successful task on or off.

    Without the option, a level that the app has set stays. If there is none, the line is written only in the
    text format on a terminal.
    """
    asked: bool | None = settings.get("task_lines")
    logger = logging.getLogger(_OUTCOMES)
    if asked is None:
        if logger.level:
            return
        asked = settings["log_format"] == "text" and is_terminal()
    logger.setLevel(logging.NOTSET if asked else logging.WARNING)


def _note_unused_options() -> None:
    context = click.get_current_context()
    typed = [
        f"--{name.replace('_', '-')}"
        for name in ("log_level", "log_format")
        if context.get_parameter_source(name) is ParameterSource.COMMANDLINE
    ]
    if typed:
        _log.warning("the app has configured logging itself; %s will not be used", " and ".join(typed))


def _configure_from(file: str) -> None:
    # Imported late: few workers have such a file, and these modules take half a megabyte of memory.
    import logging.config  # noqa: PLC0415
    import tomllib  # noqa: PLC0415

    path = Path(file)
    try:
        if path.suffix in {".ini", ".conf", ".cfg"}:
            logging.config.fileConfig(path, disable_existing_loggers=False)
            return
        text = path.read_text("utf-8")
        content = tomllib.loads(text) if path.suffix == ".toml" else json.loads(text)
        logging.config.dictConfig({"version": 1, "disable_existing_loggers": False, **content})
    except (OSError, ValueError, TypeError, KeyError, AttributeError, ImportError, RuntimeError) as error:
        cause = error.__cause__ or error
        raise click.UsageError(
            f"--log-config {file}: {type(cause).__name__}: {cause}; it is a dictConfig in JSON or TOML, "
            "or a fileConfig that ends in .ini"
        ) from error


task_lines_option = click.option(
    "--log-tasks/--quiet-tasks",
    "task_lines",
    default=None,
    help="Write a line for each success, or only for failures. Unless given: on a terminal, in text.",
)

_OPTIONS: Final = (
    click.option(
        "-l",
        "--log-level",
        type=click.Choice(["debug", "info", "warning", "error"], case_sensitive=False),
        default="info",
        show_default=True,
        help="The least level that is written.",
    ),
    click.option(
        "--log-format",
        type=click.Choice(get_args(LogFormat)),
        default="text",
        show_default=True,
        help="Lines for people, or one JSON object a line.",
    ),
    click.option(
        "--log-config",
        metavar="FILE",
        help="Configure logging from this file: a dictConfig in JSON or TOML, or an .ini file.",
    ),
    click.option("--no-logging", is_flag=True, help="Leave logging alone altogether: the app sets it up."),
)
