"""Settings of a worker from flags, environment, file and app, and where each of them came from."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, fields, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, TypeVar

import click

from pyasynq._settings import Setting, settings_of
from pyasynq._visible_text import visible
from pyasynq.cli.connection import URL_VARIABLE
from pyasynq.cli.queue_settings import QUEUE_LIMITS, Given, resolve_queues, take_queues
from pyasynq.config import GroupRule
from pyasynq.errors import ConfigurationError, InvalidOptionError, nearest
from pyasynq.worker_config import WorkerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Mapping
    from pathlib import Path

    from pyasynq.app import App

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_PREFIX: Final = "PYASYNQ_"
_TABLE: Final = "[tool.pyasynq]"
_LONGEST_SHOWN: Final = 60
_GROUP_KEYS: Final = tuple(one.name for one in fields(GroupRule))
_OTHER_NAMES: Final = dict.fromkeys(("REDIS", "URL", "URI", "BROKER_URL"), URL_VARIABLE)
"""Names of the variable of the URL in other programs, without the prefix; they do not resemble it."""
_ALIKE: Final = 0.85
"""Minimum similarity (0 to 1) of a misspelt variable. Less similar ones may belong to other programs."""


SETTINGS: Final[dict[str, Setting]] = {
    **{one.name: described for one, described in settings_of(WorkerConfig)},
    **QUEUE_LIMITS,
}
"""All settings by name, in the order of the reference page."""


def flags_of(name: str) -> tuple[str, ...]:
    """Return the command-line flags of a setting; empty if its values cannot be written as text."""
    described = SETTINGS[name]
    if not described.kind.has_text:
        return ()
    short = tuple(one for one in described.flags if not one.startswith("--"))
    own = tuple(one for one in described.flags if one.startswith("--"))
    word = name.replace("_", "-")
    long = f"--{word}" if described.kind.metavar else f"--{word}/--no-{word}"
    return (*short, *(own or (long,)))


def variable_of(name: str) -> str | None:
    """Return the environment variable of a setting; None if its values cannot be written as text."""
    return f"{_PREFIX}{name.upper()}" if SETTINGS[name].kind.has_text else None


def setting_options(command: _Command) -> _Command:
    """Add a flag for each setting to a command. Its value is a string, a bool for a switch, or None."""
    for name, described in reversed(SETTINGS.items()):
        flags = flags_of(name)
        if flags:
            is_switch = not described.kind.metavar
            command = click.option(
                *flags,
                name,
                default=None,
                is_flag=is_switch,
                metavar=None if is_switch else described.kind.metavar,
                help=_help(name, described),
            )(command)
    return command


def _help(name: str, described: Setting) -> str:
    text = described.help
    if (
        described.kind.metavar
        and not described.optional
        and name not in {*QUEUE_LIMITS, "queues", "retry_delay"}
    ):
        text += f"  [default: {described.show(getattr(WorkerConfig(), name))}]"
    return text


def read_flags(typed: Mapping[str, Any]) -> dict[str, Given]:
    """Return the settings that command-line flags give.

    Raises:
        UsageError: for an invalid value.
    """
    found: dict[str, Given] = {}
    for name in SETTINGS:
        value = typed.get(name)
        if value is None:
            continue
        flag = next(one for one in flags_of(name) if one.startswith("--")).partition("/")[0]
        if isinstance(value, bool):
            off = flags_of(name)[-1].partition("/")[2]
            found[name] = Given(value, flag if value else off)
            continue
        try:
            found[name] = Given(SETTINGS[name].read(flag, value), flag)
        except InvalidOptionError as error:
            raise click.UsageError(_explain_wrong_value(flag, value, error)) from None
    return found


def read_environment(variables: Mapping[str, str] = os.environ) -> dict[str, Given]:
    """Return the settings that environment variables give; empty variables are ignored.

    Raises:
        UsageError: for an invalid value.
    """
    found: dict[str, Given] = {}
    for name in SETTINGS:
        variable = variable_of(name)
        text = variables.get(variable, "") if variable else ""
        if variable and text.strip():
            try:
                found[name] = Given(SETTINGS[name].read(variable, text), variable)
            except InvalidOptionError as error:
                raise click.UsageError(_explain_wrong_value(variable, text, error)) from None
    return found


def without_queue_limits(layer: Mapping[str, Given]) -> dict[str, Given]:
    """Return a layer without limits of queues, which cannot be merged before the app's queues are known."""
    return {name: one for name, one in layer.items() if name not in QUEUE_LIMITS}


def find_misspelt_variables(variables: Mapping[str, str] = os.environ) -> dict[str, str]:
    """Return misspelt environment variables, each with the variable of a setting that it resembles."""
    known = {URL_VARIABLE, *(variable for name in SETTINGS if (variable := variable_of(name)))}
    given = sorted(one for one in variables if one.startswith(_PREFIX) and one not in known)
    alike = {
        one: _OTHER_NAMES.get(one.removeprefix(_PREFIX)) or _find_alike(one.removeprefix(_PREFIX), known)
        for one in given
    }
    return {one: meant for one, meant in alike.items() if meant}


def _find_alike(name: str, known: Iterable[str]) -> str:
    words = [one.removeprefix(_PREFIX) for one in known]
    return next((f"{_PREFIX}{one}" for one in get_close_matches(name, words, n=1, cutoff=_ALIKE)), "")


def read_file(path: Path, table: Mapping[str, Any]) -> dict[str, Given]:
    """Return the settings in the table of a file, by name.

    Raises:
        UsageError: for a name that is not a setting, and for an invalid value.
    """
    found: dict[str, Given] = {}
    for key, value in table.items():
        name = key.replace("-", "_")
        source = f"{path}: {key}"
        if name not in SETTINGS or name in QUEUE_LIMITS or not _can_be_in_file(name):
            raise click.UsageError(f"{visible(source)}: there is no such setting{_hint(name)}")
        try:
            found[name] = Given(_take_file_value(name, value), source)
        except InvalidOptionError as error:
            is_inside = error.option.startswith(f"{name}.")  # a key of a table
            place = f"{path}: {error.option}" if is_inside else source
            wrong = error.value if is_inside else value
            raise click.UsageError(_explain_wrong_value(place, wrong, error)) from None
    return found


def _can_be_in_file(name: str) -> bool:
    return SETTINGS[name].kind.has_text or name == "groups"


def _hint(name: str) -> str:
    if name in QUEUE_LIMITS:
        return "; write it in the table of queues, as in queues.mail = {max_run = 3}"
    if name in SETTINGS:
        return "; it is a function: set it in Python, as in App(worker=...)"
    if name in {"redis", "redis_url", "url"}:
        return "; write the URL into the app, as in App('redis://localhost:6379/0'), or set PYASYNQ_REDIS_URL"
    return nearest(name, [one for one in SETTINGS if _can_be_in_file(one)])


def _take_file_value(name: str, value: Any) -> Any:
    if name == "queues":
        return take_queues(value)
    if name == "groups" and isinstance(value, dict):
        value = {group: _read_group_rule(group, one) for group, one in value.items()}
    elif name == "retry_delay" and isinstance(value, bool):
        raise InvalidOptionError(name, value, "must be a duration")
    return SETTINGS[name].take(name, value)


def _read_group_rule(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    for key in value:
        if key not in _GROUP_KEYS:
            hint = nearest(key, _GROUP_KEYS) or f"; there are {', '.join(_GROUP_KEYS)}"
            raise InvalidOptionError(f"groups.{name}", key, f"has no {key!r}{hint}")
    try:
        return GroupRule(**value)
    except InvalidOptionError as error:
        raise InvalidOptionError(f"groups.{name}.{error.option}", error.value, error.remedy) from None


def find_file(app_folder: Path | None) -> tuple[Path, Mapping[str, Any]] | None:
    """Return the nearest `pyproject.toml` with a pyasynq table, and the table; search upwards from a folder.

    Raises:
        UsageError: for a file that is not TOML.
    """
    for folder in (app_folder, *app_folder.parents) if app_folder is not None else ():
        path = folder / "pyproject.toml"
        if path.is_file():
            table = load_file(path).get("tool", {}).get("pyasynq")
            if isinstance(table, dict):
                return path, table
    return None


def load_file(path: Path) -> dict[str, Any]:
    """Return the content of a TOML file.

    Raises:
        UsageError: for a file that cannot be read.
    """
    text = ""
    try:
        text = path.read_text("utf-8")
        return tomllib.loads(text)
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {visible(error.strerror or error)}") from None
    except (ValueError, RecursionError) as error:
        end = f"at the end, line {len(text.splitlines())}"
        reason = str(error).replace("at end of document", end)
        raise click.UsageError(f"{path} is not valid TOML: {visible(reason)}") from None


def _explain_wrong_value(source: str, value: object, error: InvalidOptionError) -> str:
    shown = visible(repr(value))
    if len(shown) > _LONGEST_SHOWN:
        shown = f"{shown[:_LONGEST_SHOWN]}..."
    return f"{visible(source)}={shown}: {error.remedy}"


@dataclass(frozen=True, slots=True)
class Resolved:
    """The settings of a worker.

    Attributes:
        config: all values.
        sources: source of each value, by name of the setting.
    """

    config: WorkerConfig
    sources: Mapping[str, str]

    def lines(self) -> Iterator[tuple[str, str, str]]:
        """Yield name, value and source of each setting."""
        for name, described in SETTINGS.items():
            if name not in QUEUE_LIMITS:
                source = self.sources[name]
                default = described.default_text if source == "default" else ""
                yield name, visible(default or described.show(getattr(self.config, name))), source


def resolve(*layers: Mapping[str, Given], app: App | None = None) -> Resolved:
    """Merge layers of settings: earlier layers override later ones, and all override the app's settings.

    Limits of queues are merged by queue.

    Raises:
        UsageError: for conflicting settings.
    """
    given: dict[str, Given] = {}
    for layer in reversed(layers):
        given |= layer
    defaults = WorkerConfig()
    base = defaults if app is None else app.worker
    is_set = {
        one.name
        for one, _ in settings_of(WorkerConfig)
        if getattr(base, one.name) != getattr(defaults, one.name)
    }
    sources = {one.name: "app" if one.name in is_set else "default" for one, _ in settings_of(WorkerConfig)}
    given = {name: one for name, one in given.items() if name not in {*QUEUE_LIMITS, "queues"}}
    sources |= {name: one.source for name, one in given.items()}
    try:
        queues, sources["queues"] = resolve_queues(layers, app)
        config = replace(base, queues=queues, **{name: one.value for name, one in given.items()})
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    return Resolved(config, sources)
