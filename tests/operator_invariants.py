"""What must hold of the keys that operators write; a part of `tests/invariants.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pyasynq._broker.operating.snoozes import MAX_SNOOZES, decode_snooze
from pyasynq._broker.operating.views import MAX_VIEWS
from pyasynq._wire.keys import AUDIT, REFUSED, SNOOZED, VIEWS
from pyasynq.operations.audit import decode_entry
from pyasynq.operations.views import decode_view

if TYPE_CHECKING:
    from collections.abc import Iterator

    from tests.invariants import RedisClient

_FIELDS = {AUDIT: [b"nonce", b"entry"], REFUSED: [b"who", b"more", b"entry"]}
_LENGTHS = {AUDIT: 100_000, REFUSED: 10_000}
_NODE = 100
"""Entries that Redis keeps above the maximum when it trims roughly."""


def operator_violations(client: RedisClient) -> Iterator[str]:
    """Yield what is wrong with the audit and with saved views, as sentences."""
    yield from _view_violations(client)
    yield from _snooze_violations(client)
    for key, names in _FIELDS.items():
        if client.type(key) != b"stream":
            continue
        if client.xlen(key) > _LENGTHS[key] + _NODE:
            yield f"{key} has {client.xlen(key)} entries"
        for position, fields in client.xrange(key):
            if names != list(fields):
                yield f"{key} has the fields {list(fields)} at {position.decode()}"
            elif decode_entry("", fields[b"entry"]) is None:
                yield f"{key} says {fields[b'entry']!r}"


def _snooze_violations(client: RedisClient) -> Iterator[str]:
    if client.type(SNOOZED) != b"zset":
        return
    snoozes = client.zrange(SNOOZED, 0, -1)
    if len(snoozes) > MAX_SNOOZES:
        yield f"{SNOOZED} has {len(snoozes)} snoozes"
    for data in snoozes:
        if decode_snooze(data) is None:
            yield f"{SNOOZED} says {data!r}"


def _view_violations(client: RedisClient) -> Iterator[str]:
    if client.type(VIEWS) != b"hash":
        return
    views = client.hgetall(VIEWS)
    if len(views) > MAX_VIEWS:
        yield f"{VIEWS} has {len(views)} views"
    for name, data in views.items():
        if decode_view(name.decode(), data) is None:
            yield f"{VIEWS} says {data!r}"
