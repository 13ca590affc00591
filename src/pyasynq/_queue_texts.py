"""Text forms of queue settings, for flags and environment: `critical=6,default=3`, `mail=50/s+10`."""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any, Final

from pyasynq._checks import parse_whole_number
from pyasynq.errors._configuration import InvalidOptionError
from pyasynq.limits import Queue, complete_rate, read_rate

if TYPE_CHECKING:
    from collections.abc import Iterator

NO_LIMIT: Final = "none"
"""Text that removes a limit which another place sets."""

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
    """Return names of queues with their concurrency limits, for all workers together: `deliver=1,mail=none`.

    Raises:
        InvalidOptionError: for an empty or repeated name, or an invalid number.
    """
    found: dict[str, QueueFields] = {}
    for name, value in _parts(option, text, "deliver=1"):
        number = parse_whole_number(value or "")
        limit = (value or "") if number is None else number
        found[name] = {"max_run": None if removes_limit(value) else limit}
        _check(option, name, found[name])
    return found


def read_rates(option: str, text: str) -> dict[str, QueueFields]:
    """Return names of queues with rate, period and burst: `mail=50/s,sms=100/10m+5,bulk=none`.

    Raises:
        InvalidOptionError: for an empty or repeated name, or an invalid rate.
    """
    found: dict[str, QueueFields] = {}
    for name, value in _parts(option, text, "mail=50/s"):
        shown = f"{name}={value or ''}"
        found[name] = {"rate": None} if removes_limit(value) else read_rate(option, value or "", shown=shown)
        _check(option, name, found[name])
    return found


def removes_limit(value: object) -> bool:
    """Return whether a value is the text that removes a limit."""
    return isinstance(value, str) and value.strip().lower() == NO_LIMIT


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
        Queue(**complete_rate(fields))
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
