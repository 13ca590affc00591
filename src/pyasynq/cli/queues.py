"""The values of `--queues`, `--queue-concurrency` and `--queue-rate`."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

import click

from pyasynq._checks import whole_number_of
from pyasynq.errors import InvalidOptionError
from pyasynq.limits import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

_RATE: Final = re.compile(r"(?P<rate>[\d.]+)/(?P<period>[\d.]*)(?P<unit>[smh])(?:\+(?P<burst>\d+))?")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}


def queue_weights(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, int] | None:
    """Read `critical=6,default=3`: names of queues with their weights, 1 where none is given.

    Raises:
        BadParameter: for an empty or repeated name, or a weight that is none.
    """
    if value is None:
        return None
    weights: dict[str, int] = {}
    for name, weight in _parts(value, "critical=6,default=3"):
        number = 1 if weight is None else whole_number_of(weight)
        if not number:
            raise click.BadParameter(f"'{name}={weight}': a weight is a whole number of at least 1")
        weights[name] = number
    return weights


def queue_concurrency(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> dict[str, dict[str, Any]]:
    """Read `deliver=1,reports=2`: names of queues, and how many of their tasks run at once in all workers.

    Raises:
        BadParameter: for an empty or repeated name, or a number that cannot be.
    """
    settings: dict[str, dict[str, Any]] = {}
    for name, text in _parts(value, "deliver=1"):
        number = whole_number_of(text or "")
        settings[name] = {"concurrency": (text or "") if number is None else number}
        _check(name, settings[name])
    return settings


def queue_rates(_ctx: click.Context, _param: click.Parameter, value: str | None) -> dict[str, dict[str, Any]]:
    """Read `mail=50/s,sms=100/10m+5`: names of queues, tasks per period, and what may start at once.

    Raises:
        BadParameter: for an empty or repeated name, or a rate that cannot be.
    """
    settings: dict[str, dict[str, Any]] = {}
    for name, text in _parts(value, "mail=50/s"):
        match = _RATE.fullmatch(text or "")
        if not match:
            remedy = "write 50/s, 100/m, 1/10s, or 50/s+10 when ten may start at once"
            raise click.BadParameter(f"'{name}={text or ''}': {remedy}")
        try:
            rate, period = float(match["rate"]), float(match["period"] or 1) * _UNIT_SECONDS[match["unit"]]
        except ValueError as error:
            raise click.BadParameter(f"'{name}={text}': {error}") from None
        settings[name] = {"rate": rate, "period": period}
        if match["burst"]:
            number = whole_number_of(match["burst"])
            settings[name]["burst"] = match["burst"] if number is None else number
        _check(name, settings[name])
    return settings


def ordered_queues(
    _ctx: click.Context, _param: click.Parameter, value: str | None
) -> dict[str, dict[str, Any]]:
    """Read `ledger,audit`: names of queues whose tasks run one after the other.

    Raises:
        BadParameter: for an empty or repeated name, or one with a value.
    """
    settings: dict[str, dict[str, Any]] = {}
    for name, text in _parts(value, "ledger,audit"):
        if text is not None:
            raise click.BadParameter(f"'{name}={text}': only names are given here, as in ledger,audit")
        settings[name] = {"ordered": True}
    return settings


def with_limits(
    weights: Mapping[str, int], *limits: Mapping[str, Mapping[str, Any]]
) -> dict[str, int | Queue]:
    """Return weights and limits as settings of queues.

    Raises:
        UsageError: for limits of a queue that is not served, and for some that do not go together.
    """
    queues: dict[str, int | Queue] = dict(weights)
    for name in {name: None for part in limits for name in part}:
        if name not in weights:
            raise click.UsageError(
                f"the queue {name!r} has a limit and is not served by this worker; add it to --queues"
            )
        given = {key: value for part in limits for key, value in part.get(name, {}).items()}
        try:
            queues[name] = Queue(priority=weights[name], **given)
        except InvalidOptionError as error:
            raise click.UsageError(f"queue {name!r}: {error}") from None
    return queues


def _check(name: str, settings: Mapping[str, Any]) -> None:
    try:
        Queue(**settings)
    except InvalidOptionError as error:
        raise click.BadParameter(f"queue {name!r}: {error}") from None


def _parts(value: str | None, example: str) -> Iterator[tuple[str, str | None]]:
    """Yield each name and what stands behind its `=`; None where there is none."""
    names = set()
    for part in value.split(",") if value is not None else ():
        name, separator, text = (piece.strip() for piece in part.partition("="))
        if not name:
            raise click.BadParameter(f"{value!r} contains an empty name; write {example}")
        if name in names:
            raise click.BadParameter(f"{value!r} names the queue {name!r} twice")
        names.add(name)
        yield name, text if separator else None
