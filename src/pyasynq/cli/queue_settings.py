"""Queues of a worker from flags, environment, file and app, with the limits of all these places."""

from __future__ import annotations

from dataclasses import fields
from typing import TYPE_CHECKING, Any, Final, NamedTuple

import click

from pyasynq._checks import check_name, is_whole
from pyasynq._queue_texts import read_max_run, read_ordered, read_rates, read_weights, removes_limit
from pyasynq._settings import Checked, Setting
from pyasynq._visible_text import visible
from pyasynq.config import ResolvedQueues
from pyasynq.errors import InvalidOptionError, nearest
from pyasynq.limits import Queue, complete_rate, read_rate

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pyasynq.app import App

_FIELDS: Final = tuple(one.name for one in fields(Queue))
_KEYS: Final = tuple("weight" if name == "priority" else name for name in _FIELDS)


class Given(NamedTuple):
    """Value of a setting that was given, and its source, such as `--concurrency` or a file."""

    value: Any
    source: str


def _refuse(_name: str, _value: object) -> None:
    raise NotImplementedError  # these settings are read as text, and never checked


QUEUE_LIMITS: Final[dict[str, Setting]] = {
    "queue_max_run": Setting(
        Checked(_refuse, read_max_run, metavar="NAME=NUMBER,..."),
        "Number of tasks of a queue that run at once, in all workers together, as in deliver=1; "
        "deliver=none removes a limit.",
    ),
    "queue_rate": Setting(
        Checked(_refuse, read_rates, metavar="NAME=RATE,..."),
        "Number of tasks of a queue that start in a time, in all workers together, as in "
        "mail=50/s,sms=100/m. A burst of ten is mail=50/s+10, and mail=none removes a limit.",
    ),
    "queue_ordered": Setting(
        Checked(_refuse, read_ordered, metavar="NAME,..."),
        "Queues whose tasks run strictly one after the other, in all workers together.",
    ),
}
"""Queue limits that are set by flags and environment variables; in a file they are in the table of queues."""


def take_queues(value: object) -> dict[str, Any]:
    """Return the queues of a configuration file: for each a weight, or the arguments of `Queue` in its table.

    Raises:
        InvalidOptionError: for an invalid value. The option is the key, as in `queues.mail.rate`.
    """
    if isinstance(value, str):
        return dict(read_weights("queues", value))
    if not isinstance(value, dict) or not value:
        remedy = "write a table of weights, as in queues = { mail = 3, default = 1 }"
        raise InvalidOptionError("queues", value, remedy)
    return {name: _take_queue(name, one) for name, one in value.items()}


def _take_queue(name: str, value: object) -> Any:
    check_name("queues", name)
    if isinstance(value, dict):
        return _take_table(f"queues.{name}", value)
    if not is_whole(value, 1):
        is_text = isinstance(value, str)
        weight = "a number without quotation marks" if is_text else "a whole number of at least 1"
        remedy = f"write {weight}, as in mail = 3, or a table, as in mail = {{ weight = 3, rate = '50/s' }}"
        raise InvalidOptionError(f"queues.{name}", value, remedy)
    return value


def _take_table(option: str, table: Mapping[str, Any]) -> dict[str, Any]:
    given: dict[str, Any] = {}
    for key, value in table.items():
        name = "priority" if key == "weight" else key
        if name not in _FIELDS:
            hint = nearest(key, _KEYS) or f"; there are {', '.join(_KEYS)}"
            raise InvalidOptionError(option, key, f"has no {key!r}{hint}")
        if removes_limit(value) and name in {"max_run", "rate"}:
            given[name] = None
        elif isinstance(value, str) and name == "rate":
            given |= read_rate(f"{option}.rate", value)
        else:
            given[name] = value
    try:
        # A lower place may set the rate of a burst or period, so any rate does here.
        Queue(**{"rate": 1.0, **complete_rate(given)})
    except InvalidOptionError as error:
        key = "weight" if error.option == "priority" else error.option
        raise InvalidOptionError(f"{option}.{key}", error.value, error.remedy) from None
    return given


def resolve_queues(layers: Sequence[Mapping[str, Given]], app: App | None) -> Given:
    """Merge the queues of all places, the highest first; limits stay unless a higher place sets them.

    The highest place that gives queues chooses their names.

    Raises:
        UsageError: for a limit of a queue that is not served, and for limits that exclude each other.
        ConfigurationError: for limits of the app that exclude each other.
    """
    merger = _Merger(app)
    for layer in reversed(layers):
        if "queues" in layer:
            merger.choose(layer["queues"])
        for option in QUEUE_LIMITS:
            if option in layer:
                merger.limit(layer[option])
    return Given(merger.build(), ", ".join(merger.list_sources()))


class _Merger:
    """Queues of several places, added from the lowest place to the highest."""

    def __init__(self, app: App | None) -> None:
        own = {} if app is None else dict(app._complete(app.worker).queues)  # noqa: SLF001 - this command runs the app
        known = own if app is None else {**app.default_queues(), **own}
        self._names = list(own)
        self._source = "default" if app is None else "app"
        self._fields = {name: _read_fields(queue) for name, queue in known.items()}
        self._sources: dict[str, list[str]] = {}
        """Sources of the limits of each queue, apart from the app."""
        self._must_serve: dict[str, str] = {}
        """Queues that flags and variables limit, each with the source."""

    def choose(self, given: Given) -> None:
        """Serve these queues; their weights and tables override those of lower places."""
        self._names, self._source = list(given.value), given.source
        for name, one in given.value.items():
            is_weight = isinstance(one, int)
            self._change(name, {"priority": one} if is_weight else one, "" if is_weight else given.source)

    def limit(self, given: Given) -> None:
        """Limit queues, which must be served."""
        for name, changes in given.value.items():
            self._must_serve[name] = given.source
            self._change(name, changes, given.source)

    def _change(self, name: str, changes: Mapping[str, Any], source: str) -> None:
        self._fields[name] = {**self._fields.get(name, {"priority": 1}), **complete_rate(changes)}
        if source:
            self._sources.setdefault(name, []).append(source)

    def list_sources(self) -> list[str]:
        """Return the source of the names, then those of limits."""
        limits = [one for name in self._names for one in self._sources.get(name, ())]
        return list(dict.fromkeys([self._source, *limits]))

    def build(self) -> ResolvedQueues:
        """Return the queues that are served."""
        for name, source in self._must_serve.items():
            if name not in self._names:
                raise click.UsageError(
                    f"{source}: the queue {name!r} has a limit and is not served by this worker; "
                    "add it to --queues"
                )
        return ResolvedQueues({name: self._build(name) for name in self._names})

    def _build(self, name: str) -> int | Queue:
        try:
            queue = Queue(**self._fields[name])
        except InvalidOptionError as error:
            sources = ", ".join(dict.fromkeys(self._sources.get(name, ["app"])))
            raise click.UsageError(f"{visible(sources)}: queue {name!r}: {error}") from None
        return queue if queue.limits else queue.priority


def _read_fields(queue: int | Queue) -> dict[str, Any]:
    if isinstance(queue, Queue):
        return {name: getattr(queue, name) for name in _FIELDS}
    return {"priority": queue}
