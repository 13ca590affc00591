"""Text forms of queue settings, for flags and environment: `critical=6,default=3`, `mail=50/s+10`."""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import parse_whole_number
from pyasynq.errors._configuration import InvalidOptionError
from pyasynq.limits import Queue

if TYPE_CHECKING:
    from collections.abc import Iterator

_RATE: Final = re.compile(r"(?P<rate>[\d.]+)/(?P<period>[\d.]*)(?P<unit>[smh])(?:\+(?P<burst>\d+))?")
_UNIT_SECONDS: Final = {"s": 1, "m": 60, "h": 3_600}

QueueFields = dict[str, Any]
"""Arguments of `Queue` by name."""


def read_weights(option: str, text: str) -> dict[str, int]:
    """Return names of queues with their weights, 1 where none is given: `critical=6,default`.

    Raises:
        InvalidOptionError: for an empty or repeated name, or an invalid weight.
    """
    weights: dict[str, int] = {}
    for name, weight in _parts(option, text, "critical=6,default=3"):
        number = 1 if weight is None else parse_whole_number(weight)
        if not number:
            raise InvalidOptionError(option, f"{name}={weight}", "a weight is a whole number of at least 1")
        weights[name] = number
    return weights


def read_max_run(option: str, text: str) -> dict[str, QueueFields]:
    """Return names of queues with their concurrency limits, for all workers together: `deliver=1`.

    Raises:
        InvalidOptionError: for an empty or repeated name, or an invalid number.
    """
    found: dict[str, QueueFields] = {}
    for name, value in _parts(option, text, "deliver=1"):
        number = parse_whole_number(value or "")
        found[name] = {"max_run": (value or "") if number is None else number}
        _check(option, name, found[name])
    return found


def read_rates(option: str, text: str) -> dict[str, QueueFields]:
    """Return names of queues with rate, period and burst: `mail=50/s,sms=100/10m+5`.

    Raises:
        InvalidOptionError: for an empty or repeated name, or an invalid rate.
    """
    found: dict[str, QueueFields] = {}
    for name, value in _parts(option, text, "mail=50/s"):
        found[name] = read_rate(option, value or "", shown=f"{name}={value or ''}")
        _check(option, name, found[name])
    return found


def read_rate(option: str, text: str, *, shown: str = "") -> QueueFields:
    """Return rate, period and burst of `50/s`, `100/10m` or `50/s+10`.

    Raises:
        InvalidOptionError: for other text; the message shows `shown` instead of `text`.
    """
    match = _RATE.fullmatch(text.strip())
    remedy = "write 50/s, 100/m, 1/10s, or 50/s+10 when ten may start at once"
    if match is None:
        raise InvalidOptionError(option, shown or text, remedy)
    try:
        rate, period = float(match["rate"]), float(match["period"] or 1) * _UNIT_SECONDS[match["unit"]]
    except ValueError:
        raise InvalidOptionError(option, shown or text, remedy) from None
    fields: QueueFields = {"rate": rate, "period": period}
    if match["burst"]:
        number = parse_whole_number(match["burst"])
        fields["burst"] = match["burst"] if number is None else number
    return fields


def read_ordered(option: str, text: str) -> dict[str, QueueFields]:
    """Return names of queues whose tasks run one after the other: `ledger,audit`.

    Raises:
        InvalidOptionError: for an empty or repeated name, or one with a value.
    """
    found: dict[str, QueueFields] = {}
    for name, value in _parts(option, text, "ledger,audit"):
        if value is not None:
            remedy = "only names are given here, as in ledger,audit"
            raise InvalidOptionError(option, f"{name}={value}", remedy)
        found[name] = {"ordered": True}
    return found


def show_queues(queues: object) -> str:
    """Return queues with their weights and limits as text: `critical=6 (max_run 3), default=1`."""
    if not isinstance(queues, Mapping):
        return str(queues)
    shown = []
    for name, one in queues.items():
        queue = one if isinstance(one, Queue) else Queue(priority=one)
        limits = str(queue.limits)
        shown.append(f"{name}={queue.priority}" + (f" ({limits})" if limits else ""))
    return ", ".join(shown)


def _check(option: str, name: str, fields: Mapping[str, Any]) -> None:
    try:
        Queue(**fields)
    except InvalidOptionError as error:
        raise InvalidOptionError(option, name, str(error)) from None


def _parts(option: str, text: str, example: str) -> Iterator[tuple[str, str | None]]:
    """Yield the name of each queue, and the text after its `=`, or None without a `=`.

    Raises:
        InvalidOptionError: for an empty or repeated name; the message shows the `example`.
    """
    names = set()
    for part in text.split(","):
        name, separator, value = (piece.strip() for piece in part.partition("="))
        if not name:
            raise InvalidOptionError(option, text, f"contains an empty name; write {example}")
        if name in names:
            raise InvalidOptionError(option, text, f"names the queue {name!r} twice")
        names.add(name)
        yield name, value if separator else None
