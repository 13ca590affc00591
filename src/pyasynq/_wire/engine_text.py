"""The field `engine` of a pyasynq server's record: its name, limits of queues, task types, last answer.

    pyasynq {"limits":{"deliver":{"concurrency":1},"mail":{"rate":50.0,"period":1.0,"burst":1}},"types":["a"]}

After a request of an operator the JSON has the server's acknowledgement, too:

    pyasynq {"answer":{"action":"quiet","number":"1700000000.000000","obeyed":true}}

While its event loop is blocked, a server publishes the seconds of the block so far:

    pyasynq {"blocked":12.5}

A server may have the name of its team:

    pyasynq {"team":"starmap"}

The JSON also has the version of pyasynq, and that of the application if it has one:

    pyasynq {"engine_version":"0.1.0","version":"2026.11.2"}

The name ends at the first space. JSON follows; a reader ignores the parts it does not know.
"""

from __future__ import annotations

import json
import math
from datetime import timedelta
from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

from pyasynq.info import ServerAction, ServerAnswer
from pyasynq.limits import QueueLimits
from pyasynq.task_types import ServedTypes

if TYPE_CHECKING:
    from collections.abc import Mapping


_TEXTS: Final = ("team", "version", "engine_version")
_FIELDS: Final = ("rate", "period", "burst", "ordered")
_MAX_TYPE_BYTES: Final = 16_384
"""Maximum total bytes of the names of types in a record, which is written every 5 seconds."""
_LONGEST_TEXT: Final = 100
"""Maximum characters of a version or a team's name; a longer one is ignored."""
_LEAST_BLOCKED: Final = 1.0
"""Seconds after which a blocked event loop is reported."""


def encode_engine(
    name: str,
    limits: Mapping[str, QueueLimits],
    types: ServedTypes | None = None,
    answer: ServerAnswer | None = None,
    blocked: float = 0.0,
    texts: Mapping[str, str] | None = None,
) -> str:
    """Return the value of the field `engine`.

    Queues without limits are left out. The task types are left out if they are unknown, or if their names are
    too long together. `texts` maps `team`, `version` and `engine_version` to their values; empty values are
    left out.
    """
    details: dict[str, Any] = {}
    described = {queue: _describe(limit) for queue, limit in limits.items() if limit}
    if described:
        details["limits"] = described
    if types:
        named = {"types": sorted(types.names), "prefixes": list(types.prefixes)}
        told = {key: names for key, names in named.items() if names}
        if len(_dump(told)) <= _MAX_TYPE_BYTES:
            details |= told
    if answer is not None:
        details["answer"] = {
            "action": answer.action.value,
            "number": answer.number,
            "obeyed": answer.obeyed,
        }
    if blocked >= _LEAST_BLOCKED:
        details["blocked"] = round(blocked, 1)
    details |= {key: text for key, text in (texts or {}).items() if text}
    return f"{name} {_dump(details)}" if details else name


def _dump(details: Mapping[str, Any]) -> str:
    return json.dumps(details, separators=(",", ":"))


@lru_cache(maxsize=1)
def _parse_details(text: str) -> Any:
    """Return the JSON of the field, which may be any value; an empty object if there is none.

    The last one is cached, because readers decode the parts of one record in turn. Do not change it. Raises
    ValueError or RecursionError.
    """
    _, _, details = text.partition(" ")
    return json.loads(details) if details else {}


def decode_answer(text: str) -> ServerAnswer | None:
    """Return the acknowledgement of a request; None if there is none that can be parsed."""
    try:
        answer = _parse_details(text).get("answer")
        if answer is None:
            return None
        return ServerAnswer(ServerAction(answer["action"]), str(answer["number"]), answer["obeyed"] is True)
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return None


def decode_loop_blocked(text: str) -> timedelta | None:
    """Decode the time for which a server's event loop was blocked; None if not blocked or not published."""
    try:
        seconds = _parse_details(text).get("blocked")
        if isinstance(seconds, bool) or not isinstance(seconds, int | float) or not math.isfinite(seconds):
            return None
        return timedelta(seconds=seconds) if seconds > 0 else None
    except (ValueError, TypeError, KeyError, AttributeError, OverflowError, RecursionError):
        return None


def decode_engine_texts(text: str) -> dict[str, str]:
    """Decode `team`, `version` and `engine_version` of a server; what it does not publish is empty."""
    try:
        texts = {key: _parse_details(text).get(key) for key in _TEXTS}
    except (ValueError, AttributeError, RecursionError):
        texts = {}
    return {key: _check_length(texts.get(key)) for key in _TEXTS}


def _check_length(value: object) -> str:
    return value if isinstance(value, str) and len(value) <= _LONGEST_TEXT else ""


def decode_engine(text: str) -> tuple[str, dict[str, QueueLimits]]:
    """Return the name of the engine and the limits by queue; no limits if they cannot be parsed."""
    name, _, _ = text.partition(" ")
    try:
        described = _parse_details(text).get("limits", {})
        return name, {queue: QueueLimits(**_select_known(limits)) for queue, limits in described.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return name, {}


def decode_served_types(text: str) -> ServedTypes | None:
    """Decode the task types of a server; None if it does not publish them, such as a Go server."""
    try:
        details = _parse_details(text)
        names, prefixes = details.get("types", []), details.get("prefixes", [])
        is_sound = all(isinstance(one, str) and one for one in (*names, *prefixes))
    except (ValueError, TypeError, AttributeError, RecursionError):
        return None
    return ServedTypes(frozenset(names), tuple(prefixes)) if is_sound and (names or prefixes) else None


def _describe(limits: QueueLimits) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if limits.max_run is not None:
        described["concurrency"] = limits.max_run
    if limits.rate is not None:
        described |= {"rate": limits.rate, "period": limits.period, "burst": limits.burst}
    if limits.ordered:
        described["ordered"] = True
    return described


def _select_known(described: Mapping[str, Any]) -> dict[str, Any]:
    known = {name: described[name] for name in _FIELDS if name in described}
    if "concurrency" in described:
        known["max_run"] = described["concurrency"]
    return known
