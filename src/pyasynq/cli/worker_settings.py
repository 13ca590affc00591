"""Settings of a worker from flags, environment, file and app, and where each of them came from."""

from __future__ import annotations

import os
import tomllib
from dataclasses import dataclass, replace
from difflib import get_close_matches
from typing import TYPE_CHECKING, Any, Final, NamedTuple, TypeVar

import click

from pyasynq._queue_texts import read_max_run, read_ordered, read_rates
from pyasynq._settings import Checked, Setting, settings_of
from pyasynq._visible_text import visible
from pyasynq.config import GroupRule
from pyasynq.errors import ConfigurationError, InvalidOptionError, nearest
from pyasynq.limits import Queue
from pyasynq.worker_config import WorkerConfig

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping
    from pathlib import Path

    from pyasynq.app import App

_Command = TypeVar("_Command", bound="Callable[..., Any]")

_PREFIX: Final = "PYASYNQ_"
_TABLE: Final = "[tool.pyasynq]"
_LONGEST_SHOWN: Final = 60
_ALIKE: Final = 0.85
"""Minimum similarity (0 to 1) of a misspelt variable. Less similar ones may belong to other programs."""


def _refuse(_name: str, _value: object) -> None:
    raise NotImplementedError  # these settings are read as text, and never checked


QUEUE_LIMITS: Final[dict[str, Setting]] = {
    "queue_max_run": Setting(
        Checked(_refuse, read_max_run, metavar="NAME=NUMBER,..."),
        "Number of tasks of a queue that run at once, in all workers together, as in deliver=1.",
    ),
    "queue_rate": Setting(
        Checked(_refuse, read_rates, metavar="NAME=RATE,..."),
        "Number of tasks of a queue that start in a time, in all workers together, as in "
        "mail=50/s,sms=100/m; mail=50/s+10 lets ten start at once.",
    ),
    "queue_ordered": Setting(
        Checked(_refuse, read_ordered, metavar="NAME,..."),
        "Queues whose tasks run strictly one after the other, in all workers together.",
    ),
}
"""Queue limits that are set by flags and environment variables; in a file they are in the table of queues."""

SETTINGS: Final[dict[str, Setting]] = {
    **{one.name: described for one, described in settings_of(WorkerConfig)},
    **QUEUE_LIMITS,
}
"""All settings by name, in the order of the reference page."""


class Given(NamedTuple):
    """Value of a setting that was given, and its source, such as `--concurrency` or a file."""

    value: Any
    source: str


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
    known = {name.upper() for name in SETTINGS if variable_of(name)}
    given = [one.removeprefix(_PREFIX) for one in sorted(variables) if one.startswith(_PREFIX)]
    return {
        f"{_PREFIX}{name}": f"{_PREFIX}{alike[0]}"
        for name in given
        if name not in known and (alike := get_close_matches(name, known, n=1, cutoff=_ALIKE))
    }


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
            raise click.UsageError(_explain_wrong_value(source, value, error)) from None
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
    if name == "queues" and isinstance(value, dict):
        value = {queue: _queue_of(queue, one) for queue, one in value.items()}
    elif name == "groups" and isinstance(value, dict):
        value = {group: _read_group_rule(group, one) for group, one in value.items()}
    elif name == "retry_delay" and isinstance(value, bool):
        raise InvalidOptionError(name, value, "must be a duration")
    return SETTINGS[name].take(name, value)


def _queue_of(name: str, value: Any) -> Any:
    if not isinstance(value, dict):
        return value
    fields = {("priority" if key == "weight" else key): one for key, one in value.items()}
    if isinstance(fields.get("rate"), str):
        rates = read_rates(f"queues.{name}", f"{name}={fields.pop('rate')}")
        fields |= rates[name]
    return _make_from_table(Queue, f"queues.{name}", fields)


def _read_group_rule(name: str, value: Any) -> Any:
    return _make_from_table(GroupRule, f"groups.{name}", value) if isinstance(value, dict) else value


def _make_from_table(kind: type[Any], name: str, fields: Mapping[str, Any]) -> Any:
    try:
        return kind(**fields)
    except TypeError:
        known = ["weight" if one == "priority" else one for one in kind.__dataclass_fields__]
        wrong = next(one for one in fields if one not in kind.__dataclass_fields__)
        hint = nearest(wrong, known) or f"; there are {', '.join(known)}"
        raise InvalidOptionError(name, wrong, f"has no {wrong!r}{hint}") from None
    except InvalidOptionError as error:
        raise InvalidOptionError(name, error.value, f"{error.option}: {error.remedy}") from None


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
    try:
        return tomllib.loads(path.read_text("utf-8"))
    except OSError as error:
        raise click.UsageError(f"{path} cannot be read: {visible(error.strerror or error)}") from None
    except (ValueError, RecursionError) as error:
        raise click.UsageError(f"{path}: {visible(error)}") from None


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
    limits = {name: given.pop(name) for name in QUEUE_LIMITS if name in given}
    sources |= {name: one.source for name, one in given.items()}
    try:
        config = replace(base, **{name: one.value for name, one in given.items()})
        if app is not None:
            completed = app._complete(config)  # noqa: SLF001 - this command runs the app
            assert isinstance(completed, WorkerConfig)  # noqa: S101 - as it was given
            config = completed
            sources["queues"] = "app" if sources["queues"] == "default" else sources["queues"]
        if limits:
            sources["queues"] = ", ".join([sources["queues"], *(one.source for one in limits.values())])
            config = replace(config, queues=_apply_queue_limits(config.queues, limits))
    except ConfigurationError as error:
        raise click.UsageError(str(error)) from None
    return Resolved(config, sources)


def _apply_queue_limits(
    queues: Mapping[str, int | Queue], limits: Mapping[str, Given]
) -> dict[str, int | Queue]:
    """Return queues with the limits that flags and variables give; they override the app's limits."""
    limited = dict(queues)
    for given in limits.values():
        for name, fields in given.value.items():
            if name not in limited:
                raise click.UsageError(
                    f"{given.source}: the queue {name!r} has a limit and is not served by this worker; "
                    "add it to --queues"
                )
            one = limited[name]
            try:
                limited[name] = (
                    replace(one, **fields) if isinstance(one, Queue) else Queue(priority=one, **fields)
                )
            except InvalidOptionError as error:
                raise click.UsageError(f"queue {name!r}: {error}") from None
    return limited
