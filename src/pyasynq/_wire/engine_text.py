"""What a server of pyasynq says of itself in field `engine` of its record: its name, and its queues' limits.

    pyasynq {"limits":{"deliver":{"concurrency":1},"mail":{"rate":50.0,"period":1.0,"burst":10}}}

The name ends at the first space. What stands behind it is JSON; whoever does not know a part of it leaves it.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from pyasynq.limits import QueueLimits

if TYPE_CHECKING:
    from collections.abc import Mapping


_FIELDS: Final = ("concurrency", "rate", "period", "burst", "ordered")


def encode_engine(name: str, limits: Mapping[str, QueueLimits]) -> str:
    """Return the text; queues without limits are left out."""
    described = {queue: _describe(limit) for queue, limit in limits.items() if limit}
    if not described:
        return name
    return f"{name} {json.dumps({'limits': described}, separators=(',', ':'))}"


def decode_engine(text: str) -> tuple[str, dict[str, QueueLimits]]:
    """Return name and limits; no limits when they cannot be read."""
    name, _, details = text.partition(" ")
    try:
        described = json.loads(details)["limits"] if details else {}
        return name, {queue: QueueLimits(**_known(limits)) for queue, limits in described.items()}
    except (ValueError, TypeError, KeyError, AttributeError, RecursionError):
        return name, {}


def _describe(limits: QueueLimits) -> dict[str, Any]:
    described: dict[str, Any] = {}
    if limits.concurrency is not None:
        described["concurrency"] = limits.concurrency
    if limits.rate is not None:
        described |= {"rate": limits.rate, "period": limits.period, "burst": limits.burst}
    if limits.ordered:
        described["ordered"] = True
    return described


def _known(described: Mapping[str, Any]) -> dict[str, Any]:
    return {name: described[name] for name in _FIELDS if name in described}
